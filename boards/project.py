"""A build: every file that the tool of a board needs, and the command that runs it."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from typing_extensions import assert_never

from tilewright.boards import openxc7, vivado
from tilewright.boards.board import Board, check_ports
from tilewright.boards.hwh import hardware_description
from tilewright.boards.parts import check_fit
from tilewright.boards.toolchains import Toolchain
from tilewright.boards.vivado import STEM
from tilewright.boards.zynq import board_verilog
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_digest, config_to_record
from tilewright.isa.errors import ConfigError, InputError, TilewrightError
from tilewright.isa.port_registers import REGISTER_SPACE_BYTES
from tilewright.isa.registers import ISA_VERSION

#: Version of the form of `config.json`.
RECORD_VERSION = 1
#: Files that a build holds besides those of its tool.
RECORD_NAME = "config.json"
LOG_NAME = "build.log"


class BuildError(TilewrightError):
    """A tool has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The files of a build by name, and what makes a bitstream of them."""

    board: Board
    config: AcceleratorConfig
    toolchain: Toolchain
    files: Mapping[str, str]
    #: To be run in the folder of the files.
    command: tuple[str, ...]
    #: Programs that must be on the path.
    tools: tuple[str, ...]

    @property
    def missing_tools(self) -> tuple[str, ...]:
        """Programs that are not on the path."""
        return tuple(tool for tool in self.tools if shutil.which(tool) is None)

    @property
    def bitstream(self) -> str:
        """Name of the file that the command leaves."""
        return f"{STEM}.bit"

    def write(self, folder: Path) -> None:
        """Write all files into a folder, which is made if need be.

        Raises
        ------
        InputError
            If they cannot be written.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in self.files.items():
                (folder / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write the project to {folder}: {error.strerror}") from error

    def run(self, folder: Path) -> None:
        """Make the bitstream; what the tools say goes to `LOG_NAME`.

        Raises
        ------
        BuildError
            If a tool is missing or fails, or leaves no bitstream.
        """
        if self.missing_tools:
            raise BuildError(f"{', '.join(self.missing_tools)} is not on the path")
        log = folder / LOG_NAME
        (folder / self.bitstream).unlink(missing_ok=True)
        with log.open("w", encoding="utf-8") as stream:
            status = subprocess.run(
                self.command, cwd=folder, stdout=stream, stderr=subprocess.STDOUT, check=False
            ).returncode
        if status != 0 or not (folder / self.bitstream).is_file():
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            said = f": {lines[-1]:.200}" if lines else ""
            raise BuildError(
                f"{self.command[0]} failed with status {status}{said}", hint=f"see {log}"
            )


def make_project(board: Board, config: AcceleratorConfig, toolchain: Toolchain) -> Project:
    """Write the files of a build.

    Raises
    ------
    ConfigError
        If the configuration does not suit the board, its part or the toolchain.
    """
    check_ports(config, board)
    check_fit(config, board.part)
    _check_clock(config, board)
    if toolchain is Toolchain.OPENXC7:
        _check_openxc7(config)
    match toolchain:
        case Toolchain.VIVADO:
            files = {
                f"{STEM}.xdc": vivado.constraints(config, board),
                vivado.SCRIPT_NAME: vivado.script(config, board),
            }
            tools: tuple[str, ...] = ("vivado",)
            command: tuple[str, ...] = (
                "vivado",
                *("-mode", "batch", "-nojournal", "-source", vivado.SCRIPT_NAME),
            )
        case Toolchain.OPENXC7:
            files = {
                f"{STEM}.xdc": "# No pins: everything is on the processor.\n",
                openxc7.SCRIPT_NAME: openxc7.script(config, board, STEM),
            }
            tools = openxc7.TOOLS
            command = ("sh", openxc7.SCRIPT_NAME)
        case _:
            assert_never(toolchain)
    return Project(
        board=board,
        config=config,
        toolchain=toolchain,
        files=MappingProxyType(
            {
                **files,
                f"{STEM}.v": board_verilog(config, board.part.family),
                f"{STEM}.hwh": hardware_description(config, board),
                RECORD_NAME: json.dumps(build_record(board, config, toolchain), indent=2) + "\n",
            }
        ),
        command=command,
        tools=tools,
    )


def build_record(board: Board, config: AcceleratorConfig, toolchain: Toolchain) -> dict[str, Any]:
    """Return what the driver must know of a bitstream, as JSON values."""
    clock = board.clock(config.clock_mhz)
    return {
        "version": RECORD_VERSION,
        "board": board.name,
        "part": board.part.name,
        "family": board.part.family.value,
        "control_address": board.control_address,
        "control_bytes": REGISTER_SPACE_BYTES,
        "reference_mhz": board.reference_mhz,
        "clock": {
            "mhz": clock.mhz,
            "pll": clock.pll.name,
            "divisors": list(clock.divisors),
        },
        "isa_version": ISA_VERSION,
        "digest": config_digest(config),
        "config": config_to_record(config),
        "toolchain": toolchain.value,
        "made_with": {name: version(name) for name in ("tilewright", "amaranth")},
    }


def _check_clock(config: AcceleratorConfig, board: Board) -> None:
    clock = board.clock(config.clock_mhz)
    if abs(clock.mhz - config.clock_mhz) > 1e-3:
        raise ConfigError(
            f"{board.title} cannot make a clock of {config.clock_mhz:g} MHz,"
            f" the nearest below is {clock.mhz:.3f} MHz",
            hint=f"--set clock_mhz={clock.mhz:.3f}",
        )


def _check_openxc7(config: AcceleratorConfig) -> None:
    if config.macs_per_cycle > openxc7.LARGEST_ARRAY:
        raise ConfigError(
            f"openXC7 has routed arrays of up to {openxc7.LARGEST_ARRAY} products per cycle,"
            f" {config.name!r} has {config.macs_per_cycle}",
            hint="--config pynq-open, or --toolchain vivado",
        )
