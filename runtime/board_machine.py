"""What runs programs: the simulator, a board, or either of them on another computer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import InputError
from tilewright.isa.program import Program
from tilewright.sim.simulator import Progress, simulate
from tilewright.sim.timeline import Timeline

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Patch:
    """Bytes that the host puts into DRAM before a program starts."""

    address: int
    data: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Bytes of DRAM that the host reads after a program has ended."""

    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounters:
    """What an engine has counted, as `tilewright.isa.registers.EngineRegister` names it."""

    started: int
    finished: int
    busy: int
    memory_wait: int
    token_wait: int
    fetch_wait: int
    drain: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What the accelerator of a board has counted; engines are in the order of `Engine`."""

    cycles: int
    engines: tuple[EngineCounters, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MachineRun:
    """What a run left: the regions asked for, and its timing as far as the machine tells."""

    regions: tuple[Bytes, ...]
    cycles: int
    #: From the simulator.
    timeline: Timeline | None = None
    #: From a board.
    counters: Counters | None = None


class Window(Protocol):
    """Registers of 32 bits from a physical address on."""

    def read(self, offset: int) -> int:
        """Return the register at a byte offset."""
        ...

    def write(self, offset: int, value: int) -> None:
        """Write the register at a byte offset."""
        ...


class Machine(Protocol):
    """Runs programs, one at a time."""

    @property
    def description(self) -> str:
        """What it is, in one line."""
        ...

    @property
    def config(self) -> AcceleratorConfig | None:
        """The only configuration that it runs programs of, or None."""
        ...

    def check_registers(self) -> str | None:
        """Try all registers that can be written, while no program runs.

        Returns what was tried, or None where it has no registers.

        Raises
        ------
        TilewrightError
            If one does not hold what is written, or cannot be reached.
        """
        ...

    def run(
        self,
        program: Program,
        patches: Sequence[Patch],
        regions: Sequence[Region],
        progress: Progress | None = None,
    ) -> MachineRun:
        """Run a legal program once.

        Every byte that is neither a patch nor a constant nor code has an arbitrary value at the
        start.

        Raises
        ------
        TilewrightError
            If the program does not suit the machine, or if the run fails; the next run works.
        """
        ...

    def close(self) -> None:
        """Give back what the machine holds; it runs nothing afterwards."""
        ...


class SimulatorMachine:
    """The cycle-exact simulator: runs programs of every configuration."""

    @property
    def description(self) -> str:
        """What it is, in one line."""
        return "the simulator"

    @property
    def config(self) -> None:
        """It runs programs of every configuration."""

    def check_registers(self) -> None:
        """It has none."""

    def run(
        self,
        program: Program,
        patches: Sequence[Patch],
        regions: Sequence[Region],
        progress: Progress | None = None,
    ) -> MachineRun:
        """Run a legal program once; see `Machine.run`."""
        check_places(program, patches, regions)
        dram = program.initial_dram()
        for patch in patches:
            dram[patch.address : patch.address + patch.data.size] = patch.data
        result = simulate(program, dram, progress=progress)
        return MachineRun(
            regions=tuple(
                result.dram[region.address : region.address + region.size_bytes].copy()
                for region in regions
            ),
            cycles=result.timeline.cycles,
            timeline=result.timeline,
        )

    def close(self) -> None:
        """Nothing is held."""


def check_places(program: Program, patches: Sequence[Patch], regions: Sequence[Region]) -> None:
    """Refuse patches and regions that do not lie within the DRAM of a program.

    Raises
    ------
    InputError
        Names the first one.
    """
    places = [("patch", patch.address, patch.data.size) for patch in patches]
    places += [("region", region.address, region.size_bytes) for region in regions]
    for what, address, size in places:
        if not 0 <= address <= address + size <= program.dram_bytes:
            raise InputError(
                f"the {what} of {size} bytes at {address:#x} does not lie within the program's"
                f" {program.dram_bytes} bytes of DRAM"
            )
