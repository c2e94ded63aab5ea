"""The accelerator on the bus models of cocotb, without and with stalls on every channel."""

from pathlib import Path

import pytest
from cocotb_build import run_bench, verilate
from cocotb_tools.runner import Runner
from identified import TOP_NAME, identified_verilog

from tilewright.isa.presets import TINY

_SECONDS = (
    "random_programs",
    "random_programs_with_stalls",
    "one_channel_after_the_other_hardly_moves",
    "network",
    "network_with_stalls",
)
_SLOW = ("demo_network", "demo_network_with_stalls")


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """The Verilated accelerator of the smallest machine."""
    return verilate(identified_verilog(TINY), TOP_NAME, tmp_path_factory.mktemp("cocotb"))


@pytest.mark.parametrize(
    "bench", [*_SECONDS, *(pytest.param(name, marks=pytest.mark.slow) for name in _SLOW)]
)
def test_bench(runner: Runner, bench: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)  # the simulator inherits the path
    run_bench(runner, module="cocotb_accelerator", top=TOP_NAME, bench=bench, folder=tmp_path)
