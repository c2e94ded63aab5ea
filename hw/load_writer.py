"""The write stage of the load engine: pads rows and writes beats or entries into scratchpads."""

from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.component import Unit
from tilewright.hw.layouts import instruction_layout
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import EXTENT_BITS, Load
from tilewright.isa.memories import Engine, Memory, memory_shape
from tilewright.isa.timing import LOAD_WRITE_CYCLES, cycles_per_entry

assert LOAD_WRITE_CYCLES == 2, "as this pipeline is built"

#: Width of a row or a plane with its padding.
_PADDED_BITS = EXTENT_BITS + 1


def loadable(config: AcceleratorConfig) -> tuple[Memory, ...]:
    """List the scratchpads that the load engine writes."""
    return tuple(item for item in Memory if Engine.LOAD in memory_shape(item, config).writers)


def task_layout(config: AcceleratorConfig) -> data.StructLayout:
    """What the write stage has to know of an instruction.

    A row spans x from 0 to `width`, data lies from `left` to `right`; a plane spans y from 0 to
    `height`, data lies from `top` to `bottom`. Where it starts at 0 a flag says so; `left` is 0,
    too, where there is none. Positions count bytes modulo the longest burst.
    """
    load = instruction_layout(Load, config)
    position = unsigned((config.burst_bytes - 1).bit_length())
    return data.StructLayout(
        {
            **{name: load[name].shape for name in ("memory", "dst", "planes", "signal")},
            "pad_value": unsigned(8),
            "starts_at_left": unsigned(1),
            "starts_at_top": unsigned(1),
            "left": load["pad_left"].shape,
            "top": load["pad_top"].shape,
            **{name: unsigned(_PADDED_BITS) for name in ("right", "width", "bottom", "height")},
            **{name: position for name in ("position", "row_stride", "plane_stride")},
        }
    )


class WriteBus(wiring.Signature):
    """Writes of the load engine to all its scratchpads."""

    def __init__(self, config: AcceleratorConfig) -> None:
        parts = max(cycles_per_entry(item, config)[0] for item in loadable(config))
        super().__init__(
            {
                "select": Out(len(Memory)),
                "address": Out(config.scratch_index_bits),
                "part": Out(range(parts)),
                "all_parts": Out(1),
                "data": Out(config.port_bits),
            }
        )


class _Position:
    """A column or a row, kept such that all comparisons are for equality, and with registers."""

    def __init__(self, name: str) -> None:
        #: The next column or row.
        self.following = Signal(_PADDED_BITS, init=1, name=f"following_{name}")
        self._first = Signal(init=1, name=f"first_{name}")
        self._inside = Signal(name=f"inside_{name}")

    def is_data(self, starts: Value) -> Value:
        """Whether data lies here, if it `starts` at 0 or not."""
        return Mux(self._first, starts, self._inside)

    def move(self, m: Module, ends: Value, inside: Value) -> None:
        """Move on to the next one, where data lies or not, or back to 0."""
        m.d.sync += [
            self.following.eq(Mux(ends, 1, self.following + 1)),
            self._first.eq(ends),
            self._inside.eq(inside),
        ]


