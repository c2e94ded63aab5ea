"""Verilates a top for cocotb and runs benches on it, each as a test of its own."""

import os
import shutil
from pathlib import Path

import pytest

from tilewright.sim.rtl_build import ToolError, find_toolchain

pytest.importorskip("cocotbext.axi", reason="needs cocotb and cocotbext-axi")
from cocotb_tools.runner import Runner, get_runner
from find_libpython import find_libpython

_BUILD_ARGS = (
    "-Wno-fatal",
    "--no-timing",
    "--output-split",
    "20000",
    "-O3",
    # ports alone are visible: what is inside may be optimised
    "--no-public-flat-rw",
    "--public-depth",
    "1",
)


def verilate(text: str, top: str, folder: Path) -> Runner:
    """Build a simulation of Verilog; skips where a tool is missing."""
    try:
        tools = find_toolchain()
    except ToolError as error:
        pytest.skip(f"{error}: {error.hint}")
    for program in ("make", "perl"):
        if shutil.which(program) is None:
            pytest.skip(f"Verilator's own build needs {program}")
    if find_libpython() is None:
        pytest.skip("cocotb needs Python as a shared library, libpython3 on Debian")
    source = folder / f"{top}.v"
    source.write_text(text, encoding="utf-8")
    runner = get_runner("verilator")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tools.verilator.parent}{os.pathsep}{os.environ['PATH']}")
        # the makefiles of the PyPI package do not know their compiler
        patch.setenv("MAKEFLAGS", f"CFG_CXXFLAGS_PCH_I=-include CXX={tools.compiler}")
        runner.build(
            sources=[source],
            hdl_toplevel=top,
            build_args=_BUILD_ARGS,
            build_dir=folder / "build",
            timescale=("1ns", "1ps"),
            log_file=folder / "build.log",
        )
    return runner


def run_bench(runner: Runner, *, module: str, top: str, bench: str, folder: Path) -> None:
    """Run one bench of a module; the module must be on the path."""
    runner.test(
        test_module=module,
        hdl_toplevel=top,
        hdl_toplevel_lang="verilog",
        testcase=bench,
        test_dir=folder,
        # registers without a reset start with noise
        plusargs=["+verilator+rand+reset+2", "+verilator+seed+1"],
        results_xml=str(folder / "results.xml"),
    )
