"""Sums of four products of bytes per lane: one instruction of AVX-512 VNNI."""

from collections.abc import Iterator

from llvmlite import ir

from tilewright.compiler.tensor.build import cast, reduce_sum
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Const, Expr
from tilewright.compiler.tensor.intrinsics import Intrinsic
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.statements import IntrinsicCall
from tilewright.cpu_gpu_backends.codegen.frame import Frame
from tilewright.cpu_gpu_backends.codegen.memory import Memory
from tilewright.cpu_gpu_backends.codegen.types import declare_intrinsic, splat

#: How many products one lane adds up.
DOT_DEPTH = 4
#: The emitter that intrinsics name.
DOT_EMITTER = "dot_products_u8_s8"
#: Most sums of one use of the intrinsic.
_MOST_SUMS = 128
#: Fewest sums of one instruction.
_FEWEST_SUMS = 4
_INT = ir.IntType(32)


def dot_products(scope: str) -> Intrinsic:
    """Declare sums, held in `scope`, to which products of uint8 and int8 values are added."""
    a = placeholder((DOT_DEPTH,), ScalarType.UINT8, "a")
    b = placeholder((_MOST_SUMS, DOT_DEPTH), ScalarType.INT8, "b")
    t = reduce_axis(DOT_DEPTH, "t")
    pattern = compute(
        (_MOST_SUMS,),
        lambda o: reduce_sum(
            cast(a[t.var], ScalarType.INT32) * cast(b[o, t.var], ScalarType.INT32), t
        ),
        "sums",
        scope=scope,
    )
    return Intrinsic(
        name="dot_products",
        pattern=pattern,
        emitter=DOT_EMITTER,
        flexible=("o",),
        overwrites=False,
    )


def emit_dot_products(frame: Frame, memory: Memory, call: IntrinsicCall) -> None:
    """Emit a use of the intrinsic; operands lie densely along their last axes."""
    extent = call.extents[0]
    assert isinstance(extent, Const), "no guard cuts through the lanes"
    left, right = call.inputs
    four = memory.load_as(left.tensor, left.offsets, _INT)
    for start, lanes in _pieces(int(extent.value), frame.target.dot_lanes):
        kind = ir.VectorType(_INT, lanes)
        weights = memory.load_as(right.tensor, _advanced(right.offsets, right.axes[0], start), kind)
        sums = _advanced(call.output.offsets, call.output.axes[0], start)
        total = memory.load_as(call.output.tensor, sums, kind)
        result = _dot(frame.builder, lanes, total, splat(frame.builder, four, lanes), weights)
        memory.store_as(call.output.tensor, sums, result)


def suits_instruction(call: IntrinsicCall) -> bool:
    """Whether the instruction covers the sums of this use without a rest."""
    extent = call.extents[0]
    return isinstance(extent, Const) and int(extent.value) % _FEWEST_SUMS == 0


def _pieces(count: int, width: int) -> Iterator[tuple[int, int]]:
    start = 0
    while start < count:
        lanes = min(width, 1 << ((count - start).bit_length() - 1))
        yield start, lanes
        start += lanes


def _advanced(offsets: tuple[Expr, ...], axis: int, by: int) -> tuple[Expr, ...]:
    return (*offsets[:axis], offsets[axis] + by, *offsets[axis + 1 :])


def _dot(
    builder: ir.IRBuilder, lanes: int, total: ir.Value, a: ir.Value, weights: ir.Value
) -> ir.Value:
    bytes_type = ir.VectorType(ir.IntType(8), lanes * DOT_DEPTH)
    function = declare_intrinsic(
        builder.module,
        f"llvm.x86.avx512.vpdpbusd.{lanes * 32}",
        total.type,
        (total.type, bytes_type, bytes_type),
    )
    operands = (total, builder.bitcast(a, bytes_type), builder.bitcast(weights, bytes_type))
    return builder.call(function, operands)
