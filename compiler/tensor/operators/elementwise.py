"""Operators that compute each element from those at the same place, and their requantisation."""

import math
from collections.abc import Callable, Mapping

from typing_extensions import assert_never

from tilewright.compiler.operators import (
    Add,
    Cast,
    Clip,
    Dequantize,
    DequantizeWeights,
    FloatClip,
    FloatUnary,
    Function,
    Quantize,
    Reinterpret,
    Requantize,
)
from tilewright.compiler.tensor import operations
from tilewright.compiler.tensor.build import (
    call,
    cast,
    clip,
    constant,
    maximum,
    minimum,
    round_shift,
    select,
)
from tilewright.compiler.tensor.declare import compute
from tilewright.compiler.tensor.expressions import Expr, Operand, Tensor
from tilewright.compiler.tensor.scalar_types import ScalarType

INT8, INT32, INT64 = ScalarType.INT8, ScalarType.INT32, ScalarType.INT64
FLOAT32 = ScalarType.FLOAT32


def requantized(
    accumulator: Expr,
    bias: Operand,
    multiplier: Operand,
    shift: Operand,
    *,
    zero_point: Operand,
    low: Operand,
    high: Operand,
) -> Expr:
    """Return what `tilewright.isa.integers.requantize` does to an accumulator of any integer type.

    Bias, multiplier and shift are numbers or int32 expressions.
    """

    def wide(operand: Operand) -> Operand:
        return operand if isinstance(operand, int | float) else cast(operand, INT64)

    total = cast(accumulator, INT64) + wide(bias)
    steps = round_shift(total * wide(multiplier), wide(shift)) + zero_point
    return cast(clip(steps, low, high), INT8)


def elementwise(name: str, function: Callable[..., Expr], *operands: Tensor) -> Tensor:
    """Declare ``function`` of the elements of tensors of one shape."""
    return compute(
        operands[0].shape, lambda *at: function(*(operand[at] for operand in operands)), name
    )


def requantize(op: Requantize, x: Tensor, name: str) -> Tensor:
    """Declare a change of scale and zero point."""
    return elementwise(name, lambda value: scaled(op, value), x)


def scaled(op: Add | Requantize, accumulator: Expr) -> Expr:
    """Return an accumulator after the requantisation that `op` holds."""
    return requantized(
        accumulator,
        op.bias,
        op.multiplier,
        op.shift,
        zero_point=op.zero_point,
        low=op.low,
        high=op.high,
    )


def clipped(op: Clip | FloatClip, x: Tensor, name: str) -> Tensor:
    """Declare a limitation to an interval."""
    return elementwise(name, lambda value: clip(value, op.low, op.high), x)


def lookup(x: Tensor, table: Tensor, name: str) -> Tensor:
    """Declare a function of int8 values by its 256 results."""
    return elementwise(name, lambda value: table[cast(value, ScalarType.INDEX) + 128], x)


def quantize(op: Quantize, x: Tensor, name: str) -> Tensor:
    """Declare a quantisation."""
    low, high = op.dtype.limits

    def steps(value: Expr) -> Expr:
        rounded = call(operations.Function.ROUND_HALF_EVEN, value / op.scale)
        return cast(clip(rounded + op.zero_point, low, high), ScalarType(op.dtype.value))

    return elementwise(name, steps, x)


def dequantize(op: Dequantize, x: Tensor, name: str) -> Tensor:
    """Declare a dequantisation."""
    return elementwise(
        name, lambda value: cast(cast(value, INT32) - op.zero_point, FLOAT32) * op.scale, x
    )


def dequantize_weights(
    op: DequantizeWeights, values: Tensor, scale: Tensor, zero_point: Tensor, name: str
) -> Tensor:
    """Declare the dequantisation of a constant, per tensor or per channel."""
    exact = ScalarType.FLOAT64
    per_channel = scale.shape[0] > 1

    def real(*at: Expr) -> Expr:
        channel: Operand = at[op.axis] if per_channel else 0
        steps = cast(values[at], INT64) - cast(zero_point[channel], INT64)
        return cast(cast(steps, exact) * cast(scale[channel], exact), FLOAT32)

    return compute(values.shape, real, name)


