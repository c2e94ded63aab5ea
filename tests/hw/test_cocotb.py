"""The accelerator on the bus models of cocotb, without and with stalls on every channel."""

import os
import shutil
from pathlib import Path

import pytest
from identified import TOP_NAME, identified_verilog

from tilewright.isa.presets import TINY
from tilewright.sim.rtl_build import ToolError, find_toolchain

pytest.importorskip("cocotbext.axi", reason="needs cocotb and cocotbext-axi")
from cocotb_tools.runner import Runner, get_runner
from find_libpython import find_libpython

_SECONDS = (
    "random_programs",
    "random_programs_with_stalls",
    "one_channel_after_the_other_hardly_moves",
    "network",
    "network_with_stalls",
)
_SLOW = ("demo_network", "demo_network_with_stalls")
_BUILD_ARGS = (
    "-Wno-fatal",
    "-Wno-WIDTH",
    "-Wno-CASEINCOMPLETE",
    "--no-timing",
    "--output-split",
    "20000",
    "-O3",
    # ports alone are visible: what is inside may be optimised
    "--no-public-flat-rw",
    "--public-depth",
    "1",
)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """The Verilated accelerator of the smallest machine."""
    try:
        tools = find_toolchain()
    except ToolError as error:
        pytest.skip(f"{error}: {error.hint}")
    for program in ("make", "perl"):
        if shutil.which(program) is None:
            pytest.skip(f"Verilator's own build needs {program}")
    if find_libpython() is None:
        pytest.skip("cocotb needs Python as a shared library, libpython3 on Debian")
    folder = tmp_path_factory.mktemp("cocotb")
    source = folder / "accelerator.v"
    source.write_text(identified_verilog(TINY), encoding="utf-8")
    runner = get_runner("verilator")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tools.verilator.parent}{os.pathsep}{os.environ['PATH']}")
        # the makefiles of the PyPI package do not know their compiler
        patch.setenv("MAKEFLAGS", f"CFG_CXXFLAGS_PCH_I=-include CXX={tools.compiler}")
        runner.build(
            sources=[source],
            hdl_toplevel=TOP_NAME,
            build_args=_BUILD_ARGS,
            build_dir=folder / "build",
            timescale=("1ns", "1ps"),
            log_file=folder / "build.log",
        )
    return runner


@pytest.mark.parametrize(
    "bench", [*_SECONDS, *(pytest.param(name, marks=pytest.mark.slow) for name in _SLOW)]
)
def test_bench(runner: Runner, bench: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)  # the simulator inherits the path
    runner.test(
        test_module="cocotb_accelerator",
        hdl_toplevel=TOP_NAME,
        hdl_toplevel_lang="verilog",
        testcase=bench,
        test_dir=tmp_path,
        # registers without a reset start with noise
        plusargs=["+verilator+rand+reset+2", "+verilator+seed+1"],
        results_xml=str(tmp_path / "results.xml"),
    )
