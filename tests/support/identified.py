"""The accelerator with the identifiers of AXI, which bus models ask for and it does without."""

from typing import Any

from amaranth.back import verilog
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Flow, In, Out

from tilewright.hw.accelerator import Accelerator
from tilewright.hw.verilog import without_lint
from tilewright.isa.config import AcceleratorConfig

#: Module name, for Verilog.
TOP_NAME = "tilewright_identified"
ID_BITS = 1

_IDENTIFIERS = {
    "m_axi_fetch_arid": Out(ID_BITS),
    "m_axi_fetch_rid": In(ID_BITS),
    "m_axi_load_arid": Out(ID_BITS),
    "m_axi_load_rid": In(ID_BITS),
    "m_axi_store_awid": Out(ID_BITS),
    "m_axi_store_bid": In(ID_BITS),
}


class Identified(wiring.Component):
    """The ports of `Accelerator`, and identifiers of its AXI4 ports: 0, and ignored."""

    def __init__(self, config: AcceleratorConfig) -> None:
        self._inner = Accelerator(config)
        super().__init__(wiring.Signature({**self._inner.signature.members, **_IDENTIFIERS}))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = self._inner
        for name, member in self._inner.signature.members.items():
            outer: Any = getattr(self, name)
            inner: Any = getattr(self._inner, name)
            m.d.comb += outer.eq(inner) if member.flow is Flow.Out else inner.eq(outer)
        return m


def identified_verilog(config: AcceleratorConfig) -> str:
    """Write the accelerator with identifiers; ports are those of `Identified`, clk and rst."""
    text: str = verilog.convert(Identified(config), name=TOP_NAME, strip_internal_attrs=True)
    return without_lint(text)
