"""Sums of a few products per lane: one instruction of AVX-512 VNNI or AVX-512 BF16."""

from collections.abc import Iterator
from enum import Enum

from llvmlite import ir
from typing_extensions import assert_never

from tilewright.compiler.tensor.build import cast, reduce_sum
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Const, Expr
from tilewright.compiler.tensor.intrinsics import Intrinsic
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.statements import IntrinsicCall
from tilewright.cpu_gpu_backends.codegen.approximations import call_like
from tilewright.cpu_gpu_backends.codegen.frame import Frame
from tilewright.cpu_gpu_backends.codegen.memory import Memory
from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
from tilewright.cpu_gpu_backends.codegen.types import (
    HalfType,
    declare_intrinsic,
    number,
    scalar_type,
    splat,
)

#: Most sums of one use of an intrinsic.
_MOST_SUMS = 128
#: Fewest and most sums of one instruction.
_FEWEST_SUMS, _LANES = 4, 16
_WORD = ir.IntType(32)


class DotProducts(Enum):
    """What is summed; the value names the intrinsic, for schedules and for its emission.

    The instruction for halves takes subnormal numbers for 0; how it rounds the sum of its two
    products is the processor's affair.
    """

    BYTES = "dot_products_u8_s8"
    HALVES = "dot_products_bf16"

    @property
    def depth(self) -> int:
        """How many products one lane adds up; their factors fill a word."""
        return 4 if self is DotProducts.BYTES else 2

    @property
    def factors(self) -> tuple[ScalarType, ScalarType]:
        """Types of the factors: what all lanes share, and what each has for itself."""
        match self:
            case DotProducts.BYTES:
                return ScalarType.UINT8, ScalarType.INT8
            case DotProducts.HALVES:
                return ScalarType.BFLOAT16, ScalarType.BFLOAT16
            case _:
                assert_never(self)

    @property
    def total(self) -> ScalarType:
        """Type of the sums."""
        return ScalarType.INT32 if self is DotProducts.BYTES else ScalarType.FLOAT32

    def suits(self, target: CpuTarget) -> bool:
        """Whether there is vector code for a processor: of halves, for any."""
        return self is DotProducts.HALVES or target.multiplies_bytes


def dot_products(kind: DotProducts, scope: str) -> Intrinsic:
    """Declare sums, held in `scope`, to which products are added."""
    left, right = kind.factors
    a = placeholder((kind.depth,), left, "a")
    b = placeholder((_MOST_SUMS, kind.depth), right, "b")
    t = reduce_axis(kind.depth, "t")
    pattern = compute(
        (_MOST_SUMS,),
        lambda o: reduce_sum(cast(a[t.var], kind.total) * cast(b[o, t.var], kind.total), t),
        "sums",
        scope=scope,
    )
    return Intrinsic(
        name=kind.value,
        pattern=pattern,
        emitter=kind.value,
        flexible=("o",),
        overwrites=False,
    )


def has_vector_code(call: IntrinsicCall, target: CpuTarget) -> bool:
    """Whether `emit_dot_products` knows the intrinsic, and covers the sums without a rest."""
    extent = call.extents[0]
    whole = isinstance(extent, Const) and int(extent.value) % _FEWEST_SUMS == 0
    kinds = (kind for kind in DotProducts if kind.value == call.intrinsic.emitter)
    return whole and any(kind.suits(target) for kind in kinds)


def emit_dot_products(frame: Frame, memory: Memory, call: IntrinsicCall) -> None:
    """Emit a use of the intrinsic; operands lie densely along their last axes."""
    kind, extent = DotProducts(call.intrinsic.emitter), call.extents[0]
    assert isinstance(extent, Const), "no guard cuts through the lanes"
    left, right = call.inputs
    shared = memory.load_as(left.tensor, left.offsets, _WORD)
    for start, lanes in _pieces(int(extent.value)):
        words = ir.VectorType(_WORD, lanes)
        place = _advanced(right.offsets, right.axes[0], start)
        weights = memory.load_as(right.tensor, place, words)
        sums = _advanced(call.output.offsets, call.output.axes[0], start)
        total = memory.load_as(
            call.output.tensor, sums, ir.VectorType(scalar_type(kind.total), lanes)
        )
        factors = (splat(frame.builder, shared, lanes), weights)
        memory.store_as(call.output.tensor, sums, _dot(frame, kind, total, factors))


def _pieces(count: int) -> Iterator[tuple[int, int]]:
    start = 0
    while start < count:
        lanes = min(_LANES, 1 << ((count - start).bit_length() - 1))
        yield start, lanes
        start += lanes


def _advanced(offsets: tuple[Expr, ...], axis: int, by: int) -> tuple[Expr, ...]:
    return (*offsets[:axis], offsets[axis] + by, *offsets[axis + 1 :])


def _dot(
    frame: Frame, kind: DotProducts, total: ir.Value, factors: tuple[ir.Value, ...]
) -> ir.Value:
    builder, lanes = frame.builder, total.type.count
    match kind:
        case DotProducts.BYTES:
            name, element = "llvm.x86.avx512.vpdpbusd", ir.IntType(8)
        case DotProducts.HALVES if frame.target.multiplies_halves:
            name, element = "llvm.x86.avx512bf16.dpbf16ps", HalfType()
        case DotProducts.HALVES:
            return _emulated(frame, total, factors)
        case _:
            assert_never(kind)
    packed = ir.VectorType(element, lanes * kind.depth)
    function = declare_intrinsic(
        builder.module, f"{name}.{lanes * 32}", total.type, (total.type, packed, packed)
    )
    operands = (builder.bitcast(words, packed) for words in factors)
    return builder.call(function, (total, *operands))


def _emulated(frame: Frame, total: ir.Value, factors: tuple[ir.Value, ...]) -> ir.Value:
    """Add the products of the lower halves of words, then those of the upper ones."""
    builder, lanes = frame.builder, total.type.count
    shift = number(16, _WORD, lanes)
    upper = number(-1 << 16, _WORD, lanes)
    for half in (
        [builder.shl(words, shift) for words in factors],
        [builder.and_(words, upper) for words in factors],
    ):
        left, right = (builder.bitcast(words, total.type) for words in half)
        if frame.target.fuses_products:
            total = call_like(builder, "fma", left, right, total)
        else:
            total = builder.fadd(total, builder.fmul(left, right))
    return total
