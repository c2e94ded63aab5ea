"""Element-wise operators, conversions and softmax in numpy."""

import numpy as np
from typing_extensions import assert_never

from tilewright.compiler.graph import Array
from tilewright.compiler.operators import (
    Add,
    Dequantize,
    DequantizeWeights,
    FloatSoftmax,
    FloatUnary,
    Function,
    Quantize,
    Requantize,
    Softmax,
)
from tilewright.isa.integers import MULTIPLIER_BITS, requantize

#: Magnitude below which a product with a multiplier is exact in float64 (53-bit significand).
FLOAT64_EXACT = 1 << (53 - MULTIPLIER_BITS)


def requantize_fast(
    accumulator: Array,
    bias: Array,
    multiplier: Array,
    shift: Array,
    *,
    magnitude: int,
    zero_point: int,
    low: int,
    high: int,
) -> Array:
    """Do what `tilewright.isa.integers.requantize` does, in float64 where that is exact.

    `magnitude` bounds ``abs(accumulator + bias)``; the accumulator holds integers in any type.
    """
    if magnitude >= FLOAT64_EXACT:
        return requantize(
            accumulator.astype(np.int64),
            bias,
            multiplier,
            shift,
            zero_point=zero_point,
            low=low,
            high=high,
        )
    total = accumulator.astype(np.float64)
    total += bias
    total *= np.ldexp(multiplier.astype(np.float64), -shift.astype(np.int32))
    np.rint(total, out=total)
    total += zero_point
    np.clip(total, low, high, out=total)
    return total.astype(np.int8)


def add(op: Add, a: Array, b: Array) -> Array:
    """Evaluate the sum of two quantised tensors."""
    total = a.astype(np.int64) * op.a_coefficient + b.astype(np.int64) * op.b_coefficient
    return requantize(
        total,
        op.bias,
        op.multiplier,
        op.shift,
        zero_point=op.zero_point,
        low=op.low,
        high=op.high,
    )


def rescale(op: Requantize, x: Array) -> Array:
    """Evaluate a change of scale."""
    return requantize(
        x, op.bias, op.multiplier, op.shift, zero_point=op.zero_point, low=op.low, high=op.high
    )


def quantize(op: Quantize, x: Array) -> Array:
    """Evaluate a quantisation, as ONNX QuantizeLinear defines it."""
    low, high = op.dtype.limits
    steps = np.rint(x / np.float32(op.scale)) + np.float32(op.zero_point)
    quantized: Array = np.clip(steps, low, high).astype(op.dtype.numpy)
    return quantized


def dequantize(op: Dequantize, x: Array) -> Array:
    """Evaluate a dequantisation, as ONNX DequantizeLinear defines it."""
    steps = x.astype(np.int32) - op.zero_point
    real: Array = steps.astype(np.float32) * np.float32(op.scale)
    return real


def dequantize_weights(
    op: DequantizeWeights, values: Array, scale: Array, zero_point: Array
) -> Array:
    """Evaluate the dequantisation of a constant, per tensor or per channel."""
    shape = [1] * values.ndim
    if scale.size > 1:
        shape[op.axis] = scale.size
    steps = values.astype(np.int64) - zero_point.reshape(shape)
    return (steps * scale.reshape(shape)).astype(np.float32)


def softmax(op: Softmax, x: Array, table: Array) -> Array:
    """Evaluate the integer softmax from its table of exponentials."""
    wide = x.astype(np.int32)
    exponentials = table[wide.max(axis=-1, keepdims=True) - wide].astype(np.int64)
    shares = exponentials / exponentials.sum(axis=-1, keepdims=True)
    steps = np.rint(shares / op.scale) + op.zero_point
    quantized: Array = np.clip(steps, -128, 127).astype(np.int8)
    return quantized


def float_softmax(op: FloatSoftmax, x: Array) -> Array:
    """Evaluate a float32 softmax."""
    exponentials = np.exp((x - x.max(axis=-1, keepdims=True)) * np.float32(op.beta))
    shares: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return shares


def apply_function(op: FloatUnary, x: Array) -> Array:
    """Evaluate a function of one real number, in the element type of `x`."""
    result: Array
    match op.function:
        case Function.SIGMOID:
            result = 1 / (1 + np.exp(-x))
        case Function.TANH:
            result = np.tanh(x)
        case Function.HARD_SIGMOID:
            result = np.clip(x * op.alpha + op.beta, 0, 1)
        case Function.HARD_SWISH:
            result = x * np.clip(x + 3, 0, 6) / 6
        case Function.LEAKY_RELU:
            result = np.where(x < 0, x * op.alpha, x)
        case Function.ELU:
            result = np.where(x < 0, op.alpha * np.expm1(x), x)
        case _:
            assert_never(op.function)
    return result
