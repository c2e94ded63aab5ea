"""Signatures of the AXI4 ports of the accelerator, one stream per channel."""

from amaranth.hdl import unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.isa.instructions import ADDRESS_BITS

#: Width of AxLEN (AMBA AXI4, IHI 0022, A3.4.1): beats minus one.
LENGTH_BITS = 8
#: Width of a response; 0 is OKAY (AMBA AXI4, IHI 0022, A3.4.4).
RESPONSE_BITS = 2


def address_layout() -> data.StructLayout:
    """Payload of the channels AR and AW: the varying part; size and INCR are fixed."""
    return data.StructLayout({"address": unsigned(ADDRESS_BITS), "length": unsigned(LENGTH_BITS)})


class ReadPort(wiring.Signature):
    """An AXI4 read port seen from its manager; `r` is always ready, room is reserved before."""

    def __init__(self, port_bits: int) -> None:
        beat = data.StructLayout({"data": unsigned(port_bits), "last": unsigned(1)})
        super().__init__(
            {
                "ar": Out(stream.Signature(address_layout())),
                "r": In(stream.Signature(beat, always_ready=True)),
            }
        )


class WritePort(wiring.Signature):
    """An AXI4 write port seen from its manager; a beat on `b` is the response to a burst."""

    def __init__(self, port_bits: int) -> None:
        beat = data.StructLayout(
            {"data": unsigned(port_bits), "strobe": unsigned(port_bits // 8), "last": unsigned(1)}
        )
        super().__init__(
            {
                "aw": Out(stream.Signature(address_layout())),
                "w": Out(stream.Signature(beat)),
                "b": In(stream.Signature(unsigned(RESPONSE_BITS), always_ready=True)),
            }
        )
