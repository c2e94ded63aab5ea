"""A build: every file that the tool of a board needs, and the command that runs it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from typing_extensions import assert_never

from tilewright.boards import openxc7, trellis, vivado
from tilewright.boards.board import Board, check_ports
from tilewright.boards.ecp5_clock import find_pll
from tilewright.boards.hwh import hardware_description
from tilewright.boards.parts import Family, check_fit
from tilewright.boards.timing import routed_mhz
from tilewright.boards.toolchains import Toolchain
from tilewright.boards.ulx3s import ulx3s_rtlil
from tilewright.boards.vivado import STEM
from tilewright.boards.zynq import TOP_NAME, board_verilog
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_digest, config_to_record
from tilewright.isa.errors import ConfigError, InputError, TilewrightError
from tilewright.isa.memories import memory_shapes
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
    #: Programs that are needed, each by the names that it may have.
    tools: tuple[tuple[str, ...], ...]

    @property
    def missing_tools(self) -> tuple[str, ...]:
        """Programs that are neither on the path nor beside Python."""
        path = _search_path()
        return tuple(
            names[0]
            for names in self.tools
            if not any(shutil.which(name, path=path) for name in names)
        )

    @property
    def bitstream(self) -> str:
        """Name of the file that the command leaves."""
        return f"{STEM}.bit"

    def routed_mhz(self, folder: Path) -> float | None:
        """Return the clock that a finished build reaches, where its tool reports it in MHz."""
        match self.toolchain:
            case Toolchain.TRELLIS:
                return routed_mhz((folder / trellis.REPORT_NAME).read_text(encoding="utf-8"))
            case Toolchain.VIVADO | Toolchain.OPENXC7:
                return None
            case _:
                assert_never(self.toolchain)

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
                self.command,
                cwd=folder,
                stdout=stream,
                stderr=subprocess.STDOUT,
                check=False,
                env={**os.environ, "PATH": _search_path()},
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
    record = build_record(board, config, toolchain)
    match toolchain:
        case Toolchain.VIVADO:
            files = {
                **_zynq_files(board, config),
                f"{STEM}.xdc": vivado.constraints(config, board),
                vivado.SCRIPT_NAME: vivado.script(config, board),
            }
            tools: tuple[tuple[str, ...], ...] = (("vivado",),)
            command: tuple[str, ...] = (
                "vivado",
                *("-mode", "batch", "-nojournal", "-source", vivado.SCRIPT_NAME),
            )
        case Toolchain.OPENXC7:
            _check_openxc7(config)
            files = {
                **_zynq_files(board, config),
                f"{STEM}.xdc": "# No pins: everything is on the processor.\n",
                openxc7.SCRIPT_NAME: openxc7.script(config, board, STEM),
            }
            tools = tuple((tool,) for tool in openxc7.TOOLS)
            command = ("sh", openxc7.SCRIPT_NAME)
        case Toolchain.TRELLIS:
            pll = find_pll(board.reference_mhz, config.clock_mhz)
            files = {
                f"{STEM}.il": ulx3s_rtlil(config, pll, TOP_NAME),
                f"{STEM}.lpf": trellis.CONSTRAINTS,
                trellis.SCRIPT_NAME: trellis.script(config, board, STEM, TOP_NAME),
            }
            tools = trellis.TOOLS
            command = ("sh", trellis.SCRIPT_NAME)
        case _:
            assert_never(toolchain)
    return Project(
        board=board,
        config=config,
        toolchain=toolchain,
        files=MappingProxyType({**files, RECORD_NAME: json.dumps(record, indent=2) + "\n"}),
        command=command,
        tools=tools,
    )


def _zynq_files(board: Board, config: AcceleratorConfig) -> dict[str, str]:
    return {
        f"{STEM}.v": board_verilog(config, board.part.family),
        f"{STEM}.hwh": hardware_description(config, board),
    }


def build_record(board: Board, config: AcceleratorConfig, toolchain: Toolchain) -> dict[str, Any]:
    """Return what the driver must know of a bitstream, as JSON values."""
    return {
        "version": RECORD_VERSION,
        "board": board.name,
        "part": board.part.name,
        "family": board.part.family.value,
        "control_address": board.control_address,
        "control_bytes": REGISTER_SPACE_BYTES,
        "reference_mhz": board.reference_mhz,
        "clock": _clock_record(board, config),
        "isa_version": ISA_VERSION,
        "digest": config_digest(config),
        "config": config_to_record(config),
        "toolchain": toolchain.value,
        "made_with": {name: version(name) for name in ("tilewright", "amaranth")},
    }


def _clock_record(board: Board, config: AcceleratorConfig) -> dict[str, Any]:
    """Say where the clock comes from; raises `ConfigError` where the board cannot make it."""
    if board.part.family is Family.ECP5:
        pll = find_pll(board.reference_mhz, config.clock_mhz)
        divisors = [pll.input_divisor, pll.feedback_divisor, pll.output_divisor]
        return {"mhz": pll.mhz, "pll": "EHXPLLL", "divisors": divisors}
    clock = board.clock(config.clock_mhz)
    if abs(clock.mhz - config.clock_mhz) > 1e-3:
        raise ConfigError(
            f"{board.title} cannot make a clock of {config.clock_mhz:g} MHz,"
            f" the nearest below is {clock.mhz:.3f} MHz",
            hint=f"--set clock_mhz={clock.mhz:.3f}",
        )
    return {"mhz": clock.mhz, "pll": clock.pll.name, "divisors": list(clock.divisors)}


def _search_path() -> str:
    """Where programs are looked for: the path, then the folder of Python and its packages."""
    return os.pathsep.join((os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)))


def _check_openxc7(config: AcceleratorConfig) -> None:
    if config.macs_per_cycle > openxc7.LARGEST_ARRAY:
        raise ConfigError(
            f"openXC7 has routed arrays of up to {openxc7.LARGEST_ARRAY} products per cycle,"
            f" {config.name!r} has {config.macs_per_cycle}",
            hint="--config pynq-open, or --toolchain vivado",
        )
    for memory, shape in memory_shapes(config).items():
        if shape.entries // shape.banks > openxc7.DEEPEST_BANK:
            raise ConfigError(
                f"openXC7 makes memories of up to {openxc7.DEEPEST_BANK} entries,"
                f" {memory.name.lower()} of {config.name!r} has {shape.entries // shape.banks}",
                hint=f"reduce {memory.name.lower()}_entries, or --toolchain vivado",
            )
