"""A program on the hardware and on the simulator, which must not differ in anything."""

import numpy as np

from tilewright.isa.memories import Memory
from tilewright.isa.program import Program
from tilewright.sim.rtl import run_rtl
from tilewright.sim.simulator import simulate


def run_on_both(program: Program, dram: np.ndarray) -> np.ndarray:
    """Return the memory after a run; cycles of all instructions and all memories must be equal."""
    hardware, simulation = run_rtl(program, dram), simulate(program, dram)
    for kind in ("dispatch", "start", "finish"):
        np.testing.assert_array_equal(
            getattr(hardware.timeline, kind), getattr(simulation.timeline, kind), kind
        )
    assert hardware.timeline.cycles == simulation.timeline.cycles
    np.testing.assert_array_equal(hardware.dram, simulation.dram)
    for memory in Memory:
        np.testing.assert_array_equal(
            hardware.scratchpads[memory], simulation.state.bytes[memory], memory.name
        )
    return hardware.dram
