"""Verilog of the accelerator and of its test bench."""

from amaranth.back import verilog

from tilewright.hw.accelerator import Accelerator
from tilewright.hw.bench import BENCH_NAME, Bench
from tilewright.isa.config import AcceleratorConfig

#: Name of the module.
ACCELERATOR_NAME = "tilewright_accelerator"


def accelerator_verilog(config: AcceleratorConfig) -> str:
    """Write the accelerator; ports are those of `Accelerator`, and clk and rst."""
    text: str = verilog.convert(
        Accelerator(config), name=ACCELERATOR_NAME, strip_internal_attrs=True
    )
    return text


def bench_verilog(config: AcceleratorConfig) -> str:
    """Write the core beside its external memory; ports are those of `Bench`."""
    text: str = verilog.convert(Bench(config), name=BENCH_NAME, strip_internal_attrs=True)
    return text
