"""The bridge from a processor's AXI3 or AXI4 port to the registers, one word at a time."""

from dataclasses import dataclass

from amaranth.hdl import Module, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.component import Unit
from tilewright.isa.registers import REGISTER_BITS, REGISTER_BYTES

#: Width of an address within the accelerator's registers and those of its ports.
SPACE_BITS = 13


class WordPort(wiring.Signature):
    """AXI4-Lite without responses and strobes, seen from its manager, a stream per channel."""

    def __init__(self) -> None:
        word, address = unsigned(REGISTER_BITS), unsigned(SPACE_BITS)
        super().__init__(
            {
                "aw": Out(stream.Signature(address)),
                "w": Out(stream.Signature(word)),
                "b": In(stream.Signature(unsigned(0))),
                "ar": Out(stream.Signature(address)),
                "r": In(stream.Signature(word)),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerPort:
    """Widths of a processor's AXI3 or AXI4 manager port."""

    address_bits: int
    data_bits: int
    id_bits: int
    #: Width of AxLEN: 4 on AXI3, 8 on AXI4.
    length_bits: int


class FullPort(wiring.Signature):
    """A processor's port seen from its manager, without the signals that the bridge ignores.

    Bursts are taken to be INCR with beats of a register: what loads and stores of device memory
    are.
    """

    def __init__(self, shape: ManagerPort) -> None:
        address = data.StructLayout(
            {"address": shape.address_bits, "id": shape.id_bits, "length": shape.length_bits}
        )
        write = data.StructLayout(
            {"data": shape.data_bits, "strobe": shape.data_bits // 8, "last": 1}
        )
        read = data.StructLayout({"data": shape.data_bits, "id": shape.id_bits, "last": 1})
        super().__init__(
            {
                "aw": Out(stream.Signature(address)),
                "w": Out(stream.Signature(write)),
                "b": In(stream.Signature(data.StructLayout({"id": shape.id_bits}))),
                "ar": Out(stream.Signature(address)),
                "r": In(stream.Signature(read)),
            }
        )


class WordBridge(Unit):
    """Turns the bursts of a processor's port into single words, one burst at a time.

    On a port wider than a register, a word is on the lanes of its address where the processor uses
    the whole width, and on the lowest lanes where it was set to 32 bits: a read shows the word on
    all lanes, a write takes the lanes that are enabled.

    Attributes
    ----------
    full
        The processor's port.
    words
        The registers' port.
    """

    def __init__(self, shape: ManagerPort) -> None:
        self._shape = shape
        super().__init__({"full": In(FullPort(shape)), "words": Out(WordPort())})

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        self._write(m)
        self._read(m)
        return m

    def _word(self) -> Value:
        """The word on the lanes that are enabled."""
        payload = self.full.w.payload
        word: Value | int = 0
        for lane in range(self._shape.data_bits // REGISTER_BITS):
            enabled = payload.strobe.word_select(lane, REGISTER_BYTES).any()
            part = payload.data.word_select(lane, REGISTER_BITS)
            word |= part & enabled.replicate(REGISTER_BITS)
        return Value.cast(word)

    def _write(self, m: Module) -> None:
        full, words = self.full, self.words
        identity = Signal(self._shape.id_bits)
        address = Signal(SPACE_BITS)
        last = Signal()
        address_sent, word_sent = Signal(), Signal()
        m.d.comb += [
            full.b.payload.id.eq(identity),
            words.aw.payload.eq(address),
            words.w.payload.eq(self._word()),
        ]
        with m.FSM(name="write"):
            with m.State("take address"):
                m.d.comb += full.aw.ready.eq(1)
                m.d.sync += [
                    identity.eq(full.aw.payload.id),
                    address.eq(full.aw.payload.address),
                ]
                with m.If(full.aw.valid):
                    m.next = "send word"
            with m.State("send word"):
                m.d.comb += [
                    words.aw.valid.eq(full.w.valid & ~address_sent),
                    words.w.valid.eq(full.w.valid & ~word_sent),
                    full.w.ready.eq((address_sent | words.aw.ready) & (word_sent | words.w.ready)),
                ]
                m.d.sync += [
                    address_sent.eq(address_sent | (words.aw.valid & words.aw.ready)),
                    word_sent.eq(word_sent | (words.w.valid & words.w.ready)),
                ]
                with m.If(full.w.valid & full.w.ready):
                    m.d.sync += [
                        address_sent.eq(0),
                        word_sent.eq(0),
                        last.eq(full.w.payload.last),
                    ]
                    m.next = "take response"
            with m.State("take response"):
                m.d.comb += words.b.ready.eq(1)
                with m.If(words.b.valid):
                    m.d.sync += address.eq(address + REGISTER_BYTES)
                    with m.If(last):
                        m.next = "respond"
                    with m.Else():
                        m.next = "send word"
            with m.State("respond"):
                m.d.comb += full.b.valid.eq(1)
                with m.If(full.b.ready):
                    m.next = "take address"

    def _read(self, m: Module) -> None:
        full, words, shape = self.full, self.words, self._shape
        identity = Signal(shape.id_bits)
        address = Signal(SPACE_BITS)
        beats_left = Signal(shape.length_bits)
        lanes = shape.data_bits // REGISTER_BITS
        m.d.comb += [
            full.r.payload.id.eq(identity),
            full.r.payload.data.eq(words.r.payload.replicate(lanes)),
            full.r.payload.last.eq(beats_left == 0),
            words.ar.payload.eq(address),
        ]
        with m.FSM(name="read"):
            with m.State("take address"):
                m.d.comb += full.ar.ready.eq(1)
                m.d.sync += [
                    identity.eq(full.ar.payload.id),
                    address.eq(full.ar.payload.address),
                    beats_left.eq(full.ar.payload.length),
                ]
                with m.If(full.ar.valid):
                    m.next = "ask"
            with m.State("ask"):
                m.d.comb += words.ar.valid.eq(1)
                with m.If(words.ar.ready):
                    m.next = "answer"
            with m.State("answer"):
                m.d.comb += [full.r.valid.eq(words.r.valid), words.r.ready.eq(full.r.ready)]
                with m.If(words.r.valid & full.r.ready):
                    m.d.sync += [
                        address.eq(address + REGISTER_BYTES),
                        beats_left.eq(beats_left - 1),
                    ]
                    with m.If(beats_left == 0):
                        m.next = "take address"
                    with m.Else():
                        m.next = "ask"
