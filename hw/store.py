"""The store engine: reads `out` and writes rows of DRAM."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.axi import WritePort
from tilewright.hw.component import Unit
from tilewright.hw.layouts import instruction_layout
from tilewright.hw.pipeline import delayed
from tilewright.hw.queue import Queue
from tilewright.hw.row_bursts import RowBursts
from tilewright.hw.scratchpad import ReadPort
from tilewright.isa.config import AcceleratorConfig, index_bits
from tilewright.isa.instructions import EXTENT_BITS, Store
from tilewright.isa.memories import Engine, Memory, memory_shape
from tilewright.isa.timing import STORE_DATA_CYCLES, STORE_START_CYCLES, cycles_per_entry

#: Entries of the queues before the channels AW and W.
_ADDRESS_ENTRIES = 2
_BEAT_ENTRIES = 4
assert (STORE_START_CYCLES, STORE_DATA_CYCLES) == (2, 2), "as this pipeline is built"


class StoreEngine(Unit):
    """Executes `Store`: one step per cycle, each of which reads `out`.

    A step is a beat, or an entry where a beat holds several. The first step of a burst pushes its
    address; a beat leaves STORE_DATA_CYCLES after the step that completes it. The engine pauses
    `write_gap_cycles` between bursts, which keeps its port within the share of the memory that the
    configuration grants it, and holds back when the port does.

    Attributes
    ----------
    instruction
        Instructions come in; one is started in the cycle of the handshake.
    finish, signal
        In the cycle in which an instruction finishes, and the engines it gives tokens to.
    active, busy
        An instruction has started and its last step has not been made; a step is made, or it has
        just started.
    out
        The scratchpad.
    port
        The memory port.
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self._config = config
        self._shape = memory_shape(Memory.OUT, config)
        self._layout = instruction_layout(Store, config)
        entry_bits = 8 * self._shape.entry_bytes
        super().__init__(
            {
                "instruction": In(stream.Signature(self._layout)),
                "finish": Out(1),
                "signal": Out(len(Engine)),
                "active": Out(1),
                "busy": Out(1),
                "out": Out(ReadPort(entries=config.out_entries, entry_bits=entry_bits)),
                "port": Out(WritePort(config.port_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        row_bytes_bits = EXTENT_BITS + self._shape.entry_bytes.bit_length()
        m.submodules.bursts = bursts = RowBursts(self._config, row_bytes_bits=row_bytes_bits)
        m.submodules.addresses = addresses = Queue(self.port.aw.payload.shape(), _ADDRESS_ENTRIES)
        m.submodules.beats = beats = Queue(self.port.w.payload.shape(), _BEAT_ENTRIES)
        response = data.StructLayout({"finishes": 1, "signal": len(Engine)})
        m.submodules.responses = responses = Queue(response, self._config.store_bursts)
        wiring.connect(m, addresses.read, wiring.flipped(self.port.aw))
        wiring.connect(m, beats.read, wiring.flipped(self.port.w))
        current: Any = Signal(self._layout)
        burst = bursts.burst.payload
        step: Any = Signal(data.StructLayout({"valid": 1, "first": 1, "ends_burst": 1}))
        within_burst = Signal()
        pause = Signal(range(self._config.dram.write_gap_cycles + 1))
        started = self.instruction.valid & self.instruction.ready
        setting_up = delayed(m, started, 1, name="started")
        m.d.comb += [
            step.valid.eq(
                bursts.burst.valid
                & (beats.level <= _BEAT_ENTRIES - 2)
                & (~step.first | (addresses.write.ready & responses.write.ready & (pause == 0)))
            ),
            step.first.eq(~within_burst),
            bursts.burst.ready.eq(step.valid & step.ends_burst),
            addresses.write.valid.eq(step.valid & step.first),
            addresses.write.payload.address.eq(burst.address),
            addresses.write.payload.length.eq(burst.length),
            responses.write.valid.eq(step.valid & step.first),
            responses.write.payload.finishes.eq(burst.ends_transfer),
            responses.write.payload.signal.eq(current.signal),
            responses.read.ready.eq(self.port.b.valid),
            self.finish.eq(self.port.b.valid & responses.read.payload.finishes),
            self.signal.eq(responses.read.payload.signal),
            self.active.eq(~bursts.transfer.ready | started),
            self.busy.eq(step.valid | started | setting_up),
        ]
        with m.If(step.valid):
            m.d.sync += within_burst.eq(~step.ends_burst)
        with m.If(step.valid & step.ends_burst):
            m.d.sync += pause.eq(self._config.dram.write_gap_cycles)
        with m.Elif(pause != 0):
            m.d.sync += pause.eq(pause - 1)
        self._take(m, bursts, current)
        self._read(m, beats, current, burst, step, setting_up)
        return m

    def _take(self, m: Module, bursts: RowBursts, current: Any) -> None:
        """Start an instruction."""
        payload = self.instruction.payload
        transfer = bursts.transfer.payload
        m.d.comb += [
            bursts.transfer.valid.eq(self.instruction.valid),
            self.instruction.ready.eq(bursts.transfer.ready),
            transfer.row_bytes.eq(payload.entries * self._shape.entry_bytes),
            *(
                transfer[name].eq(payload[name])
                for name in ("address", "rows", "planes", "row_stride", "plane_stride")
            ),
        ]
        # Whether an instruction starts is known late, and what is kept without one does no harm.
        with m.If(self.instruction.ready):
            m.d.sync += [current.eq(payload), self.out.address.eq(payload.src)]

    def _read(
        self, m: Module, beats: Queue, current: Any, burst: Any, step: Any, setting_up: Value
    ) -> None:
        """Read `out` in every step and put entries, or parts of one, into beats."""
        parts, per_beat = cycles_per_entry(Memory.OUT, self._config)
        part = Signal(index_bits(parts))
        entries_left = Signal(EXTENT_BITS)
        last_entry = Signal()
        beats_done = Signal.like(burst.length)
        offset_before = Signal.like(burst.offset)
        offset = Signal.like(burst.offset)
        ends_entry, ends_row, ends_beat = Signal(), Signal(), Signal()
        step_bytes = min(self._shape.entry_bytes, self._config.port_bytes)
        last_offset = self._config.port_bytes - step_bytes
        m.d.comb += [
            self.out.enable.eq(step.valid),
            offset.eq(Mux(step.first, burst.offset, offset_before)),
            ends_entry.eq(part == parts - 1),
            ends_row.eq(ends_entry & last_entry),
            ends_beat.eq((offset == last_offset) | ends_row if per_beat > 1 else 1),
            step.ends_burst.eq(ends_beat & (beats_done == burst.length)),
        ]
        with m.If(step.valid):
            m.d.sync += [
                offset_before.eq(offset + step_bytes),
                part.eq(Mux(ends_entry, 0, part + 1)),
                self.out.address.eq(self.out.address + ends_entry),
                beats_done.eq(Mux(step.ends_burst, 0, beats_done + ends_beat)),
            ]
        with m.If(setting_up | (step.valid & ends_row)):
            m.d.sync += [entries_left.eq(current.entries), last_entry.eq(current.entries == 1)]
        with m.Elif(step.valid & ends_entry):
            m.d.sync += [entries_left.eq(entries_left - 1), last_entry.eq(entries_left == 2)]
        completes = delayed(m, step.valid & ends_beat, 1, name="completes")
        beat = beats.write.payload
        m.d.comb += [
            beats.write.valid.eq(completes),
            beat.last.eq(delayed(m, step.ends_burst, 1, name="last")),
        ]
        if per_beat == 1:
            number = delayed(m, part, 1, name="part")
            words = self.out.data.word_select(number, self._config.port_bits)
            m.d.comb += [beat.data.eq(words), beat.strobe.eq(-1)]
        else:
            reads = delayed(m, step.valid, 1, name="reads")
            self._assemble(m, beat, reads, completes, delayed(m, offset, 1, name="offset"))

    def _assemble(
        self, m: Module, beat: Any, reads: Value, completes: Value, offset: Value
    ) -> None:
        """Collect the entries of a beat at their bytes."""
        held = Signal.like(beat.data)
        held_strobe = Signal.like(beat.strobe)
        size = self._shape.entry_bytes
        m.d.comb += [beat.data.eq(held), beat.strobe.eq(held_strobe)]
        for begin in range(0, self._config.port_bytes, size):
            with m.If(offset == begin):
                m.d.comb += [
                    beat.data[8 * begin : 8 * (begin + size)].eq(self.out.data),
                    beat.strobe[begin : begin + size].eq(-1),
                ]
        with m.If(completes):
            m.d.sync += held_strobe.eq(0)
        with m.Elif(reads):
            m.d.sync += [held.eq(beat.data), held_strobe.eq(beat.strobe)]
