"""Each unit on the bus models of cocotb, without and with stalls and back pressure."""

from pathlib import Path

import pytest
from cocotb_build import run_bench, verilate
from cocotb_tools.runner import Runner
from units import TOP_NAME, units_verilog

from tilewright.isa.presets import TINY

_UNITS = ("fetch", "load", "gemm", "vector", "store", "control")
_MANY = ("load", "gemm", "vector", "store")


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """All units of the smallest machine, side by side in one top."""
    return verilate(units_verilog(TINY), TOP_NAME, tmp_path_factory.mktemp("cocotb_units"))


@pytest.mark.parametrize(
    "bench",
    [
        *(f"{unit}{stalls}" for unit in _UNITS for stalls in ("", "_with_stalls")),
        "fetch_held_back",
        "gemm_returns",
        *(pytest.param(f"{unit}_many", marks=pytest.mark.slow) for unit in _MANY),
    ],
)
def test_bench(runner: Runner, bench: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)  # the simulator inherits the path
    run_bench(runner, module="cocotb_units", top=TOP_NAME, bench=bench, folder=tmp_path)
