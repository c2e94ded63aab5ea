"""The accelerator's operations as intrinsics: matrix tiles, block transfers, vector operations.

Scopes are the scratchpads of `tilewright.isa`: ``inp``, ``wgt``, ``acc``, ``out``; ``global`` is
DRAM.
"""

from collections.abc import Callable

from tilewright.compiler.tensor.build import all_of, cast, parameter, reduce_sum, select
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Expr
from tilewright.compiler.tensor.intrinsics import Intrinsic
from tilewright.compiler.tensor.scalar_types import ScalarType


def gemm_tile(batch: int, block_in: int, block_out: int) -> Intrinsic:
    """Declare one tile of a matrix product of int8 values, the weights transposed.

    ``acc[b, o] (+)= sum(int32(inp[b, c]) * int32(wgt[o, c]) over c)``
    """
    inp = placeholder((batch, block_in), ScalarType.INT8, "inp", scope="inp")
    wgt = placeholder((block_out, block_in), ScalarType.INT8, "wgt", scope="wgt")
    c = reduce_axis(block_in, "c")
    wide = ScalarType.INT32
    acc = compute(
        (batch, block_out),
        lambda b, o: reduce_sum(cast(inp[b, c.var], wide) * cast(wgt[o, c.var], wide), c),
        "acc",
        scope="acc",
    )
    return Intrinsic(name="gemm", pattern=acc, emitter="gemm")


def transfer(
    name: str, dtype: ScalarType, source: str, target: str, rows: int, columns: int
) -> Intrinsic:
    """Declare a copy of up to `rows` times `columns` elements from one memory to another."""
    origin = placeholder((rows, columns), dtype, "source", scope=source)
    copy = compute((rows, columns), lambda row, column: origin[row, column], "target", scope=target)
    return Intrinsic(name=name, pattern=copy, emitter=name, flexible=("row", "column"))


def padded_transfer(
    name: str, dtype: ScalarType, source: str, target: str, shape: tuple[int, int, int]
) -> Intrinsic:
    """Declare a copy of up to `shape` rows, columns and lanes, with a border of one value.

    Row `row` and column `column` of the target are those of the source where ``top <= row <
    bottom`` and ``left <= column < right``, and `fill` elsewhere; the source's region may begin
    outside of its tensor.
    """
    origin = placeholder(shape, dtype, "source", scope=source)
    top, bottom, left, right = (
        parameter(end, ScalarType.INDEX) for end in ("top", "bottom", "left", "right")
    )
    fill = parameter("fill", dtype)

    def element(row: Expr, column: Expr, lane: Expr) -> Expr:
        inside = all_of(top <= row, row < bottom, left <= column, column < right)
        return select(inside, origin[row, column, lane], fill)

    copy = compute(
        shape, element, "target", scope=target, parameters=("top", "bottom", "left", "right")
    )
    return Intrinsic(name=name, pattern=copy, emitter=name, flexible=("row", "column", "lane"))


def vector_immediate(
    name: str, lanes: int, operation: Callable[[Expr, Expr], Expr], emitter: str
) -> Intrinsic:
    """Declare a vector operation on int32 accumulators with a scalar called ``immediate``."""
    value = placeholder((lanes,), ScalarType.INT32, "value", scope="acc")
    immediate = parameter("immediate", ScalarType.INT32)
    result = compute(
        (lanes,), lambda lane: operation(value[lane], immediate), "result", scope="acc"
    )
    return Intrinsic(name=name, pattern=result, emitter=emitter)
