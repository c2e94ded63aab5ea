"""Verilog of the accelerator and of its test bench."""

from amaranth.back import verilog

from tilewright.hw.bench import Bench
from tilewright.isa.config import AcceleratorConfig

#: Module name of the test bench.
BENCH_NAME = "tilewright_bench"


def bench_verilog(config: AcceleratorConfig) -> str:
    """Write the core beside its external memory; ports are those of `Bench`, and clk and rst."""
    return _convert(Bench(config), BENCH_NAME)


def _convert(component: Bench, name: str) -> str:
    text: str = verilog.convert(component, name=name, strip_internal_attrs=True)
    return text
