"""What the tests of hardware units share: running them in Amaranth's simulator."""

from collections.abc import Callable
from typing import Any

import pytest
from amaranth.hdl import Elaboratable
from amaranth.sim import Simulator

#: Runs test benches beside a unit until all of them have ended.
RunBenches = Callable[..., None]


@pytest.fixture
def run_benches() -> RunBenches:
    """A function of a unit and test benches, which are async functions of the context."""

    def run(unit: Elaboratable, *benches: Any) -> None:
        simulator = Simulator(unit)
        simulator.add_clock(1e-6)
        for bench in benches:
            simulator.add_testbench(bench)
        simulator.run()

    return run
