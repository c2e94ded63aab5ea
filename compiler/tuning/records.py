"""Choices as lines of JSON with a checksum, one for each problem or network that was tuned."""

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.compiler.lowering.choices import Choice, Tiling
from tilewright.compiler.lowering.lane_tiling import LaneTiling
from tilewright.compiler.lowering.tiling import MatrixTiling
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_to_record

#: Fields of a configuration that change no cycle.
_WITHOUT_TIMING = ("name", "clock_mhz", "packed_multipliers", "lane_multipliers")


class DamagedRecord(ValueError):
    """A line that is not what was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRecord:
    """The choices that the search for a kernel or a chain has kept: the best first, and last the
    one with the fewest cycles by estimate.
    """

    #: Of the configuration.
    machine: str
    #: Of the kernels.
    kernels: str
    choices: tuple[Choice, ...]
    #: Candidates that were allowed.
    budget: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRecord:
    """What suits the kernels of a network in their context."""

    machine: str
    #: Of all kernels in order.
    network: str
    #: By the digest of kernels.
    choices: Mapping[str, Choice]


Record = KernelRecord | NetworkRecord


def machine_digest(config: AcceleratorConfig) -> str:
    """Hash what the cycles of a configuration depend on."""
    record = config_to_record(config)
    for name in _WITHOUT_TIMING:
        del record[name]
    del record["dram"]["size_bytes"]
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def record_to_line(record: Record) -> str:
    """Write a record; the inverse of `line_to_record`."""
    match record:
        case KernelRecord():
            body: dict[str, Any] = {
                "machine": record.machine,
                "kernels": record.kernels,
                "budget": record.budget,
                "choices": [_choice_to_json(choice) for choice in record.choices],
            }
        case NetworkRecord():
            body = {
                "machine": record.machine,
                "network": record.network,
                "choices": {
                    digest: _choice_to_json(choice) for digest, choice in record.choices.items()
                },
            }
    text = json.dumps(body, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x} {text}"


def line_to_record(line: str) -> Record:
    """Read a record.

    Raises
    ------
    DamagedRecord
        If the line is not what `record_to_line` wrote.
    """
    checksum, _, text = line.partition(" ")
    if checksum != f"{zlib.crc32(text.encode()):08x}":
        raise DamagedRecord("the checksum does not match")
    try:
        return _from_json(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedRecord(str(error)) from error


def _from_json(body: dict[str, Any]) -> Record:
    if "network" in body:
        return NetworkRecord(
            machine=body["machine"],
            network=body["network"],
            choices={
                digest: _choice_from_json(choice) for digest, choice in body["choices"].items()
            },
        )
    return KernelRecord(
        machine=body["machine"],
        kernels=body["kernels"],
        budget=body["budget"],
        choices=tuple(_choice_from_json(choice) for choice in body["choices"]),
    )


def _choice_to_json(choice: Choice) -> list[Any]:
    return [choice.cycles, choice.lead, *(_tiling_to_json(tiling) for tiling in choice.tilings)]


def _choice_from_json(values: list[Any]) -> Choice:
    cycles, lead, *tilings = values
    return Choice(
        cycles=cycles, lead=lead, tilings=tuple(_tiling_from_json(tiling) for tiling in tilings)
    )


def _tiling_to_json(tiling: Tiling) -> list[int]:
    return [int(value) for value in dataclasses.astuple(tiling)]


def _tiling_from_json(values: list[int]) -> Tiling:
    """The kinds of tilings differ in their number of fields."""
    match values:
        case [rows, columns, blocks]:
            return LaneTiling(rows=rows, columns=columns, blocks=blocks)
        case [rows, columns, out_blocks, in_blocks, channels_outside]:
            return MatrixTiling(
                rows=rows,
                columns=columns,
                out_blocks=out_blocks,
                in_blocks=in_blocks,
                channels_outside=bool(channels_outside),
            )
        case _:
            raise ValueError(f"a tiling cannot be {values!r:.60}")
