"""The load engine: reads rows of DRAM ahead and writes them, with padding, into scratchpads."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.axi import ReadPort
from tilewright.hw.component import Unit
from tilewright.hw.layouts import instruction_layout
from tilewright.hw.load_writer import LoadWriter, WriteBus, loadable, task_layout
from tilewright.hw.pipeline import delayed
from tilewright.hw.queue import Queue
from tilewright.hw.row_bursts import RowBursts
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import EXTENT_BITS, Load
from tilewright.isa.memories import Engine, memory_shape
from tilewright.isa.timing import LOAD_START_CYCLES, LOADS_AHEAD

assert LOAD_START_CYCLES == 2, "as this pipeline is built"


class LoadEngine(Unit):
    """Executes `Load`: an address stage, a data buffer, and a write stage behind it.

    The address stage takes an instruction while fewer than LOADS_AHEAD are unwritten, and sends
    one burst per cycle while fewer than `load_bursts` are in flight or in the buffer.

    Attributes
    ----------
    instruction
        Instructions come in; one is started in the cycle of the handshake.
    finish, signal
        In the cycle in which an instruction finishes, and the engines it gives tokens to.
    active, busy
        The write stage has an instruction, or gets one; it makes a step, or has none yet.
    port
        The memory port.
    write
        What is written; see `LoadWriter`.
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self._config = config
        self._layout = instruction_layout(Load, config)
        super().__init__(
            {
                "instruction": In(stream.Signature(self._layout)),
                "finish": Out(1),
                "signal": Out(len(Engine)),
                "active": Out(1),
                "busy": Out(1),
                "port": Out(ReadPort(config.port_bits)),
                "write": Out(WriteBus(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        config = self._config
        largest = max(memory_shape(item, config).entry_bytes for item in loadable(config))
        row_bytes_bits = EXTENT_BITS + largest.bit_length()
        m.submodules.bursts = bursts = RowBursts(config, row_bytes_bits=row_bytes_bits)
        m.submodules.tasks = tasks = Queue(task_layout(config), LOADS_AHEAD)
        m.submodules.writer = writer = LoadWriter(config)
        wiring.connect(m, tasks.read, writer.task)
        wiring.connect(m, writer.write, wiring.flipped(self.write))
        started = self.instruction.valid & self.instruction.ready
        starting = started | delayed(m, started, 1, name="started")
        m.d.comb += [
            self.finish.eq(writer.finish),
            self.signal.eq(writer.signal),
            self.active.eq(tasks.read.valid | starting),
            self.busy.eq(writer.stepping | (starting & ~tasks.read.valid)),
        ]
        self._take(m, bursts, tasks, writer)
        self._send(m, bursts, writer)
        self._receive(m, writer)
        return m

    def _take(self, m: Module, bursts: RowBursts, tasks: Queue, writer: LoadWriter) -> None:
        """Start an instruction, and give the write stage its task one cycle later."""
        config = self._config
        payload = self.instruction.payload
        transfer = bursts.transfer.payload
        unwritten = Signal(range(LOADS_AHEAD + 1))
        room = unwritten != LOADS_AHEAD
        started = Signal()
        m.d.comb += [
            started.eq(self.instruction.valid & self.instruction.ready),
            bursts.transfer.valid.eq(self.instruction.valid & room),
            self.instruction.ready.eq(bursts.transfer.ready & room),
            *(
                transfer[name].eq(payload[name])
                for name in ("address", "rows", "planes", "row_stride", "plane_stride")
            ),
        ]
        with m.Switch(payload.memory):
            for item in loadable(config):
                with m.Case(item):
                    size = memory_shape(item, config).entry_bytes
                    m.d.comb += transfer.row_bytes.eq(payload.entries * size)
        m.d.sync += unwritten.eq(unwritten + started - writer.task_done)
        current: Any = Signal(self._layout)
        setting_up = Signal()
        m.d.sync += [current.eq(payload), setting_up.eq(started)]
        task = tasks.write.payload
        right = current.pad_left + current.entries
        bottom = current.pad_top + current.rows
        m.d.comb += [
            tasks.write.valid.eq(setting_up),
            *(task[name].eq(current[name]) for name in ("memory", "dst", "planes", "signal")),
            *(task[name].eq(current[name]) for name in ("pad_value", "row_stride", "plane_stride")),
            task.starts_at_left.eq((current.pad_left == 0) & (current.entries != 0)),
            task.starts_at_top.eq(current.pad_top == 0),
            task.left.eq(Mux(current.entries == 0, 0, current.pad_left)),
            task.right.eq(right),
            task.width.eq(right + current.pad_right),
            task.top.eq(current.pad_top),
            task.bottom.eq(bottom),
            task.height.eq(bottom + current.pad_bottom),
            task.position.eq(current.address),
        ]

    def _send(self, m: Module, bursts: RowBursts, writer: LoadWriter) -> None:
        """Send addresses while the buffer has room for their bursts."""
        in_flight = Signal(range(self._config.load_bursts + 1))
        sent = Signal()
        room = in_flight != self._config.load_bursts
        address = self.port.ar.payload
        m.d.comb += [
            self.port.ar.valid.eq(bursts.burst.valid & room),
            bursts.burst.ready.eq(self.port.ar.ready & room),
            address.address.eq(bursts.burst.payload.address),
            address.length.eq(bursts.burst.payload.length),
            sent.eq(self.port.ar.valid & self.port.ar.ready),
        ]
        m.d.sync += in_flight.eq(in_flight + sent - writer.take_burst)

    def _receive(self, m: Module, writer: LoadWriter) -> None:
        """Keep arriving beats until the write stage has used them."""
        beats = self._config.load_bursts * self._config.burst_beats
        buffer: Any = memory.Memory(shape=unsigned(self._config.port_bits), depth=beats, init=[])
        m.submodules.buffer = buffer
        write_port, read_port = buffer.write_port(), buffer.read_port()
        level = Signal(range(beats + 1))
        m.d.comb += [
            write_port.en.eq(self.port.r.valid),
            write_port.data.eq(self.port.r.payload.data),
            read_port.en.eq(writer.read),
            writer.present.eq(level != 0),
            writer.beat.eq(read_port.data),
        ]
        m.d.sync += level.eq(level + self.port.r.valid - writer.take_beat)
        for port, moves in ((write_port, self.port.r.valid), (read_port, writer.take_beat)):
            with m.If(moves):
                m.d.sync += port.addr.eq(Mux(port.addr == beats - 1, 0, port.addr + 1))
