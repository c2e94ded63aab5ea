"""The file `config.json` that lies beside a bitstream: what the driver must know of it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from typing_extensions import Self

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_digest, config_from_record
from tilewright.isa.errors import TilewrightError
from tilewright.isa.registers import ISA_VERSION
from tilewright.runtime.board_access import BoardError
from tilewright.runtime.files import read_file

#: Names of the files of a build.
RECORD_NAME = "config.json"
BITSTREAM_NAME = "tilewright.bit"
#: Version of the form of the file.
RECORD_VERSION = 1


class ProcessorFamily(Enum):
    """Families of processors that the driver knows."""

    ZYNQ_7000 = "zynq-7000"
    ZYNQ_MP = "zynq-ultrascale+"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRecord:
    """What a bitstream is made for."""

    board: str
    family: ProcessorFamily
    control_address: int
    control_bytes: int
    #: Oscillator of the processor.
    reference_mhz: float
    #: Name of the PLL that the clock of the programmable logic comes from.
    pll: str
    config: AcceleratorConfig

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the file in the folder of a build.

        Raises
        ------
        TilewrightError
            If it cannot be read, is damaged, or is of another version.
        """
        with _described(folder / RECORD_NAME) as record:
            return cls(
                board=str(record["board"]),
                family=ProcessorFamily(record["family"]),
                control_address=int(record["control_address"]),
                control_bytes=int(record["control_bytes"]),
                reference_mhz=float(record["reference_mhz"]),
                pll=str(record["clock"]["pll"]),
                config=_checked_config(record),
            )


def load_config(path: Path) -> AcceleratorConfig:
    """Read the configuration alone from such a file, of a board with or without a processor.

    Raises
    ------
    TilewrightError
        As `BoardRecord.load` does.
    """
    with _described(path) as record:
        return _checked_config(record)


@contextmanager
def _described(path: Path) -> Iterator[dict[str, Any]]:
    """Read the file; what goes wrong within means that it is damaged."""
    text = read_file(path, "description of the bitstream")
    try:
        yield json.loads(text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BoardError(f"{path} does not describe a bitstream") from None


def _checked_config(record: dict[str, Any]) -> AcceleratorConfig:
    for name, ours in (("version", RECORD_VERSION), ("isa_version", ISA_VERSION)):
        if record[name] != ours:
            raise BoardError(
                f"the bitstream has {name} {record[name]!r:.20}, this is {name} {ours}",
                hint="build it again with this tilewright",
            )
    try:
        config = config_from_record(record["config"])
    except TilewrightError as error:
        raise BoardError(f"the configuration of the bitstream cannot be: {error}") from error
    if config_digest(config) != record["digest"]:
        raise BoardError("the configuration of the bitstream does not have its digest")
    return config
