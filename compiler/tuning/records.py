"""Choices of the accelerator as the values that a file keeps."""

import dataclasses
import hashlib
import json
from typing import Any

from tilewright.compiler.lowering.choices import Choice, Tiling
from tilewright.compiler.lowering.lane_tiling import LaneTiling
from tilewright.compiler.lowering.tiling import MatrixTiling
from tilewright.compiler.tuning.store import DamagedRecord, StoredChoice, Values
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_to_record

#: Fields of a configuration that change no cycle.
_WITHOUT_TIMING = ("name", "clock_mhz", "packed_multipliers", "lane_multipliers")


def machine_digest(config: AcceleratorConfig) -> str:
    """Hash what the cycles of a configuration depend on."""
    record = config_to_record(config)
    for name in _WITHOUT_TIMING:
        del record[name]
    del record["dram"]["size_bytes"]
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def store_choice(choice: Choice) -> StoredChoice:
    """Return what a file keeps of a choice; the inverse of `restore_choice`."""
    tilings = (_tiling_values(tiling) for tiling in choice.tilings)
    return StoredChoice(cost=choice.cycles, values=(choice.lead, *tilings))


def restore_choice(stored: StoredChoice) -> Choice:
    """Return the choice of which `store_choice` made this.

    Raises
    ------
    DamagedRecord
        If it made it of none.
    """
    match stored.values:
        case (int(lead), *tilings):
            return Choice(
                cycles=stored.cost,
                lead=lead,
                tilings=tuple(_restore_tiling(tiling) for tiling in tilings),
            )
        case _:
            raise DamagedRecord(f"a choice cannot be {stored.values!r:.60}")


def _tiling_values(tiling: Tiling) -> Values:
    return tuple(int(value) for value in dataclasses.astuple(tiling))


def _restore_tiling(values: Any) -> Tiling:
    """The kinds of tilings differ in their number of fields."""
    match values:
        case (int(rows), int(columns), int(blocks)):
            return LaneTiling(rows=rows, columns=columns, blocks=blocks)
        case (int(rows), int(columns), int(out_blocks), int(in_blocks), int(outside)):
            return MatrixTiling(
                rows=rows,
                columns=columns,
                out_blocks=out_blocks,
                in_blocks=in_blocks,
                channels_outside=bool(outside),
            )
        case _:
            raise DamagedRecord(f"a tiling cannot be {values!r:.60}")
