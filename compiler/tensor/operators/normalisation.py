"""Operators that relate each element to all others along the last axis."""

from tilewright.compiler.operators import FloatSoftmax, Softmax
from tilewright.compiler.tensor.build import call, cast, clip, reduce_max, reduce_sum
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
    exponentials = compute(
        x.shape,
        lambda *at: call(Function.EXP, (x[at] - peak[at[:-1]]) * op.beta),
        f"{name}.exp",
    )
    total = _total(exponentials, name)
    return compute(x.shape, lambda *at: exponentials[at] / total[at[:-1]], name)


def layer_norm(x: Tensor, gain: Tensor, offset: Tensor, *, epsilon: float, name: str) -> Tensor:
    """Declare ``(x - mean) / sqrt(variance + epsilon) * gain + offset`` over the last axis."""
    count = x.shape[-1]
    total = _total(x, name)
    k = reduce_axis(count, "k")

    def square(*at: Expr) -> Expr:
        distance = x.at(*at, k.var) - total[at] / count
        return reduce_sum(distance * distance, k)

    squares = compute(x.shape[:-1], square, f"{name}.squares")

    def normalised(*at: Expr) -> Expr:
        deviation = call(Function.SQRT, squares[at[:-1]] / count + epsilon)
        return (x[at] - total[at[:-1]] / count) / deviation * gain[at[-1]] + offset[at[-1]]

    return compute(x.shape, normalised, name)


def _peak(x: Tensor, name: str) -> Tensor:
    k = reduce_axis(x.shape[-1], "k")
    return compute(x.shape[:-1], lambda *at: reduce_max(x.at(*at, k.var), k), f"{name}.peak")


def _total(x: Tensor, name: str) -> Tensor:
    k = reduce_axis(x.shape[-1], "k")
    return compute(x.shape[:-1], lambda *at: reduce_sum(x.at(*at, k.var), k), f"{name}.sum")
