"""A serial line as streams of bytes: 8 data bits, no parity, one stop bit."""

from amaranth.hdl import Cat, Const, Module, Signal, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from tilewright.hw.component import Unit

#: Start bit, data, stop bit.
_FRAME_BITS = 10


class UartReceiver(Unit):
    """Gives out every byte that comes in with a stop bit; takes the line into the clock domain.

    Parameters
    ----------
    divisor
        Cycles per bit, at least 4.

    Attributes
    ----------
    line
        The serial line, high while idle.
    bytes
        Bytes; one that is not taken before the next one ends is lost.
    """

    def __init__(self, divisor: int) -> None:
        assert divisor >= 4, "a bit is sampled in its middle"
        self._divisor = divisor
        super().__init__({"line": In(1), "bytes": Out(stream.Signature(unsigned(8)))})

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        sampled = Signal(2, init=0b11)
        level = sampled[1]
        wait = Signal(range(self._divisor + self._divisor // 2))
        count = Signal(range(_FRAME_BITS))
        m.d.sync += sampled.eq(Cat(self.line, sampled[0]))
        with m.If(self.bytes.ready):
            m.d.sync += self.bytes.valid.eq(0)
        with m.FSM():
            with m.State("wait for start"):
                with m.If(~level):
                    # From the edge to the middle of the first data bit.
                    m.d.sync += [wait.eq(self._divisor + self._divisor // 2 - 1), count.eq(0)]
                    m.next = "take bits"
            with m.State("take bits"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    m.d.sync += [wait.eq(self._divisor - 1), count.eq(count + 1)]
                    with m.If(count == 8):
                        m.d.sync += self.bytes.valid.eq(level)
                        m.next = "wait for start"
                    with m.Else():
                        m.d.sync += self.bytes.payload.eq(Cat(self.bytes.payload[1:], level))
        return m


class UartTransmitter(Unit):
    """Sends bytes over a serial line.

    Parameters
    ----------
    divisor
        Cycles per bit.

    Attributes
    ----------
    bytes
        Bytes to be sent.
    line
        The serial line, high while idle.
    """

    def __init__(self, divisor: int) -> None:
        self._divisor = divisor
        super().__init__({"bytes": In(stream.Signature(unsigned(8))), "line": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        bits = Signal(_FRAME_BITS, init=~0)
        left = Signal(range(_FRAME_BITS + 1))
        wait = Signal(range(self._divisor))
        m.d.comb += [self.line.eq(bits[0]), self.bytes.ready.eq(left == 0)]
        with m.If(left == 0):
            with m.If(self.bytes.valid):
                frame = Cat(Const(0, 1), self.bytes.payload, Const(1, 1))
                m.d.sync += [bits.eq(frame), left.eq(_FRAME_BITS), wait.eq(self._divisor - 1)]
        with m.Elif(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.Else():
            following = Cat(bits[1:], Const(1, 1))
            m.d.sync += [bits.eq(following), left.eq(left - 1), wait.eq(self._divisor - 1)]
        return m
