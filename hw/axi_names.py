"""AXI ports under the flat names that tools and bus models know, and their wires to the streams."""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib.wiring import In, Out

from tilewright.hw.axi import LENGTH_BITS, RESPONSE_BITS
from tilewright.isa.instructions import ADDRESS_BITS
from tilewright.isa.registers import REGISTER_ADDRESS_BITS, REGISTER_BITS, REGISTER_BYTES

#: AxBURST of an incrementing burst (AMBA AXI4, IHI 0022, A3.4.1).
_INCREMENTING = 1
_SIZE_BITS = 3
_BURST_BITS = 2


def _address_members(prefix: str, channel: str) -> dict[str, Any]:
    return {
        f"{prefix}_{channel}valid": Out(1),
        f"{prefix}_{channel}ready": In(1),
        f"{prefix}_{channel}addr": Out(ADDRESS_BITS),
        f"{prefix}_{channel}len": Out(LENGTH_BITS),
        f"{prefix}_{channel}size": Out(_SIZE_BITS),
        f"{prefix}_{channel}burst": Out(_BURST_BITS),
    }


def read_members(prefix: str, port_bits: int) -> dict[str, Any]:
    """Ports of an AXI4 read manager by their usual names."""
    return {
        **_address_members(prefix, "ar"),
        f"{prefix}_rvalid": In(1),
        f"{prefix}_rready": Out(1),
        f"{prefix}_rdata": In(port_bits),
        f"{prefix}_rresp": In(RESPONSE_BITS),
        f"{prefix}_rlast": In(1),
    }


def write_members(prefix: str, port_bits: int) -> dict[str, Any]:
    """Ports of an AXI4 write manager by their usual names."""
    return {
        **_address_members(prefix, "aw"),
        f"{prefix}_wvalid": Out(1),
        f"{prefix}_wready": In(1),
        f"{prefix}_wdata": Out(port_bits),
        f"{prefix}_wstrb": Out(port_bits // 8),
        f"{prefix}_wlast": Out(1),
        f"{prefix}_bvalid": In(1),
        f"{prefix}_bready": Out(1),
        f"{prefix}_bresp": In(RESPONSE_BITS),
    }


def control_members(prefix: str) -> dict[str, Any]:
    """Ports of an AXI4-Lite subordinate by their usual names."""
    return {
        f"{prefix}_awvalid": In(1),
        f"{prefix}_awready": Out(1),
        f"{prefix}_awaddr": In(REGISTER_ADDRESS_BITS),
        f"{prefix}_wvalid": In(1),
        f"{prefix}_wready": Out(1),
        f"{prefix}_wdata": In(REGISTER_BITS),
        f"{prefix}_wstrb": In(REGISTER_BYTES),
        f"{prefix}_bvalid": Out(1),
        f"{prefix}_bready": In(1),
        f"{prefix}_bresp": Out(RESPONSE_BITS),
        f"{prefix}_arvalid": In(1),
        f"{prefix}_arready": Out(1),
        f"{prefix}_araddr": In(REGISTER_ADDRESS_BITS),
        f"{prefix}_rvalid": Out(1),
        f"{prefix}_rready": In(1),
        f"{prefix}_rdata": Out(REGISTER_BITS),
        f"{prefix}_rresp": Out(RESPONSE_BITS),
    }


def connect_control(m: Module, unit: Any, prefix: str, port: Any) -> None:
    """Wire a control port inside a unit to its ports of these names."""
    for channel, payload in (("aw", "awaddr"), ("ar", "araddr"), ("w", "wdata")):
        ours, theirs = f"{prefix}_{channel}", getattr(port, channel)
        target = theirs.payload.data if channel == "w" else theirs.payload
        m.d.comb += [
            theirs.valid.eq(getattr(unit, f"{ours}valid")),
            getattr(unit, f"{ours}ready").eq(theirs.ready),
            target.eq(getattr(unit, f"{prefix}_{payload}")),
        ]
    for channel in ("b", "r"):
        ours, theirs = f"{prefix}_{channel}", getattr(port, channel)
        m.d.comb += [
            getattr(unit, f"{ours}valid").eq(theirs.valid),
            theirs.ready.eq(getattr(unit, f"{ours}ready")),
        ]
    m.d.comb += [
        port.w.payload.strobe.eq(getattr(unit, f"{prefix}_wstrb")),
        getattr(unit, f"{prefix}_rdata").eq(port.r.payload),
    ]


def _connect_address(m: Module, unit: Any, prefix: str, channel: Any, port_bits: int) -> None:
    size = (port_bits // 8 - 1).bit_length()
    m.d.comb += [
        getattr(unit, f"{prefix}valid").eq(channel.valid),
        channel.ready.eq(getattr(unit, f"{prefix}ready")),
        getattr(unit, f"{prefix}addr").eq(channel.payload.address),
        getattr(unit, f"{prefix}len").eq(channel.payload.length),
        getattr(unit, f"{prefix}size").eq(size),
        getattr(unit, f"{prefix}burst").eq(_INCREMENTING),
    ]


def connect_read(m: Module, unit: Any, prefix: str, port: Any) -> None:
    """Wire a read port inside a unit to its ports of these names."""
    _connect_address(m, unit, f"{prefix}_ar", port.ar, len(port.r.payload.data))
    m.d.comb += [
        port.r.valid.eq(getattr(unit, f"{prefix}_rvalid")),
        port.r.payload.data.eq(getattr(unit, f"{prefix}_rdata")),
        port.r.payload.last.eq(getattr(unit, f"{prefix}_rlast")),
        getattr(unit, f"{prefix}_rready").eq(1),
    ]


def connect_write(m: Module, unit: Any, prefix: str, port: Any) -> None:
    """Wire a write port inside a unit to its ports of these names."""
    _connect_address(m, unit, f"{prefix}_aw", port.aw, len(port.w.payload.data))
    m.d.comb += [
        getattr(unit, f"{prefix}_wvalid").eq(port.w.valid),
        port.w.ready.eq(getattr(unit, f"{prefix}_wready")),
        getattr(unit, f"{prefix}_wdata").eq(port.w.payload.data),
        getattr(unit, f"{prefix}_wstrb").eq(port.w.payload.strobe),
        getattr(unit, f"{prefix}_wlast").eq(port.w.payload.last),
        port.b.valid.eq(getattr(unit, f"{prefix}_bvalid")),
        port.b.payload.eq(getattr(unit, f"{prefix}_bresp")),
        getattr(unit, f"{prefix}_bready").eq(1),
    ]
