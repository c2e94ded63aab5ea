"""Emission of tasks: loads into rings, micro-op tables, constants, and the instructions on them."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tilewright.compiler.lowering.scratchpads import Ring, Span
from tilewright.compiler.lowering.tasks import DramRegion, Task
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import encode_uops
from tilewright.isa.instructions import (
    EXTENT_BITS,
    PAD_BITS,
    AnyUop,
    Gemm,
    GemmUop,
    Load,
    Store,
    Vector,
    VectorTarget,
)
from tilewright.isa.memories import Memory, memory_shape

ByteArray = npt.NDArray[np.uint8]

#: Largest loop or row count.
MAX_EXTENT = (1 << EXTENT_BITS) - 1
#: Most padding entries or rows on one side of a load.
MAX_PADDING = (1 << PAD_BITS) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """Entries around a loaded tile and the value they hold."""

    left: int = 0
    right: int = 0
    top: int = 0
    bottom: int = 0
    value: int = 0

    @property
    def any(self) -> bool:
        """Whether there is any padding."""
        return bool(self.left or self.right or self.top or self.bottom)


NO_PADDING = Padding()


@dataclass(slots=True)
class ConstantPool:
    """Constant bytes in DRAM, each aligned to a burst; equal constants are stored once."""

    begin: int
    alignment: int
    _addresses: dict[bytes, int] = field(default_factory=dict)
    _chunks: list[tuple[int, bytes]] = field(default_factory=list)
    _end: int = 0

    def place(self, data: bytes) -> int:
        """Return the DRAM byte address of `data`."""
        if data not in self._addresses:
            address = -(-max(self._end, self.begin) // self.alignment) * self.alignment
            self._addresses[data] = address
            self._chunks.append((address, data))
            self._end = address + len(data)
        return self._addresses[data]

    @property
    def end(self) -> int:
        """Address after the last constant."""
        return max(self._end, self.begin)

    def chunks(self) -> tuple[tuple[int, bytes], ...]:
        """Every constant with its address, ascending."""
        return tuple(self._chunks)


class Emitter:
    """Collects the tasks of a program; each method appends the instructions for one step."""

    def __init__(self, config: AcceleratorConfig, constants: ConstantPool) -> None:
        self.config = config
        self.constants = constants
        self.tasks: list[Task] = []
        #: Number of the kernel and of the layer that the tasks belong to.
        self.kernel = -1
        self.layer = -1
        self._rings = {memory: Ring(memory, config) for memory in Memory}
        self._bank = 0

    def load_tile(
        self,
        memory: Memory,
        key: Hashable,
        region: DramRegion,
        padding: Padding = NO_PADDING,
        pinned: tuple[Span, ...] = (),
    ) -> Span:
        """Bring rows of an activation tensor, with padding, into a ring, unless they are there."""
        ring = self._rings[memory]
        span = ring.find(key)
        if span is not None:
            return span
        entry_bytes = memory_shape(memory, self.config).entry_bytes
        if not region.rows or not region.row_bytes:
            span = ring.allocate(key, _padding_entries(region, padding, entry_bytes), pinned)
            self._fill(span, padding.value)
            return span
        load = _load(memory, region, entry_bytes, padding)
        span = ring.allocate(key, load.written_entries, pinned)
        self._append_load(load, span, region)
        return span

    def load_regions(self, memory: Memory, name: str, regions: tuple[DramRegion, ...]) -> Span:
        """Bring regions of a tensor, one behind the other, into a ring, unless they are there."""
        ring, key = self._rings[memory], (name, regions)
        span = ring.find(key)
        if span is not None:
            return span
        entry_bytes = memory_shape(memory, self.config).entry_bytes
        counts = [one.planes * one.rows * one.row_bytes // entry_bytes for one in regions]
        span = ring.allocate(key, sum(counts))
        begin = span.begin
        for region, count in zip(regions, counts, strict=True):
            part = Span(memory=memory, begin=begin, entries=count)
            self._append_load(_load(memory, region, entry_bytes), part, region)
            begin += count
        return span

    def load_fill(
        self, memory: Memory, value: int, entries: int, pinned: tuple[Span, ...] = ()
    ) -> Span:
        """Fill entries with one value, unless some are there."""
        ring, key = self._rings[memory], (value, entries)
        span = ring.find(key)
        if span is None:
            span = ring.allocate(key, entries, pinned)
            self._fill(span, value)
        return span

    def load_constant(self, memory: Memory, data: bytes, pinned: tuple[Span, ...] = ()) -> Span:
        """Bring constant bytes (whole entries) into a ring, unless they are there."""
        ring = self._rings[memory]
        span = ring.find(data)
        if span is not None:
            return span
        entry_bytes = memory_shape(memory, self.config).entry_bytes
        entries = len(data) // entry_bytes
        span = ring.allocate(data, entries, pinned)
        address = self.constants.place(data)
        for begin in range(0, entries, MAX_EXTENT):
            count = min(MAX_EXTENT, entries - begin)
            part = Span(memory=memory, begin=span.begin + begin, entries=count)
            load = Load(memory=memory, dst=0, address=address + begin * entry_bytes, entries=count)
            self._append_load(load, part, None)
        return span

    def load_uops(self, cls: type[AnyUop], values: npt.ArrayLike) -> Span:
        """Bring micro-ops, given as rows of their fields, on chip, unless they are there."""
        memory = Memory.GUOP if cls is GemmUop else Memory.VUOP
        return self.load_constant(memory, encode_uops(cls, values, self.config).tobytes())

    def take_bank(self, entries: int) -> Span:
        """Return entries of the bank of `acc` whose turn it is; they lose what they held."""
        assert entries <= self.config.acc_bank_entries, "an accumulator tile fits a bank"
        self._bank ^= 1
        return Span(
            memory=Memory.ACC, begin=self._bank * self.config.acc_bank_entries, entries=entries
        )

    def take_behind(self, span: Span, entries: int) -> Span:
        """Return the entries of `acc` behind others of the same bank."""
        end = (span.begin // self.config.acc_bank_entries + 1) * self.config.acc_bank_entries
        assert span.end + entries <= end, "accumulators that are read together fit a bank"
        return Span(memory=Memory.ACC, begin=span.end, entries=entries)

    def take_out(self, entries: int) -> Span:
        """Return free entries of `out`."""
        return self._rings[Memory.OUT].allocate(object(), entries)

    def gemm(self, gemm: Gemm, *, inp: Span, wgt: Span, uops: Span, acc: Span) -> None:
        """Append a gemm instruction that stays within the given spans."""
        self._append(gemm, reads=(inp, wgt, uops), writes=(acc,))

    def vector(self, vector: Vector, *, reads: tuple[Span, ...], write: Span) -> None:
        """Append a vector instruction that stays within the given spans."""
        assert (write.memory is Memory.ACC) == (vector.target is VectorTarget.ACC)
        self._append(vector, reads=reads, writes=(write,))

    def store(self, out: Span, region: DramRegion) -> None:
        """Write entries of `out` to rows of a tensor."""
        entry_bytes = memory_shape(Memory.OUT, self.config).entry_bytes
        store = Store(
            src=out.begin,
            address=region.address,
            entries=region.row_bytes // entry_bytes,
            rows=region.rows,
            planes=region.planes,
            row_stride=region.row_stride if region.rows > 1 else 0,
            plane_stride=region.plane_stride if region.planes > 1 else 0,
        )
        self._append(store, reads=(out,), dram=region)

    def _fill(self, span: Span, value: int) -> None:
        """Load nothing but padding: rows as long as they can be, then the rest."""
        count, rest = divmod(span.entries, MAX_PADDING)
        begin = span.begin
        for planes, width in ((count, MAX_PADDING), (1, rest)):
            entries = planes * width
            if entries:
                load = Load(
                    memory=span.memory,
                    dst=0,
                    address=0,
                    entries=0,
                    planes=planes,
                    pad_left=width,
                    pad_value=value,
                )
                part = Span(memory=span.memory, begin=begin, entries=entries)
                self._append_load(load, part, None)
                begin += entries

    def _append_load(self, load: Load, span: Span, region: DramRegion | None) -> None:
        self._append(replace(load, dst=span.begin), writes=(span,), dram=region)

    def _append(
        self,
        instruction: Load | Gemm | Vector | Store,
        *,
        reads: tuple[Span, ...] = (),
        writes: tuple[Span, ...] = (),
        dram: DramRegion | None = None,
    ) -> None:
        self.tasks.append(
            Task(instruction=instruction, reads=reads, writes=writes, dram=dram, layer=self.layer)
        )


def _load(
    memory: Memory, region: DramRegion, entry_bytes: int, padding: Padding = NO_PADDING
) -> Load:
    """Return the load of a region, which has no place in its scratchpad yet."""
    return Load(
        memory=memory,
        dst=0,
        address=region.address,
        entries=region.row_bytes // entry_bytes,
        rows=region.rows,
        planes=region.planes,
        row_stride=region.row_stride if region.rows > 1 else 0,
        plane_stride=region.plane_stride if region.planes > 1 else 0,
        pad_left=padding.left,
        pad_right=padding.right,
        pad_top=padding.top,
        pad_bottom=padding.bottom,
        pad_value=padding.value,
    )


def _padding_entries(region: DramRegion, padding: Padding, entry_bytes: int) -> int:
    """Count the entries of a tile, padding included."""
    width = padding.left + region.row_bytes // entry_bytes + padding.right
    return region.planes * (padding.top + region.rows + padding.bottom) * width