def reinterpret(op: Reinterpret, x: Tensor, name: str) -> Tensor:
    """Declare a move of the zero point by 128 between uint8 and int8."""
    shift = -128 if x.dtype is ScalarType.UINT8 else 128
    target = ScalarType(op.dtype.value)
    return elementwise(name, lambda value: cast(cast(value, INT32) + shift, target), x)


def converted(op: Cast, x: Tensor, name: str) -> Tensor:
    """Declare a change of type."""
    return elementwise(name, lambda value: cast(value, ScalarType(op.dtype.value)), x)


def unary(op: FloatUnary, x: Tensor, name: str) -> Tensor:
    """Declare a function of one real number."""
    return elementwise(name, lambda value: _function(op, value), x)


def gelu(x: Tensor, name: str) -> Tensor:
    """Declare ``x * (1 + erf(x / sqrt(2))) / 2``."""
    return elementwise(name, _gelu, x)


def _function(op: FloatUnary, value: Expr) -> Expr:  # noqa: C901
    exponential = operations.Function.EXP
    match op.function:
        case Function.SIGMOID:
            return _sigmoid(value)
        case Function.TANH:
            return call(operations.Function.TANH, value)
        case Function.HARD_SIGMOID:
            return clip(value * op.alpha + op.beta, 0, 1)
        case Function.HARD_SWISH:
            return value * minimum(maximum(value + 3, 0), 6) / 6
        case Function.LEAKY_RELU:
            return select(value < 0, value * op.alpha, value)
        case Function.ELU:
            return select(value < 0, (call(exponential, value) - 1) * op.alpha, value)
        case Function.SILU:
            return value * _sigmoid(value)
        case Function.GELU:
            return _gelu(value)
        case Function.GELU_TANH:
            inner = (value + value * value * value * 0.044715) * (2 / math.pi) ** 0.5
            return value * 0.5 * (call(operations.Function.TANH, inner) + 1)
        case Function.SOFTPLUS:
            return _softplus(value)
        case Function.MISH:
            return value * call(operations.Function.TANH, _softplus(value))
        case Function.RECIPROCAL:
            return 1 / value
        case Function.NEGATE:
            return -value
        case Function.CEIL:
            return -call(operations.Function.FLOOR, -value)
        case Function.SIGN:
            return select(value < 0, -1.0, select(0 < value, 1.0, value * 0))
        case Function.EXP | Function.LOG | Function.SQRT | Function.ABSOLUTE:
            return call(CALLS[op.function], value)
        case Function.ERF | Function.FLOOR | Function.ROUND:
            return call(CALLS[op.function], value)
        case _:
            assert_never(op.function)


#: Functions of the graph that expressions have under their own name.
CALLS: Mapping[Function, operations.Function] = {
    Function.EXP: operations.Function.EXP,
    Function.LOG: operations.Function.LOG,
    Function.SQRT: operations.Function.SQRT,
    Function.ABSOLUTE: operations.Function.ABSOLUTE,
    Function.ERF: operations.Function.ERF,
    Function.FLOOR: operations.Function.FLOOR,
    Function.ROUND: operations.Function.ROUND_HALF_EVEN,
}


def _sigmoid(value: Expr) -> Expr:
    return 1 / (call(operations.Function.EXP, -value) + 1)


def _softplus(value: Expr) -> Expr:
    below = call(operations.Function.EXP, -call(operations.Function.ABSOLUTE, value))
    return maximum(value, 0) + call(operations.Function.LOG, below + 1)


def _gelu(value: Expr) -> Expr:
    half, root = constant(0.5, value.dtype), constant(2**-0.5, value.dtype)
    return value * half * (call(operations.Function.ERF, value * root) + 1)
