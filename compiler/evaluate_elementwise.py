"""Integer element-wise operators, conversions, softmax and layer norm in numpy."""

import numpy as np

from tilewright.compiler.graph import Array
from tilewright.compiler.operators import (
    Add,
    Dequantize,
    DequantizeWeights,
    LayerNorm,
    Mul,
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


def multiply(op: Mul, a: Array, b: Array) -> Array:
    """Evaluate the product of two quantised tensors, element by element."""
    product = (a.astype(np.int64) - op.a_zero_point) * (b.astype(np.int64) - op.b_zero_point)
    return requantize(
        product,
        0,
        op.multiplier,
        op.shift,
        zero_point=op.zero_point,
        low=op.low,
        high=op.high,
    )


def layer_norm(op: LayerNorm, x: Array, gain: Array, offset: Array) -> Array:
    """Evaluate the normalisation of a quantised tensor over its last axis."""
    wide = x.astype(np.int64)
    count = x.shape[-1]
    total = wide.sum(axis=-1, keepdims=True)
    distance = (count * wide - total).astype(np.float64)
    squares = (wide * wide).sum(axis=-1, keepdims=True)
    root = np.sqrt((count * squares - total * total).astype(np.float64) + op.floor)
    quotient = np.divide(distance, root, out=np.zeros_like(distance), where=root > 0)
    steps = np.rint(quotient * gain.astype(np.float64) + offset.astype(np.float64))
    quantized: Array = np.clip(steps + op.zero_point, op.low, op.high).astype(np.int8)
    return quantized
