"""The cycle-exact simulator: what a program does to DRAM, and in which cycles."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import InputError
from tilewright.isa.program import Program, check_config
from tilewright.isa.semantics import MachineState, execute
from tilewright.sim.clockwork import simulate_timing
from tilewright.sim.timeline import Timeline

#: Called now and then with the instructions executed so far and their total.
Progress: TypeAlias = Callable[[int, int], None]

#: Instructions between two calls of a progress function.
_PROGRESS_STEP = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulationResult:
    """What a run left behind."""

    timeline: Timeline
    #: State of the machine at the end.
    state: MachineState

    @property
    def dram(self) -> npt.NDArray[np.uint8]:
        """Contents of DRAM at the end."""
        return self.state.dram


def simulate(
    program: Program,
    dram: npt.NDArray[np.uint8],
    *,
    config: AcceleratorConfig | None = None,
    progress: Progress | None = None,
) -> SimulationResult:
    """Run a program with data.

    Parameters
    ----------
    program
        A legal program: one that `tilewright.isa.validator` accepts.
    dram
        Contents of DRAM at the start, uint8, `program.dram_bytes` long: `program.initial_dram()`
        with the inputs written into it. It is not changed.
    config
        The machine to run on, where it may be another one than the program was made for.
    progress
        Called with the number of instructions executed and their total. What it raises ends the
        run.

    Raises
    ------
    ConfigError
        If the program was made for another configuration than `config`.
    DeadlockError
        If no engine can make progress.
    InputError
        If `dram` does not fit the program.
    """
    if config is not None:
        check_config(program, config)
    if dram.dtype != np.uint8 or dram.shape != (program.dram_bytes,):
        raise InputError(
            f"dram must be {program.dram_bytes} values of uint8,"
            f" not {dram.dtype} of shape {dram.shape}"
        )
    timeline = simulate_timing(program)
    state = MachineState(program.config, dram.copy())
    order = execution_order(timeline)
    total = len(order)
    for done, position in enumerate(order):
        if progress is not None and done % _PROGRESS_STEP == 0:
            progress(done, total)
        execute(program.instructions[position], state)
    if progress is not None:
        progress(total, total)
    return SimulationResult(timeline=timeline, state=state)


def execution_order(timeline: Timeline) -> list[int]:
    """Order instructions by their start, equal starts by engine.

    In a legal program an instruction that needs the effect of another one starts after that one
    has finished, so this order gives every instruction what it finds in the machine.
    """
    order: list[int] = np.lexsort((timeline.engine, timeline.start)).tolist()
    return order
