"""The instructions and micro-ops: operands with width and meaning, nothing about their bits."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, ClassVar, TypeAlias

from tilewright.isa.memories import Engine, Memory
from tilewright.isa.operands import Operand

#: Loop levels of `Gemm` and `Vector`, outermost first; micro-ops are the innermost level.
LOOP_LEVELS = 3
#: Width of a loop or row count.
EXTENT_BITS = 12
#: Width of a DRAM byte address and of a stride between rows or planes.
ADDRESS_BITS = 32
#: Width of a padding amount.
PAD_BITS = 8
#: Bits of an accumulator that a multiplication in the vector engine sees (port A of a DSP48).
VECTOR_OPERAND_BITS = 25


class Opcode(IntEnum):
    """What an instruction does. The value is its encoding."""

    FINISH = 0
    LOAD = 1
    GEMM = 2
    VECTOR = 3
    STORE = 4


class VectorOperation(IntEnum):
    """How the vector engine combines the operands of one run of equal destinations."""

    #: Sum of operand x coefficient.
    MAC = 0
    #: Sum of operands; a run of one passes its operand on.
    SUM = 1
    #: Largest operand.
    MAX = 2
    #: Smallest operand.
    MIN = 3


class VectorTarget(IntEnum):
    """Where the vector engine writes."""

    #: `out`, as int8.
    OUT = 0
    #: `acc`, as int32.
    ACC = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmUop:
    """One product, ``acc[dst] += inp[src] @ wgt[wgt].T``, as offsets to the instruction."""

    dst: Annotated[int, Operand("acc_index_bits", "entry of `acc`")] = 0
    src: Annotated[int, Operand("inp_index_bits", "entry of `inp`")] = 0
    wgt: Annotated[int, Operand("wgt_index_bits", "entry of `wgt`")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorUop:
    """One operand of a vector run, offsets to the instruction."""

    dst: Annotated[int, Operand("result_index_bits", "entry of the target")] = 0
    src: Annotated[
        int, Operand("operand_bits", "operand address: `vec`, or `acc` from `acc_operand_base`")
    ] = 0
    coef: Annotated[int, Operand("coef_index_bits", "entry of `coef`, used by `MAC`")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmLoop:
    """One loop level of `Gemm`."""

    extent: Annotated[int, Operand(EXTENT_BITS, "iterations", minimum=1)] = 1
    dst: Annotated[int, Operand("acc_index_bits", "added to the `acc` index per iteration")] = 0
    src: Annotated[int, Operand("inp_index_bits", "added to the `inp` index per iteration")] = 0
    wgt: Annotated[int, Operand("wgt_index_bits", "added to the `wgt` index per iteration")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorLoop:
    """One loop level of `Vector`."""

    extent: Annotated[int, Operand(EXTENT_BITS, "iterations", minimum=1)] = 1
    dst: Annotated[int, Operand("result_index_bits", "added to the target index per iteration")] = 0
    src: Annotated[int, Operand("operand_bits", "added to the operand address per iteration")] = 0
    coef: Annotated[int, Operand("coef_index_bits", "added to the `coef` index per iteration")] = 0
    prm: Annotated[int, Operand("prm_index_bits", "added to the `prm` index per iteration")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """What all instructions have: the tokens they wait for and the tokens they give.

    An instruction starts when each engine in `wait` has given it a token and, when it has
    finished, gives one token to each engine in `signal`.
    """

    opcode: ClassVar[Opcode]
    #: The engine that executes it; `Finish` runs in the dispatcher.
    engine: ClassVar[Engine | None]

    wait: Annotated[
        int, Operand(len(Engine), "engines to take a token from, one bit each", members=Engine)
    ] = 0
    signal: Annotated[
        int, Operand(len(Engine), "engines to give a token to, one bit each", members=Engine)
    ] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Instruction):
    """Copy `planes` x `rows` rows of `entries` entries from DRAM to consecutive entries.

    Every row gets `pad_left` and `pad_right` entries, every plane `pad_top` and `pad_bottom` rows
    of the same total width, all filled with `pad_value`.
    """

    opcode: ClassVar[Opcode] = Opcode.LOAD
    engine: ClassVar[Engine | None] = Engine.LOAD

    memory: Annotated[Memory, Operand(4, "scratchpad that is written")]
    dst: Annotated[int, Operand("scratch_index_bits", "first entry that is written")]
    address: Annotated[int, Operand(ADDRESS_BITS, "DRAM byte address of the first row")] = 0
    entries: Annotated[int, Operand(EXTENT_BITS, "entries per row in DRAM, 0 for padding only")]
    rows: Annotated[int, Operand(EXTENT_BITS, "rows per plane in DRAM", minimum=1)] = 1
    planes: Annotated[int, Operand(EXTENT_BITS, "planes", minimum=1)] = 1
    row_stride: Annotated[int, Operand(ADDRESS_BITS, "bytes from row to row")] = 0
    plane_stride: Annotated[int, Operand(ADDRESS_BITS, "bytes from plane to plane")] = 0
    pad_left: Annotated[int, Operand(PAD_BITS, "entries before each row")] = 0
    pad_right: Annotated[int, Operand(PAD_BITS, "entries after each row")] = 0
    pad_top: Annotated[int, Operand(PAD_BITS, "rows before each plane")] = 0
    pad_bottom: Annotated[int, Operand(PAD_BITS, "rows after each plane")] = 0
    pad_value: Annotated[int, Operand(8, "value of every padding byte", signed=True)] = 0

    @property
    def width(self) -> int:
        """Entries per row in the scratchpad, padding included."""
        return self.pad_left + self.entries + self.pad_right

    @property
    def written_entries(self) -> int:
        """Entries written to the scratchpad, padding included."""
        return self.planes * (self.pad_top + self.rows + self.pad_bottom) * self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm(Instruction):
    """Multiply blocks of activations with blocks of weights, summing into accumulators.

    For each iteration of the loops, for each micro-op: ``acc[dst] += inp[src] @ wgt[wgt].T`` in
    int32 with wrap-around. Consecutive products for one `dst` form a run and are summed inside the
    array; the first access to `acc` comes with the end of the run.
    """

    opcode: ClassVar[Opcode] = Opcode.GEMM
    engine: ClassVar[Engine | None] = Engine.GEMM

    accumulate: Annotated[bool, Operand(1, "add each run to `acc` instead of overwriting")] = False
    uop_begin: Annotated[int, Operand("gemm_uop_index_bits", "first micro-op")] = 0
    uop_count: Annotated[int, Operand("gemm_uop_count_bits", "micro-ops", minimum=1)] = 1
    dst: Annotated[int, Operand("acc_index_bits", "base index into `acc`")] = 0
    src: Annotated[int, Operand("inp_index_bits", "base index into `inp`")] = 0
    wgt: Annotated[int, Operand("wgt_index_bits", "base index into `wgt`")] = 0
    loops: Annotated[tuple[GemmLoop, ...], LOOP_LEVELS] = (GemmLoop(),) * LOOP_LEVELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector(Instruction):
    """Combine operands lane by lane, requantise, clip, look up, and write.

    Operands of consecutive steps with one `dst` form a run and are combined by `operation` in
    int32. The result r of a run becomes, in this order: with `requantise`
    ``clip(round_half_even((r + bias) * multiplier * 2**-shift) + zero_point, low, high)`` with the
    parameters of entry `prm` (of the last step of the run); else, for target OUT,
    ``clip(r, low, high)``; with `lookup` the entry ``r + 128`` of table `lut`.
    """

    opcode: ClassVar[Opcode] = Opcode.VECTOR
    engine: ClassVar[Engine | None] = Engine.VECTOR

    operation: Annotated[VectorOperation, Operand(2, "how a run combines its operands")]
    target: Annotated[VectorTarget, Operand(1, "scratchpad that is written")] = VectorTarget.OUT
    requantise: Annotated[bool, Operand(1, "scale the result with the parameters in `prm`")] = False
    lookup: Annotated[bool, Operand(1, "pass the int8 result through a table")] = False
    lut: Annotated[int, Operand("lut_index_bits", "number of the table")] = 0
    zero_point: Annotated[int, Operand(8, "added after scaling", signed=True)] = 0
    low: Annotated[int, Operand(8, "smallest result", signed=True)] = -128
    high: Annotated[int, Operand(8, "largest result", signed=True)] = 127
    uop_begin: Annotated[int, Operand("vector_uop_index_bits", "first micro-op")] = 0
    uop_count: Annotated[int, Operand("vector_uop_count_bits", "micro-ops", minimum=1)] = 1
    dst: Annotated[int, Operand("result_index_bits", "base index into the target")] = 0
    src: Annotated[int, Operand("operand_bits", "base operand address")] = 0
    coef: Annotated[int, Operand("coef_index_bits", "base index into `coef`")] = 0
    prm: Annotated[int, Operand("prm_index_bits", "base index into `prm`")] = 0
    loops: Annotated[tuple[VectorLoop, ...], LOOP_LEVELS] = (VectorLoop(),) * LOOP_LEVELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(Instruction):
    """Copy consecutive entries of `out` to `planes` x `rows` rows of `entries` entries in DRAM."""

    opcode: ClassVar[Opcode] = Opcode.STORE
    engine: ClassVar[Engine | None] = Engine.STORE

    src: Annotated[int, Operand("out_index_bits", "first entry that is read")]
    address: Annotated[int, Operand(ADDRESS_BITS, "DRAM byte address of the first row")]
    entries: Annotated[int, Operand(EXTENT_BITS, "entries per row", minimum=1)]
    rows: Annotated[int, Operand(EXTENT_BITS, "rows per plane", minimum=1)] = 1
    planes: Annotated[int, Operand(EXTENT_BITS, "planes", minimum=1)] = 1
    row_stride: Annotated[int, Operand(ADDRESS_BITS, "bytes from row to row")] = 0
    plane_stride: Annotated[int, Operand(ADDRESS_BITS, "bytes from plane to plane")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(Instruction):
    """End the program once every engine has finished all its instructions."""

    opcode: ClassVar[Opcode] = Opcode.FINISH
    engine: ClassVar[Engine | None] = None


#: Every instruction, for matching and for tables that must cover all of them.
AnyInstruction: TypeAlias = Load | Gemm | Vector | Store | Finish
#: Instruction class by opcode.
INSTRUCTION_CLASSES: dict[Opcode, type[AnyInstruction]] = {
    Opcode.FINISH: Finish,
    Opcode.LOAD: Load,
    Opcode.GEMM: Gemm,
    Opcode.VECTOR: Vector,
    Opcode.STORE: Store,
}
#: Either kind of micro-op.
AnyUop: TypeAlias = GemmUop | VectorUop


def instruction_name(opcode: Opcode, position: int, engine_position: int) -> str:
    """Name an instruction in messages by its positions in the program and in its engine."""
    engine = INSTRUCTION_CLASSES[opcode].engine
    place = "" if engine is None else f" {engine_position}"
    return f"instruction {position} ({opcode.name.lower()}{place})"


#: Token channels that exist, as (giver, taker); gemm and store share no memory.
TOKEN_CHANNELS: frozenset[tuple[Engine, Engine]] = frozenset(
    (giver, taker)
    for giver in Engine
    for taker in Engine
    if giver is not taker and {giver, taker} != {Engine.GEMM, Engine.STORE}
)