class LoadWriter(Unit):
    """Makes one step per cycle: a padding entry, a beat, or an entry where a beat holds several.

    A step that needs data waits for it. What a step in cycle c reads from the data buffer comes in
    c + 1 and is written in c + LOAD_WRITE_CYCLES.

    Attributes
    ----------
    task
        Instructions come in; one leaves with its last step.
    present
        The data buffer holds a beat.
    read, take_beat, take_burst
        This step reads the oldest beat; the beat, or the last one of a burst, leaves the buffer.
    beat
        What the step before has read.
    stepping, task_done
        A step is made; it is the last one of an instruction.
    finish, signal
        In the cycle in which an instruction finishes, and the engines it gives tokens to.
    write
        What is written: scratchpads by bit, entry, part of an entry that is longer than a beat
        (or all of them, for padding).
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self._config = config
        self._task = task_layout(config)
        super().__init__(
            {
                "task": In(stream.Signature(self._task)),
                "present": In(1),
                "read": Out(1),
                "take_beat": Out(1),
                "take_burst": Out(1),
                "beat": In(config.port_bits),
                "stepping": Out(1),
                "task_done": Out(1),
                "finish": Out(1),
                "signal": Out(len(Engine)),
                "write": Out(WriteBus(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        task = self.task.payload
        x, y = _Position("x"), _Position("y")
        in_columns, in_rows = Signal(name="in_columns"), Signal(name="in_rows")
        plane = Signal(EXTENT_BITS)
        part = Signal.like(self.write.part)
        entry = Signal(self._config.scratch_index_bits)
        is_data, step = Signal(), Signal()
        parts, step_bytes = self._constants(m, task.memory)
        ends_part, ends_entry, ends_row, ends_plane = (
            Signal(name=f"ends_{name}") for name in ("part", "entry", "row", "plane")
        )
        m.d.comb += [
            in_columns.eq(x.is_data(task.starts_at_left)),
            in_rows.eq(y.is_data(task.starts_at_top)),
            is_data.eq(in_columns & in_rows),
            step.eq(self.task.valid & (~is_data | self.present)),
            ends_part.eq(part + 1 == parts),
            ends_entry.eq(~is_data | ends_part),
            ends_row.eq(ends_entry & (x.following == task.width)),
            ends_plane.eq(ends_row & (y.following == task.height)),
            self.stepping.eq(step),
            self.task_done.eq(step & ends_plane & (plane + 1 == task.planes)),
            self.task.ready.eq(self.task_done),
            self.read.eq(step & is_data),
        ]
        with m.If(step):
            m.d.sync += [
                part.eq(Mux(ends_entry, 0, part + 1)),
                entry.eq(Mux(self.task_done, 0, entry + ends_entry)),
                plane.eq(Mux(self.task_done, 0, plane + ends_plane)),
            ]
            with m.If(ends_entry):
                x.move(
                    m,
                    ends_row,
                    Mux(in_columns, x.following != task.right, x.following == task.left),
                )
            with m.If(ends_row):
                y.move(
                    m, ends_plane, Mux(in_rows, y.following != task.bottom, y.following == task.top)
                )
        ends_data_row = ends_part & (x.following == task.right)
        position = self._follow(m, step_bytes, ends_data_row, y.following == task.bottom)
        self._write(m, step, is_data, position, part, entry)
        return m

    def _constants(self, m: Module, memory: Value) -> tuple[Signal, Signal]:
        """Steps per entry and bytes per step of a scratchpad."""
        parts = Signal(range(1 << len(self.write.part) + 1))
        step_bytes = Signal(range(self._config.port_bytes + 1))
        with m.Switch(memory):
            for item in loadable(self._config):
                with m.Case(item):
                    beats, per_beat = cycles_per_entry(item, self._config)
                    m.d.comb += [
                        parts.eq(beats),
                        step_bytes.eq(self._config.port_bytes // per_beat),
                    ]
        return parts, step_bytes

    def _follow(self, m: Module, step_bytes: Value, ends_row: Value, ends_plane: Value) -> Signal:
        """Follow the DRAM address modulo the longest burst, to know where beats and bursts end."""
        task = self.task.payload
        position, following = (
            Signal(task.position.shape(), name=name) for name in ("position", "following")
        )
        moved, row_moved, plane_moved = (
            Signal.like(task.position, name=name) for name in ("moved", "row_moved", "plane_moved")
        )
        next_row = Signal.like(task.position)
        beat_bits = (self._config.port_bytes - 1).bit_length()
        m.d.comb += [
            position.eq(task.position + moved),
            following.eq(position + step_bytes),
            self.take_beat.eq(self.read & (ends_row | (following[:beat_bits] == 0))),
            self.take_burst.eq(self.read & (ends_row | (following == 0))),
            next_row.eq(
                Mux(ends_plane, plane_moved + task.plane_stride, row_moved + task.row_stride)
            ),
        ]
        with m.If(self.task_done):
            m.d.sync += [moved.eq(0), row_moved.eq(0), plane_moved.eq(0)]
        with m.Elif(self.read & ends_row):
            m.d.sync += [moved.eq(next_row), row_moved.eq(next_row)]
            with m.If(ends_plane):
                m.d.sync += plane_moved.eq(next_row)
        with m.Elif(self.read):
            m.d.sync += moved.eq(moved + step_bytes)
        return position

    def _write(
        self, m: Module, step: Value, is_data: Value, position: Value, part: Value, entry: Value
    ) -> None:
        """Align what was read, or make padding, and write it."""
        task = self.task.payload
        beat_bits = (self._config.port_bytes - 1).bit_length()
        stepped: Any = Signal(
            data.StructLayout(
                {
                    "valid": 1,
                    "is_data": 1,
                    "finishes": 1,
                    "signal": self.signal.shape(),
                    "memory": self._task["memory"].shape,
                    "dst": self._task["dst"].shape,
                    "entry": entry.shape(),
                    "part": part.shape(),
                    "offset": beat_bits,
                    "pad_value": 8,
                }
            )
        )
        m.d.sync += [
            stepped.valid.eq(step),
            stepped.is_data.eq(is_data),
            stepped.finishes.eq(self.task_done),
            stepped.signal.eq(task.signal),
            stepped.memory.eq(task.memory),
            stepped.dst.eq(task.dst),
            stepped.entry.eq(entry),
            stepped.part.eq(part),
            stepped.offset.eq(position[:beat_bits]),
            stepped.pad_value.eq(task.pad_value),
        ]
        padding = stepped.pad_value.replicate(self._config.port_bytes)
        aligned = self.beat >> (stepped.offset << 3)
        m.d.sync += [
            self.write.select.eq(Mux(stepped.valid, Const(1) << stepped.memory, 0)),
            self.write.address.eq(stepped.dst + stepped.entry),
            self.write.part.eq(stepped.part),
            self.write.all_parts.eq(~stepped.is_data),
            self.write.data.eq(Mux(stepped.is_data, aligned, padding)),
            self.finish.eq(stepped.valid & stepped.finishes),
            self.signal.eq(stepped.signal),
        ]
