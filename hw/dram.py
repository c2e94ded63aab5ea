"""The external memory as a synthesizable test bench: ports with the timing of `DramModel`."""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from tilewright.hw.axi import ReadPort, WritePort
from tilewright.hw.component import Unit
from tilewright.hw.queue import Queue
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import ADDRESS_BITS

#: Width of the clocks that time answers: no answer is late by half their range.
_CLOCK_BITS = 20


class DramReadPort(Unit):
    """Answers read bursts in order.

    The first beat comes `read_latency_cycles` after the address or `read_gap_cycles` + 1 after the
    last beat before, whichever is later; beats follow in consecutive cycles. A beat is aligned,
    also where the address of its burst is not. Addresses are taken while fewer than `bursts` wait.

    Attributes
    ----------
    port
        The port of the accelerator.
    enable, address, data
        Synchronous memory: the data of an address comes in the next cycle.
    """

    def __init__(self, config: AcceleratorConfig, *, bursts: int) -> None:
        self._config = config
        self._bursts = bursts
        super().__init__(
            {
                "port": In(ReadPort(config.port_bits)),
                "enable": Out(1),
                "address": Out(ADDRESS_BITS),
                "data": In(config.port_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        config, dram = self._config, self._config.dram
        request = data.StructLayout(
            {"address": ADDRESS_BITS, "length": unsigned(8), "cycle": _CLOCK_BITS}
        )
        m.submodules.requests = requests = Queue(request, self._bursts)
        clock = Signal(_CLOCK_BITS)
        pause = Signal(range(dram.read_gap_cycles + 1))
        beats_left = Signal(9)
        following = Signal(ADDRESS_BITS)
        head = requests.read
        due = Signal()
        begin = Signal()
        last = Signal()
        # The memory is read one cycle before its beat, so times are those of the beat less one.
        m.d.sync += clock.eq(clock + 1)
        m.d.comb += [
            requests.write.valid.eq(self.port.ar.valid),
            self.port.ar.ready.eq(requests.write.ready),
            requests.write.payload.address.eq(self.port.ar.payload.address & -config.port_bytes),
            requests.write.payload.length.eq(self.port.ar.payload.length),
            requests.write.payload.cycle.eq(clock + dram.read_latency_cycles - 1),
            due.eq(~(clock - head.payload.cycle)[-1]),
            begin.eq(head.valid & due & (pause == 0) & (beats_left == 0)),
            head.ready.eq(begin),
            self.enable.eq(begin | (beats_left != 0)),
            self.address.eq(Mux(begin, head.payload.address, following)),
            last.eq(Mux(begin, head.payload.length == 0, beats_left == 1)),
            self.port.r.payload.data.eq(self.data),
        ]
        m.d.sync += [
            self.port.r.valid.eq(self.enable),
            self.port.r.payload.last.eq(last),
            following.eq(self.address + config.port_bytes),
        ]
        with m.If(begin):
            m.d.sync += beats_left.eq(head.payload.length)
        with m.Elif(beats_left != 0):
            m.d.sync += beats_left.eq(beats_left - 1)
        with m.If(self.enable & last):
            m.d.sync += pause.eq(dram.read_gap_cycles)
        with m.Elif(pause != 0):
            m.d.sync += pause.eq(pause - 1)
        return m


class DramWritePort(Unit):
    """Takes write bursts and answers each `write_latency_cycles` after its last beat.

    Attributes
    ----------
    port
        The port of the accelerator.
    enable, address, data
        Synchronous memory: the enabled bytes are written at the end of the cycle.
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self._config = config
        super().__init__(
            {
                "port": In(WritePort(config.port_bits)),
                "enable": Out(config.port_bytes),
                "address": Out(ADDRESS_BITS),
                "data": Out(config.port_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        bursts = self._config.store_bursts
        m.submodules.addresses = addresses = Queue(unsigned(ADDRESS_BITS), bursts + 1)
        m.submodules.responses = responses = Queue(unsigned(_CLOCK_BITS), bursts + 1)
        clock = Signal(_CLOCK_BITS)
        begun = Signal()
        following = Signal(ADDRESS_BITS)
        beat = self.port.w
        taken = Signal()
        m.d.sync += clock.eq(clock + 1)
        m.d.comb += [
            addresses.write.valid.eq(self.port.aw.valid),
            addresses.write.payload.eq(self.port.aw.payload.address),
            self.port.aw.ready.eq(addresses.write.ready),
            beat.ready.eq(begun | addresses.read.valid),
            taken.eq(beat.valid & beat.ready),
            addresses.read.ready.eq(taken & ~begun),
            self.address.eq(Mux(begun, following, addresses.read.payload)),
            self.enable.eq(Mux(taken, beat.payload.strobe, 0)),
            self.data.eq(beat.payload.data),
            responses.write.valid.eq(taken & beat.payload.last),
            responses.write.payload.eq(clock + self._config.dram.write_latency_cycles),
            self.port.b.valid.eq(responses.read.valid & (responses.read.payload == clock)),
            responses.read.ready.eq(self.port.b.valid),
        ]
        with m.If(taken):
            m.d.sync += [
                begun.eq(~beat.payload.last),
                following.eq(self.address + self._config.port_bytes),
            ]
        return m
