"""A first-in first-out queue whose entries can be read in the cycle after they were written."""

from typing import Any

from amaranth.hdl import Module, Mux, ShapeLike, Signal
from amaranth.lib import memory, stream
from amaranth.lib.wiring import In, Out

from tilewright.hw.component import Unit


class Queue(Unit):
    """Queue of `depth` entries in distributed memory, the first of them in a register as well.

    `level` counts the entries; both handshakes and what is read depend on registers only.

    Attributes
    ----------
    write
        Entries come in; ready while there is room.
    read
        Entries go out; valid from the cycle after the write.
    level
        Number of entries.
    """

    def __init__(self, shape: ShapeLike, depth: int) -> None:
        self._shape = shape
        self._depth = depth
        super().__init__(
            {
                "write": In(stream.Signature(shape)),
                "read": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        # Not one entry alone: Verilog has no addresses of no bits.
        slots = max(2, self._depth)
        storage: Any = memory.Memory(shape=self._shape, depth=slots, init=[])
        m.submodules.storage = storage
        write_port = storage.write_port()
        read_port = storage.read_port(domain="comb")
        tail = Signal(range(slots))
        second = Signal(range(slots), init=1 % self._depth)
        first = Signal(self._shape, reset_less=True)
        written = Signal()
        taken = Signal()
        m.d.comb += [
            self.write.ready.eq(self.level != self._depth),
            self.read.valid.eq(self.level != 0),
            written.eq(self.write.valid & self.write.ready),
            taken.eq(self.read.valid & self.read.ready),
            write_port.en.eq(written),
            write_port.addr.eq(tail),
            write_port.data.eq(self.write.payload),
            read_port.addr.eq(second),
            self.read.payload.eq(first),
        ]
        m.d.sync += self.level.eq(self.level + written - taken)
        with m.If(written):
            m.d.sync += tail.eq(Mux(tail == self._depth - 1, 0, tail + 1))
        with m.If(taken):
            m.d.sync += second.eq(Mux(second == self._depth - 1, 0, second + 1))
        # Whether an entry is taken is known late, so it decides only whether the first one changes;
        # what comes without an entry does no harm.
        with m.If(taken | (self.level == 0)):
            m.d.sync += first.eq(Mux(self.level < 2, self.write.payload, read_port.data))
        return m
