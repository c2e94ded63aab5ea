"""Convolutions in numpy, integer ones exactly, through matrix products in floating point.

A sum of integer products is exact in floating point, in any order, as long as the sum of the
products' magnitudes stays below the significand; the bound decides between float32 and float64.
"""

import numpy as np
import numpy.typing as npt

from tilewright.compiler.evaluate_elementwise import requantize_fast
from tilewright.compiler.graph import Array
from tilewright.compiler.operators import (
    Conv2d,
    ConvTranspose2d,
    FloatConv2d,
    FloatConvTranspose2d,
    MatMul,
    Padding,
    Pair,
)

#: Integers up to this magnitude are exact in float32 (24-bit significand).
FLOAT32_EXACT = 1 << 24
#: Largest magnitude of an int8 activation.
ACTIVATION_MAX = 128


def convolve(
    op: Conv2d, x: Array, weights: Array, bias: Array, multiplier: Array, shift: Array
) -> Array:
    """Evaluate an integer convolution; see `Conv2d` for the definition and the operands."""
    bound, dtype = _exact_type(weights, ACTIVATION_MAX)
    padded = pad_image(x, op.pads, op.input_zero_point).astype(dtype)
    sums = _correlate(padded, weights.astype(dtype), op.stride, op.dilation, op.groups)
    magnitude = bound + int(np.abs(bias.astype(np.int64)).max(initial=0))
    return requantize_fast(
        sums,
        bias,
        multiplier,
        shift,
        magnitude=magnitude,
        zero_point=op.zero_point,
        low=op.low,
        high=op.high,
    )


def convolve_transposed(
    op: ConvTranspose2d, x: Array, weights: Array, bias: Array, multiplier: Array, shift: Array
) -> Array:
    """Evaluate an integer transposed convolution; see `ConvTranspose2d` for the definition."""
    bound, dtype = _exact_type(weights, 2 * ACTIVATION_MAX)
    centred = x.astype(dtype) - dtype(op.input_zero_point)
    return requantize_fast(
        _scatter(op, centred, weights.astype(dtype)),
        bias,
        multiplier,
        shift,
        magnitude=bound + int(np.abs(bias.astype(np.int64)).max(initial=0)),
        zero_point=op.zero_point,
        low=op.low,
        high=op.high,
    )


def multiply_matrices(op: MatMul, a: Array, b: Array) -> Array:
    """Evaluate the product of two quantised activations."""
    bound = a.shape[-1] * (2 * ACTIVATION_MAX) ** 2
    dtype = np.float32 if bound < FLOAT32_EXACT else np.float64
    left, right = a.astype(dtype) - dtype(op.a_zero_point), b.astype(dtype) - dtype(op.b_zero_point)
    return requantize_fast(
        left @ right,
        np.zeros((), np.int64),
        np.asarray(op.multiplier),
        np.asarray(op.shift),
        magnitude=bound,
        zero_point=op.zero_point,
        low=op.low,
        high=op.high,
    )


def convolve_transposed_float(
    op: FloatConvTranspose2d, x: Array, weights: Array, bias: Array | None = None
) -> Array:
    """Evaluate a float32 transposed convolution."""
    sums = _scatter(op, x, weights)
    return sums if bias is None else sums + bias


def convolve_float(op: FloatConv2d, x: Array, weights: Array, bias: Array | None = None) -> Array:
    """Evaluate a float32 convolution."""
    padded = pad_image(x, op.pads, 0)
    sums = _correlate(padded, weights, op.stride, op.dilation, op.groups)
    return sums if bias is None else sums + bias


def pad_image(x: Array, pads: Padding, value: float) -> Array:
    """Surround the image ``[N, H, W, C]`` with `value`."""
    if not any(pads):
        return x
    top, left, bottom, right = pads
    widths = ((0, 0), (top, bottom), (left, right), (0, 0))
    return np.pad(x, widths, constant_values=x.dtype.type(value))


def window_view(x: Array, kernel: Pair, stride: Pair, dilation: Pair = (1, 1)) -> Array:
    """View the windows of ``[N, H, W, C]`` as ``[N, H', W', C, kh, kw]`` without a copy."""
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    view: Array = np.lib.stride_tricks.sliding_window_view(x, spans, axis=(1, 2))
    return view[:, :: stride[0], :: stride[1], :, :: dilation[0], :: dilation[1]]


def _exact_type(weights: Array, activation_max: int) -> tuple[int, type[np.floating]]:
    """Return a bound of the sums over a window, and a type in which they are exact."""
    taps = np.abs(weights.astype(np.int64)).reshape(weights.shape[0], -1).sum(axis=1)
    bound = activation_max * int(taps.max(initial=0))
    return bound, np.float32 if bound < FLOAT32_EXACT else np.float64


def _scatter(op: ConvTranspose2d | FloatConvTranspose2d, x: Array, weights: Array) -> Array:
    """Add each pixel times the kernel to the result, then cut the padding off."""
    outputs, rows, columns, depth = weights.shape
    batch, height, width, _ = x.shape
    span = tuple(
        (size - 1) * stride + (kernel - 1) * dilation + 1 + extra
        for size, kernel, stride, dilation, extra in zip(
            (height, width), (rows, columns), op.stride, op.dilation, op.extra, strict=True
        )
    )
    full = np.zeros((batch, *span, outputs), dtype=x.dtype)
    grouped = x.reshape(batch, height, width, op.groups, depth)
    kernels = weights.reshape(op.groups, outputs // op.groups, rows, columns, depth)
    for row, column in np.ndindex(rows, columns):
        tap = np.einsum("nhwgc,goc->nhwgo", grouped, kernels[:, :, row, column], optimize=True)
        top, left = row * op.dilation[0], column * op.dilation[1]
        full[
            :,
            top : top + (height - 1) * op.stride[0] + 1 : op.stride[0],
            left : left + (width - 1) * op.stride[1] + 1 : op.stride[1],
        ] += tap.reshape(batch, height, width, outputs)
    top, left, bottom, right = op.pads
    return np.ascontiguousarray(full[:, top : span[0] - bottom, left : span[1] - right])


def _correlate(
    padded: Array, weights: Array, stride: Pair, dilation: Pair, groups: int
) -> npt.NDArray[np.floating]:
    outputs, rows, columns, depth = weights.shape
    view = window_view(padded, (rows, columns), stride, dilation)
    if depth == 1 and groups == padded.shape[3]:
        return _depthwise(view, weights)
    if groups == 1:
        return _matrix_product(view, weights)
    share = outputs // groups
    parts = [
        _matrix_product(
            view[:, :, :, group * depth : (group + 1) * depth],
            weights[group * share : (group + 1) * share],
        )
        for group in range(groups)
    ]
    return np.concatenate(parts, axis=3)


def _matrix_product(view: Array, weights: Array) -> Array:
    batch, height, width = view.shape[:3]
    matrix = view.transpose(0, 1, 2, 4, 5, 3).reshape(batch * height * width, -1)
    product: Array = matrix @ weights.reshape(weights.shape[0], -1).T
    return product.reshape(batch, height, width, -1)


def _depthwise(view: Array, weights: Array) -> Array:
    outputs, rows, columns, _ = weights.shape
    batch, height, width, channels = view.shape[:4]
    shape = (batch, height, width, channels, outputs // channels)
    sums = np.zeros(shape, dtype=view.dtype)
    for row in range(rows):
        for column in range(columns):
            tap = weights[:, row, column, 0].reshape(channels, -1)
            sums += view[..., row, column, np.newaxis] * tap
    return sums.reshape(batch, height, width, outputs)
