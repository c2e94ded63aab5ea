"""Random instructions of each engine, which use both ends of each scratchpad."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from typing_extensions import assert_never

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import ProgramError
from tilewright.isa.hazards import alignment_bytes
from tilewright.isa.instructions import (
    ADDRESS_BITS,
    LOOP_LEVELS,
    AnyInstruction,
    Gemm,
    GemmLoop,
    Load,
    Store,
    Vector,
    VectorLoop,
    VectorOperation,
    VectorTarget,
)
from tilewright.isa.integers import MAX_SHIFT
from tilewright.isa.memories import UOP_BYTES, Engine, Memory, memory_shape
from tilewright.isa.operands import operand_fields

#: Entries at each end of a scratchpad that programs use.
WINDOW = 24
#: Smallest and largest offset in a micro-op, modulo the width of the field.
OFFSETS = (-2, 3)
#: Micro-ops of each kind in DRAM.
UOPS = 64
#: Bytes of each region of DRAM.
REGION_BYTES = 1 << 14
#: Scratchpads that the load engine writes.
LOADABLE = tuple(memory for memory in Memory if memory not in (Memory.ACC, Memory.OUT))

#: Steps of the longest `Gemm` or `Vector`.
_MAX_STEPS = 120
#: Micro-ops of the longest list.
_MAX_UOPS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """Where in DRAM programs find their data."""

    #: Address of the source of each scratchpad that is loaded.
    sources: dict[Memory, int]
    #: Address of the region that programs store to, and also load from.
    results: int


def windows(memory: Memory, config: AcceleratorConfig) -> tuple[tuple[int, int], ...]:
    """First entry and length of the parts of a scratchpad that programs use."""
    entries = memory_shape(memory, config).entries
    if entries < 2 * WINDOW:
        return ((0, entries),)
    return ((0, WINDOW), (entries - WINDOW, WINDOW))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """How one index moves in the loops of an instruction."""

    #: Per loop level, modulo the width of the index.
    strides: tuple[int, ...]
    #: How far it goes below and above where it begins.
    below: int
    above: int


class RandomInstructions:
    """Draws instructions without tokens."""

    def __init__(
        self, config: AcceleratorConfig, rng: np.random.Generator, regions: Regions
    ) -> None:
        self._config = config
        self._rng = rng
        self._regions = regions

    def draw(self, engine: Engine) -> AnyInstruction:
        """Draw an instruction; it may use what does not exist or has not been written."""
        match engine:
            case Engine.LOAD:
                return self._draw_load()
            case Engine.GEMM:
                return self._draw_gemm()
            case Engine.VECTOR:
                return self._draw_vector()
            case Engine.STORE:
                return self._draw_store()
            case _:
                assert_never(engine)

    def _below(self, limit: int) -> int:
        return int(self._rng.integers(0, limit))

    def _any(self, cls: type[Any], path: str) -> int:
        """Any value that a field can hold, the extremes more often than the others."""
        (operand,) = (item.operand for item in operand_fields(cls) if item.path == path)
        low, high = operand.limits(self._config)
        return (low, high, int(self._rng.integers(low, high + 1)))[self._below(3)]

    def _place(self, memory: Memory, walk: _Walk) -> int:
        """Draw where an index begins such that it stays in a window as it walks."""
        parts = windows(memory, self._config)
        first, length = parts[self._below(len(parts))]
        room = length - walk.below - walk.above
        if room < 1:
            raise ProgramError(f"a walk does not fit {memory.name.lower()}")
        return first + walk.below + self._below(room)

    def _draw_load(self) -> Load:
        memory = LOADABLE[self._below(len(LOADABLE))]
        length = windows(memory, self._config)[0][1]
        if memory in (Memory.GUOP, Memory.VUOP):
            count = 1 + self._below(min(length, UOPS))
            address = self._regions.sources[memory] + self._below(UOPS - count + 1) * UOP_BYTES
            dst = self._place(memory, _Walk(strides=(), below=0, above=count - 1))
            return Load(memory=memory, dst=dst, address=address, entries=count)
        fields = self._draw_rows(memory, self._regions.sources[memory])
        if self._below(4) == 0 and memory is not Memory.PRM:
            fields = self._draw_rows(memory, self._regions.results)
        load = Load(memory=memory, dst=0, **fields)
        if memory is not Memory.LUT and self._below(2):
            load = self._padded(load)
        walk = _Walk(strides=(), below=0, above=load.written_entries - 1)
        return replace(load, dst=self._place(memory, walk))

    def _padded(self, load: Load) -> Load:
        # a padding byte of `prm` is a shift, too
        value = (
            self._below(MAX_SHIFT + 1)
            if load.memory is Memory.PRM
            else self._any(Load, "pad_value")
        )
        left, right, top, bottom = self._rng.choice([0, 0, 1, 2], 4).tolist()
        return replace(
            load,
            entries=0 if left and self._below(8) == 0 else load.entries,
            pad_left=left,
            pad_right=right,
            pad_top=top,
            pad_bottom=bottom,
            pad_value=value,
        )

    def _draw_store(self) -> Store:
        fields = self._draw_rows(Memory.OUT, self._regions.results)
        count = fields["entries"] * fields["rows"] * fields["planes"]
        src = self._place(Memory.OUT, _Walk(strides=(), below=0, above=count - 1))
        return Store(src=src, **fields)

    def _draw_rows(self, memory: Memory, region: int) -> dict[str, int]:
        """Draw rows that lie in a region; they may overlap, and run backwards."""
        entry_bytes = memory_shape(memory, self._config).entry_bytes
        unit = alignment_bytes(memory, self._config)
        length = windows(memory, self._config)[0][1]
        extents = [1, 1, 1]
        for axis in self._rng.permutation(3):
            extents[axis] = 1 + self._below(max(1, length // int(np.prod(extents))))
        entries, rows, planes = extents
        room = REGION_BYTES - entries * entry_bytes
        if room < 0:
            raise ProgramError("a row does not fit the region")
        address = 0
        strides = []
        for extent in (rows, planes):
            stride = unit * self._below(
                min(room // max(1, extent - 1), 4 * entry_bytes) // unit + 1
            )
            room -= stride * (extent - 1)
            if self._below(4) == 0:
                address += stride * (extent - 1)
                stride = -stride
            strides.append(stride % (1 << ADDRESS_BITS))
        address += region + unit * self._below(room // unit + 1)
        return {
            "address": address,
            "entries": entries,
            "rows": rows,
            "planes": planes,
            "row_stride": strides[0],
            "plane_stride": strides[1],
        }

    def _draw_extents(self, uop_count: int) -> tuple[int, ...]:
        room = _MAX_STEPS // uop_count
        extents = [1] * LOOP_LEVELS
        for axis in self._rng.permutation(LOOP_LEVELS):
            most = max(1, room // int(np.prod(extents)))
            extents[axis] = 1 + self._below(int(self._rng.choice([1, min(4, most), most])))
        return tuple(extents)

    def _walk(self, extents: tuple[int, ...], bits: int, spread: int) -> _Walk:
        """Draw strides of which the loops' whole walk is no longer than `spread`."""
        low, high = OFFSETS
        below, above = -low, high
        strides = [0] * LOOP_LEVELS
        for axis in self._rng.permutation(LOOP_LEVELS):
            last = extents[axis] - 1
            if not last:
                strides[axis] = self._below(1 << bits)
                continue
            stride = self._below(spread // last + 1)
            spread -= stride * last
            if self._below(3) == 0:
                below += stride * last
                stride = -stride
            else:
                above += stride * last
            strides[axis] = stride % (1 << bits)
        return _Walk(strides=tuple(strides), below=below, above=above)

    def _draw_gemm(self) -> Gemm:
        config = self._config
        begin, count = self._draw_uop_range(Memory.GUOP)
        extents = self._draw_extents(count)
        spread = self._below(WINDOW - 5)
        dst = self._walk(extents, config.acc_index_bits, spread)
        src = self._walk(extents, config.inp_index_bits, spread)
        wgt = self._walk(extents, config.wgt_index_bits, spread)
        loops = tuple(
            GemmLoop(extent=extent, dst=d, src=s, wgt=w)
            for extent, d, s, w in zip(extents, dst.strides, src.strides, wgt.strides, strict=True)
        )
        return Gemm(
            accumulate=bool(self._below(2)),
            uop_begin=begin,
            uop_count=count,
            dst=self._place(Memory.ACC, dst),
            src=self._place(Memory.INP, src),
            wgt=self._place(Memory.WGT, wgt),
            loops=loops,
        )

    def _draw_uop_range(self, memory: Memory) -> tuple[int, int]:
        count = 1 + self._below(_MAX_UOPS)
        return self._place(memory, _Walk(strides=(), below=0, above=count - 1)), count

    def _draw_vector(self) -> Vector:
        config = self._config
        begin, count = self._draw_uop_range(Memory.VUOP)
        extents = self._draw_extents(count)
        spread = self._below(WINDOW - 5)
        dst = self._walk(extents, config.result_index_bits, spread)
        src = self._walk(extents, config.operand_bits, spread)
        coef = self._walk(extents, config.coef_index_bits, spread)
        prm = self._walk(extents, config.prm_index_bits, spread)
        loops = tuple(
            VectorLoop(extent=extent, dst=d, src=s, coef=c, prm=p)
            for extent, d, s, c, p in zip(
                extents, dst.strides, src.strides, coef.strides, prm.strides, strict=True
            )
        )
        target = VectorTarget(self._below(2))
        requantise = bool(self._below(2))
        from_acc = self._below(2)
        low, high = sorted((self._any(Vector, "low"), self._any(Vector, "high")))
        return Vector(
            operation=VectorOperation(self._below(len(VectorOperation))),
            target=target,
            requantise=requantise,
            lookup=bool(self._below(2)) and (requantise or target is VectorTarget.OUT),
            lut=self._below(config.lut_tables),
            zero_point=self._any(Vector, "zero_point"),
            low=low,
            high=high,
            uop_begin=begin,
            uop_count=count,
            dst=self._place(Memory.OUT if target is VectorTarget.OUT else Memory.ACC, dst),
            src=self._place(Memory.ACC if from_acc else Memory.VEC, src)
            + from_acc * config.acc_operand_base,
            coef=self._place(Memory.COEF, coef),
            prm=self._place(Memory.PRM, prm),
            loops=loops,
        )
