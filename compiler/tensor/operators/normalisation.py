"""Operators that relate each element to all others along the last axis, and reductions."""

from collections.abc import Callable, Mapping
from math import prod

from tilewright.compiler.operators import (
    FloatLayerNorm,
    FloatReduce,
    FloatSoftmax,
    LayerNorm,
    Reduction,
    Softmax,
)
from tilewright.compiler.tensor.build import (
    call,
    cast,
    clip,
    reduce_max,
    reduce_min,
    reduce_product,
    reduce_sum,
    select,
)
from tilewright.compiler.tensor.declare import compute, reduce_axis
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.operations import Function
from tilewright.compiler.tensor.operators.elementwise import INT8, INT32, INT64
from tilewright.compiler.tensor.scalar_types import ScalarType


def softmax(op: Softmax, x: Tensor, table: Tensor, name: str) -> Tensor:
    """Declare the integer softmax: stages ``.peak``, ``.exp``, ``.sum`` and the result."""
    peak = _peak(x, name)

    def exponential(*at: Expr) -> Expr:
        below = cast(peak[at[:-1]], INT32) - cast(x[at], INT32)
        return cast(table[cast(below, ScalarType.INDEX)], INT64)

    exponentials = compute(x.shape, exponential, f"{name}.exp")
    total = _total(exponentials, name)
    exact = ScalarType.FLOAT64

    def share(*at: Expr) -> Expr:
        part = cast(exponentials[at], exact) / cast(total[at[:-1]], exact)
        steps = call(Function.ROUND_HALF_EVEN, part / op.scale) + op.zero_point
        return cast(clip(steps, -128, 127), INT8)

    return compute(x.shape, share, name)


def float_softmax(op: FloatSoftmax, x: Tensor, name: str) -> Tensor:
    """Declare a softmax of real numbers: stages ``.peak``, ``.exp``, ``.sum`` and the result."""
    peak = _peak(x, name)

    def distance(*at: Expr) -> Expr:
        return (x[at] - peak[at[:-1]]) * op.beta

    exponentials = compute(x.shape, lambda *at: call(Function.EXP, distance(*at)), f"{name}.exp")
    total = _total(exponentials, name)

    def share(*at: Expr) -> Expr:
        if op.logarithm:
            return distance(*at) - call(Function.LOG, total[at[:-1]])
        return exponentials[at] / total[at[:-1]]

    return compute(x.shape, share, name)


def layer_norm(op: LayerNorm, x: Tensor, gain: Tensor, offset: Tensor, name: str) -> Tensor:
    """Declare the integer layer norm: stages ``.sum``, ``.squares`` and the result."""
    count = x.shape[-1]
    k = reduce_axis(count, "k")
    total = compute(
        x.shape[:-1], lambda *at: reduce_sum(cast(x.at(*at, k.var), INT64), k), f"{name}.sum"
    )

    def square(*at: Expr) -> Expr:
        value = cast(x.at(*at, k.var), INT64)
        return reduce_sum(value * value, k)

    squares = compute(x.shape[:-1], square, f"{name}.squares")
    exact = ScalarType.FLOAT64

    def normalised(*at: Expr) -> Expr:
        row, channel = at[:-1], at[-1]
        spread = cast(squares[row] * count - total[row] * total[row], exact) + op.floor
        root = call(Function.SQRT, spread)
        distance = cast(cast(x[at], INT64) * count - total[row], exact)
        quotient = select(0 < root, distance / root, 0)
        scaled = quotient * cast(gain[channel], exact) + cast(offset[channel], exact)
        steps = call(Function.ROUND_HALF_EVEN, scaled) + op.zero_point
        return cast(clip(steps, op.low, op.high), INT8)

    return compute(x.shape, normalised, name)


def float_layer_norm(
    op: FloatLayerNorm, x: Tensor, gain: Tensor, offset: Tensor, name: str
) -> Tensor:
    """Declare a layer norm of real numbers: stages ``.sum``, ``.squares`` and the result."""
    count = x.shape[-1]
    total = _total(x, name)
    k = reduce_axis(count, "k")

    def square(*at: Expr) -> Expr:
        distance = x.at(*at, k.var) - total[at] / count
        return reduce_sum(distance * distance, k)

    squares = compute(x.shape[:-1], square, f"{name}.squares")

    def normalised(*at: Expr) -> Expr:
        deviation = call(Function.SQRT, squares[at[:-1]] / count + op.epsilon)
        return (x[at] - total[at[:-1]] / count) / deviation * gain[at[-1]] + offset[at[-1]]

    return compute(x.shape, normalised, name)


def reduction(op: FloatReduce, x: Tensor, name: str) -> Tensor:
    """Declare a reduction that keeps its axes with size 1; a mean has a stage ``.sum``."""
    reduced = {axis: reduce_axis(x.shape[axis], f"k{axis}") for axis in op.axes}
    shape = tuple(1 if axis in reduced else extent for axis, extent in enumerate(x.shape))
    combine = _REDUCTIONS[op.function]

    def total(*at: Expr) -> Expr:
        places = (reduced[axis].var if axis in reduced else at[axis] for axis in range(len(at)))
        return combine(x.at(*places), *reduced.values())

    if op.function is not Reduction.MEAN:
        return compute(shape, total, name)
    sums = compute(shape, total, f"{name}.sum")
    count = prod(x.shape[axis] for axis in op.axes)
    return compute(shape, lambda *at: sums[at] / count, name)


_REDUCTIONS: Mapping[Reduction, Callable[..., Expr]] = {
    Reduction.MEAN: reduce_sum,
    Reduction.SUM: reduce_sum,
    Reduction.MAXIMUM: reduce_max,
    Reduction.MINIMUM: reduce_min,
    Reduction.PRODUCT: reduce_product,
}


def _peak(x: Tensor, name: str) -> Tensor:
    k = reduce_axis(x.shape[-1], "k")
    return compute(x.shape[:-1], lambda *at: reduce_max(x.at(*at, k.var), k), f"{name}.peak")


def _total(x: Tensor, name: str) -> Tensor:
    k = reduce_axis(x.shape[-1], "k")
    return compute(x.shape[:-1], lambda *at: reduce_sum(x.at(*at, k.var), k), f"{name}.sum")
