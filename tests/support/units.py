"""The units of the accelerator side by side, each with its own ports, for benches of one unit."""

from typing import Any

from amaranth.back import verilog
from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Flow, In, Out

from tilewright.hw.axi_names import (
    connect_control,
    connect_read,
    connect_write,
    control_members,
    read_members,
    write_members,
)
from tilewright.hw.control import ControlRegisters
from tilewright.hw.fetch import Fetch
from tilewright.hw.gemm import GemmEngine
from tilewright.hw.load import LoadEngine
from tilewright.hw.store import StoreEngine
from tilewright.hw.vector import VectorEngine
from tilewright.hw.verilog import without_lint
from tilewright.isa.config import AcceleratorConfig

#: Module name, for Verilog.
TOP_NAME = "tilewright_units"
_IDENTIFIERS = {
    "m_axi_fetch_arid": Out(1),
    "m_axi_fetch_rid": In(1),
    "m_axi_load_arid": Out(1),
    "m_axi_load_rid": In(1),
    "m_axi_store_awid": Out(1),
    "m_axi_store_bid": In(1),
}


class Units(wiring.Component):
    """AXI ports by their usual names; any other port of a unit is called ``unit_path_of_port``."""

    def __init__(self, config: AcceleratorConfig) -> None:
        self._units: dict[str, Any] = {
            "fetch": Fetch(config),
            "load": LoadEngine(config),
            "gemm": GemmEngine(config),
            "vector": VectorEngine(config),
            "store": StoreEngine(config),
            "control": ControlRegisters(config),
        }
        #: Our name, direction, and the value inside.
        self._wires: list[tuple[str, Flow, Value]] = [
            ("_".join([name, *map(str, path)]), member.flow, Value.cast(value))
            for name, unit in self._units.items()
            for path, member, value in unit.signature.flatten(unit)
            if path[0] != "port"
        ]
        members = {
            **read_members("m_axi_fetch", config.port_bits),
            **read_members("m_axi_load", config.port_bits),
            **write_members("m_axi_store", config.port_bits),
            **control_members("s_axi_control"),
            **_IDENTIFIERS,
            **{name: wiring.Member(flow, len(value)) for name, flow, value in self._wires},
        }
        super().__init__(wiring.Signature(members))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name, unit in self._units.items():
            m.submodules[name] = unit
        for name, flow, value in self._wires:
            outer: Any = getattr(self, name)
            m.d.comb += outer.eq(value) if flow is Flow.Out else value.eq(outer)
        connect_read(m, self, "m_axi_fetch", self._units["fetch"].port)
        connect_read(m, self, "m_axi_load", self._units["load"].port)
        connect_write(m, self, "m_axi_store", self._units["store"].port)
        connect_control(m, self, "s_axi_control", self._units["control"].port)
        return m


def units_verilog(config: AcceleratorConfig) -> str:
    """Write the units; ports are those of `Units`, clk and rst."""
    text: str = verilog.convert(Units(config), name=TOP_NAME, strip_internal_attrs=True)
    return without_lint(text)
