"""Random legal programs, which simulator and hardware must execute in the same cycles and bytes.

Every program is legal by construction: instructions use entries that have been written, and get the
tokens that the hazards between them require (`tilewright.sim.random_tokens`). All else
is drawn at random: shapes, strides that run backwards, indices at both ends of each scratchpad, and
runs of instructions for one engine that overflow its queue.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from typing_extensions import assert_never

from tilewright.isa.accesses import accesses
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import Values, encode_uops, instruction_bytes
from tilewright.isa.errors import ProgramError
from tilewright.isa.hazards import alignment_bytes
from tilewright.isa.instructions import (
    ADDRESS_BITS,
    LOOP_LEVELS,
    AnyInstruction,
    Gemm,
    GemmLoop,
    GemmUop,
    Load,
    Store,
    Vector,
    VectorLoop,
    VectorOperation,
    VectorTarget,
    VectorUop,
)
from tilewright.isa.integers import MAX_SHIFT, MULTIPLIER_BITS
from tilewright.isa.memories import PRM_CHANNEL_BYTES, UOP_BYTES, Engine, Memory, memory_shape
from tilewright.isa.operands import operand_fields
from tilewright.isa.program import Program, Segment
from tilewright.isa.timing import fetch_burst_instructions
from tilewright.isa.vector_runs import read_after_own_write
from tilewright.sim.random_tokens import Step, synchronised

#: Entries at each end of a scratchpad that programs use.
_WINDOW = 24
#: Steps of the longest `Gemm` or `Vector`.
_MAX_STEPS = 120
#: Micro-ops of each kind in DRAM.
_UOPS = 64
#: Smallest and largest offset in a micro-op, modulo the width of the field.
_OFFSETS = (-2, 3)
#: Bytes of each region of DRAM.
_REGION_BYTES = 1 << 14

_UOP_CLASSES = {Memory.GUOP: GemmUop, Memory.VUOP: VectorUop}
_LOADABLE = tuple(memory for memory in Memory if memory not in (Memory.ACC, Memory.OUT))


def random_program(config: AcceleratorConfig, seed: int, *, size: int = 40) -> Program:
    """Make a random legal program.

    Parameters
    ----------
    config
        Any machine whose DRAM has 128 KiB and whose `token_limit` is not below `size` + 20.
    seed
        Programs with equal configuration, seed and size are equal.
    size
        Instructions besides those that fill the scratchpads at the start and `Finish`.
    """
    return _Generator(config, np.random.default_rng(seed)).make(size)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """How one index moves in the loops of an instruction."""

    #: Per loop level, modulo the width of the index.
    strides: tuple[int, ...]
    #: How far it goes below and above where it begins.
    below: int
    above: int


class _Generator:
    """Draws instructions one after the other."""

    def __init__(self, config: AcceleratorConfig, rng: np.random.Generator) -> None:
        self._config = config
        self._rng = rng
        tables = {memory: self._draw_uops(memory) for memory in _UOP_CLASSES}
        #: Micro-ops in DRAM, and those that have been loaded.
        self._uop_tables = tables
        self._loaded_uops = {
            memory: np.zeros((memory_shape(memory, config).entries, 3), np.int64)
            for memory in _UOP_CLASSES
        }
        contents = (
            encode_uops(GemmUop, tables[Memory.GUOP], config).tobytes(),
            encode_uops(VectorUop, tables[Memory.VUOP], config).tobytes(),
            self._draw_parameters(),
            rng.bytes(_REGION_BYTES),
        )
        addresses = [index * _REGION_BYTES for index in range(len(contents) + 1)]
        *starts, self._results = addresses
        self._constants = tuple(
            Segment(address=start, data=data) for start, data in zip(starts, contents, strict=True)
        )
        self._sources = dict.fromkeys(_LOADABLE, starts[-1])
        self._sources |= {Memory.GUOP: starts[0], Memory.VUOP: starts[1], Memory.PRM: starts[2]}

    def make(self, size: int) -> Program:
        """Draw a program."""
        config = self._config
        steps = [self._step(instruction) for instruction in self._fill()]
        size += len(steps)
        stickiness = self._rng.choice([0.0, 0.5, 0.9])
        engine = Engine.LOAD
        while len(steps) < size:
            if self._rng.random() >= stickiness:
                engine = Engine(self._below(len(Engine)))
            try:
                steps.append(self._step(self._draw(engine)))
            except ProgramError:
                continue  # an index that does not exist: draw again
        burst_bytes = fetch_burst_instructions(config) * instruction_bytes(config)
        code_address = -(-(self._results + _REGION_BYTES) // burst_bytes) * burst_bytes
        instructions = synchronised(steps, config, self._rng, dram_bytes=code_address)
        return Program(
            config=config,
            instructions=instructions,
            code_address=code_address,
            constants=self._constants,
            dram_bytes=code_address + len(instructions) * instruction_bytes(config),
        )

    def _below(self, limit: int) -> int:
        return int(self._rng.integers(0, limit))

    def _any(self, cls: type[Any], path: str) -> int:
        """Any value that a field can hold, the extremes more often than the others."""
        (operand,) = (item.operand for item in operand_fields(cls) if item.path == path)
        low, high = operand.limits(self._config)
        return int(self._rng.choice([low, high, self._rng.integers(low, high + 1)]))

    def _draw_uops(self, memory: Memory) -> Values:
        """Micro-ops with small offsets in either direction; the first one has none."""
        config = self._config
        fields = operand_fields(_UOP_CLASSES[memory])
        modulus = np.array([1 << field.operand.width(config) for field in fields])
        low, high = _OFFSETS
        table = self._rng.integers(low, high + 1, (_UOPS, len(fields)))
        runs = self._rng.random(_UOPS) < 0.7
        runs[0] = False
        for row in np.flatnonzero(runs):
            table[row, 0] = table[row - 1, 0]
        if memory is Memory.VUOP:
            table[self._rng.random(_UOPS) < 0.05, 1] += config.acc_operand_base
        table[0] = 0
        result: Values = table % modulus
        return result

    def _draw_parameters(self) -> bytes:
        """Biases, multipliers and shifts as networks have them, and arbitrary ones."""
        channels = _REGION_BYTES // PRM_CHANNEL_BYTES
        rng = self._rng
        usual = rng.random(channels) < 0.7
        bias = np.where(
            usual,
            rng.integers(-1000, 1000, channels),
            rng.integers(-(1 << 31), 1 << 31, channels),
        )
        multiplier = rng.integers(0, 1 << MULTIPLIER_BITS, channels)
        shift = np.where(
            usual, rng.integers(24, 36, channels), rng.integers(0, MAX_SHIFT + 1, channels)
        )
        words = np.stack([bias & 0xFFFFFFFF, multiplier | shift << MULTIPLIER_BITS], axis=1)
        return words.astype("<u4").tobytes()

    def _windows(self, memory: Memory) -> tuple[tuple[int, int], ...]:
        """First entry and length of the parts of a scratchpad that are used."""
        entries = memory_shape(memory, self._config).entries
        if entries < 2 * _WINDOW:
            return ((0, entries),)
        return ((0, _WINDOW), (entries - _WINDOW, _WINDOW))

    def _place(self, memory: Memory, walk: _Walk) -> int:
        """Draw where an index begins such that it stays in a window as it walks."""
        windows = self._windows(memory)
        first, length = windows[self._below(len(windows))]
        room = length - walk.below - walk.above
        if room < 1:
            raise ProgramError(f"a walk does not fit {memory.name.lower()}")
        return first + walk.below + self._below(room)

    def _fill(self) -> Iterator[AnyInstruction]:
        """Write every window once."""
        for memory in _LOADABLE:
            entry_bytes = memory_shape(memory, self._config).entry_bytes
            for first, count in self._windows(memory):
                yield Load(
                    memory=memory,
                    dst=first,
                    address=self._sources[memory],
                    entries=1,
                    rows=count,
                    row_stride=UOP_BYTES if memory in _UOP_CLASSES else entry_bytes
                    if count * entry_bytes <= _REGION_BYTES else 0,
                )  # fmt: skip
        for first, count in self._windows(Memory.ACC):
            yield Gemm(
                dst=first,
                loops=(GemmLoop(), GemmLoop(), GemmLoop(extent=count, dst=1, src=1)),
            )
        for first, count in self._windows(Memory.OUT):
            yield Vector(
                operation=VectorOperation.SUM,
                dst=first,
                loops=(VectorLoop(), VectorLoop(), VectorLoop(extent=count, dst=1, src=1)),
            )

    def _step(self, instruction: AnyInstruction) -> Step:
        """Find what an instruction touches; raises `ProgramError` where that does not exist."""
        uops = None
        match instruction:
            case Load():
                self._note_uops(instruction)
            case Gemm() | Vector():
                memory = Memory.GUOP if isinstance(instruction, Gemm) else Memory.VUOP
                begin, count = instruction.uop_begin, instruction.uop_count
                uops = self._loaded_uops[memory][begin : begin + count]
        found = accesses(instruction, self._config, uops)
        if isinstance(instruction, Vector) and instruction.target is VectorTarget.ACC:
            assert uops is not None, "a vector instruction has micro-ops"
            if read_after_own_write(instruction, uops, self._config) is not None:
                raise ProgramError("the instruction reads what it has written")
        for access in found.reads:
            used = {e for first, n in self._windows(access.memory) for e in range(first, first + n)}
            if not used.issuperset(access.entries.tolist()):
                raise ProgramError("the instruction reads what nothing has written")
        return Step(instruction=instruction, accesses=found)

    def _note_uops(self, load: Load) -> None:
        if load.memory in _UOP_CLASSES:
            first = (load.address - self._sources[load.memory]) // UOP_BYTES
            count = load.written_entries
            table = self._uop_tables[load.memory][first : first + count]
            self._loaded_uops[load.memory][load.dst : load.dst + count] = table

    def _draw(self, engine: Engine) -> AnyInstruction:
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

    def _draw_load(self) -> Load:
        memory = _LOADABLE[self._below(len(_LOADABLE))]
        length = self._windows(memory)[0][1]
        if memory in _UOP_CLASSES:
            count = 1 + self._below(min(length, _UOPS))
            address = self._sources[memory] + self._below(_UOPS - count + 1) * UOP_BYTES
            dst = self._place(memory, _Walk(strides=(), below=0, above=count - 1))
            return Load(memory=memory, dst=dst, address=address, entries=count)
        fields = self._draw_rows(memory, self._sources[memory])
        if self._below(4) == 0 and memory is not Memory.PRM:
            fields = self._draw_rows(memory, self._results)
        load = Load(memory=memory, dst=0, **fields)
        if self._below(2):
            load = self._padded(load)
        walk = _Walk(strides=(), below=0, above=load.written_entries - 1)
        return replace(load, dst=self._place(memory, walk))

    def _padded(self, load: Load) -> Load:
        # a padding byte of `prm` is a shift, too
        value = self._below(64) if load.memory is Memory.PRM else self._any(Load, "pad_value")
        names = ("pad_left", "pad_right", "pad_top", "pad_bottom")
        pads = {name: int(self._rng.choice([0, 0, 1, 2])) for name in names}
        only_padding = {"entries": 0} if self._below(8) == 0 and pads["pad_left"] else {}
        return replace(load, pad_value=value, **pads, **only_padding)

    def _draw_store(self) -> Store:
        fields = self._draw_rows(Memory.OUT, self._results)
        count = fields["entries"] * fields["rows"] * fields["planes"]
        src = self._place(Memory.OUT, _Walk(strides=(), below=0, above=count - 1))
        return Store(src=src, **fields)

    def _draw_rows(self, memory: Memory, region: int) -> dict[str, int]:
        """Draw rows that lie in a region; they may overlap, and run backwards."""
        entry_bytes = memory_shape(memory, self._config).entry_bytes
        unit = alignment_bytes(memory, self._config)
        length = self._windows(memory)[0][1]
        extents = [1, 1, 1]
        for axis in self._rng.permutation(3):
            extents[axis] = 1 + self._below(max(1, length // int(np.prod(extents))))
        entries, rows, planes = extents
        room = _REGION_BYTES - entries * entry_bytes
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
        low, high = _OFFSETS
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
        spread = self._below(_WINDOW - 5)
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
        count = 1 + self._below(12)
        return self._place(memory, _Walk(strides=(), below=0, above=count - 1)), count

    def _draw_vector(self) -> Vector:
        config = self._config
        begin, count = self._draw_uop_range(Memory.VUOP)
        extents = self._draw_extents(count)
        spread = self._below(_WINDOW - 5)
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
