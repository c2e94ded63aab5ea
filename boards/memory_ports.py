"""Between the accelerator's memory ports and a board's memory: base address and errors."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from tilewright.boards.axi_lite import WordPort
from tilewright.hw.axi import LENGTH_BITS
from tilewright.hw.component import Unit
from tilewright.hw.queue import Queue
from tilewright.isa.instructions import ADDRESS_BITS
from tilewright.isa.port_registers import PORT_REGISTERS_OFFSET, PortRegister
from tilewright.isa.registers import REGISTER_BITS

#: Addresses that are on their way to a port.
_ADDRESS_ENTRIES = 2


class AddressStage(Unit):
    """Adds the base to the addresses of a channel; they leave a cycle later at the earliest.

    Attributes
    ----------
    base
        Physical address of byte 0; kept while addresses pass.
    valid, ready, address, length
        The accelerator's side.
    physical_valid, physical_ready, physical_address, physical_length
        The memory's side.
    """

    def __init__(self, address_bits: int) -> None:
        self._layout = data.StructLayout({"address": address_bits, "length": LENGTH_BITS})
        super().__init__(
            {
                "base": In(2 * REGISTER_BITS),
                "valid": In(1),
                "ready": Out(1),
                "address": In(ADDRESS_BITS),
                "length": In(LENGTH_BITS),
                "physical_valid": Out(1),
                "physical_ready": In(1),
                "physical_address": Out(address_bits),
                "physical_length": Out(LENGTH_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        m.submodules.queue = queue = Queue(self._layout, _ADDRESS_ENTRIES)
        m.d.comb += [
            queue.write.valid.eq(self.valid),
            self.ready.eq(queue.write.ready),
            queue.write.payload.address.eq(self.base + self.address),
            queue.write.payload.length.eq(self.length),
            self.physical_valid.eq(queue.read.valid),
            queue.read.ready.eq(self.physical_ready),
            self.physical_address.eq(queue.read.payload.address),
            self.physical_length.eq(queue.read.payload.length),
        ]
        return m


class PortRegisters(Unit):
    """Holds `isa.port_registers`.

    Attributes
    ----------
    words
        Port of the host; addresses begin at `PORT_REGISTERS_OFFSET`.
    base
        What the host has written.
    refused
        Accesses that the memory refuses in this cycle, one bit each.
    """

    def __init__(self, sources: int) -> None:
        super().__init__(
            {
                "words": In(WordPort()),
                "base": Out(2 * REGISTER_BITS),
                "refused": In(sources),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        words = self.words
        low, high, count = (Signal(REGISTER_BITS) for _ in range(3))
        happened = Signal()
        taken = Signal()
        m.d.comb += [
            self.base.eq(Cat(low, high)),
            taken.eq(words.aw.valid & words.w.valid & ~words.b.valid),
            words.aw.ready.eq(taken),
            words.w.ready.eq(taken),
            words.ar.ready.eq(~words.r.valid),
        ]
        m.d.sync += happened.eq(self.refused.any())
        with m.If(happened & ~count.all()):
            m.d.sync += count.eq(count + 1)
        with m.If(taken):
            m.d.sync += words.b.valid.eq(1)
            with m.Switch(words.aw.payload):
                with m.Case(PORT_REGISTERS_OFFSET + PortRegister.BASE_LOW):
                    m.d.sync += low.eq(words.w.payload)
                with m.Case(PORT_REGISTERS_OFFSET + PortRegister.BASE_HIGH):
                    m.d.sync += high.eq(words.w.payload)
                with m.Case(PORT_REGISTERS_OFFSET + PortRegister.REFUSED):
                    m.d.sync += count.eq(0)
        with m.Elif(words.b.ready):
            m.d.sync += words.b.valid.eq(0)
        with m.If(words.ar.valid & words.ar.ready):
            m.d.sync += [words.r.valid.eq(1), words.r.payload.eq(0)]
            with m.Switch(words.ar.payload):
                for register, value in (
                    (PortRegister.BASE_LOW, low),
                    (PortRegister.BASE_HIGH, high),
                    (PortRegister.REFUSED, count),
                ):
                    with m.Case(PORT_REGISTERS_OFFSET + register):
                        m.d.sync += words.r.payload.eq(value)
        with m.Elif(words.r.ready):
            m.d.sync += words.r.valid.eq(0)
        return m
