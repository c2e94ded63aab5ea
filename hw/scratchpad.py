"""On-chip memories with one read and one write port, and the signatures of these ports."""

from typing import Any

from amaranth.hdl import Module, unsigned
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.component import Unit
from tilewright.isa.config import index_bits


class ReadPort(wiring.Signature):
    """Port that reads an entry; the data of an address comes one cycle later."""

    def __init__(self, *, entries: int, entry_bits: int) -> None:
        super().__init__(
            {
                "enable": Out(1),
                "address": Out(index_bits(entries)),
                "data": In(entry_bits),
            }
        )


class WritePort(wiring.Signature):
    """Port that writes the enabled lanes of an entry."""

    def __init__(self, *, entries: int, lanes: int, lane_bits: int) -> None:
        super().__init__(
            {
                "enable": Out(lanes),
                "address": Out(index_bits(entries)),
                "data": Out(lanes * lane_bits),
            }
        )


class Scratchpad(Unit):
    """Memory of `entries` entries of `lanes` lanes, which are written one by one or together.

    The ports do not forward: a read in the cycle of a write to the same entry returns anything, so
    that every block memory fits. Nothing relies on read data before the first read.

    Attributes
    ----------
    read, write
        The ports.
    """

    def __init__(self, *, entries: int, lanes: int = 1, lane_bits: int) -> None:
        self.entries = entries
        self.lanes = lanes
        self.lane_bits = lane_bits
        read = ReadPort(entries=entries, entry_bits=lanes * lane_bits)
        write = WritePort(entries=entries, lanes=lanes, lane_bits=lane_bits)
        super().__init__({"read": In(read), "write": In(write)})

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        storage: Any = memory.Memory(
            shape=unsigned(self.lanes * self.lane_bits), depth=self.entries, init=[]
        )
        m.submodules.storage = storage
        write_port = storage.write_port(granularity=self.lane_bits if self.lanes > 1 else None)
        m.d.comb += [
            write_port.en.eq(self.write.enable),
            write_port.addr.eq(self.write.address),
            write_port.data.eq(self.write.data),
        ]
        read_port = storage.read_port()
        m.d.comb += [
            read_port.en.eq(self.read.enable),
            read_port.addr.eq(self.read.address),
            self.read.data.eq(read_port.data),
        ]
        return m
