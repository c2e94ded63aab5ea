"""Pooling in numpy."""

import numpy as np

from tilewright.compiler.evaluate_convolution import pad_image, window_view
from tilewright.compiler.graph import Array
from tilewright.compiler.operators import AveragePool2d, FloatAveragePool2d, MaxPool2d, Pair
from tilewright.compiler.operators.tensor_type import window_positions
from tilewright.isa.integers import requantize


def max_pool(op: MaxPool2d, x: Array) -> Array:
    """Evaluate a maximum over windows."""
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    view = window_view(pad_image(x, op.pads, lowest), op.kernel, op.stride)
    result = view[..., 0, 0]
    for row, column in np.ndindex(op.kernel):
        result = np.maximum(result, view[..., row, column])
    return result


def average_pool(op: AveragePool2d, x: Array) -> Array:
    """Evaluate an integer average over windows."""
    centred = x.astype(np.int32) - op.input_zero_point
    sums = _window_sums(pad_image(centred, op.pads, 0), op.kernel, op.stride)
    multiplier = np.full(sums.shape[1:3], op.multiplier)
    shift = np.full(sums.shape[1:3], op.shift)
    if op.border:
        counts = window_counts(op, (x.shape[1], x.shape[2]))
        for scale in op.border:
            multiplier[counts == scale.count] = scale.multiplier
            shift[counts == scale.count] = scale.shift
    return requantize(
        sums,
        0,
        multiplier[..., np.newaxis],
        shift[..., np.newaxis],
        zero_point=op.zero_point,
        low=op.low,
        high=op.high,
    )


def float_average_pool(op: FloatAveragePool2d, x: Array) -> Array:
    """Evaluate a float32 average over windows."""
    sums = _window_sums(pad_image(x, op.pads, 0), op.kernel, op.stride)
    if op.count_include_pad:
        counts = np.full(sums.shape[1:3], op.kernel[0] * op.kernel[1])
    else:
        counts = window_counts(op, (x.shape[1], x.shape[2]))
    mean: Array = sums / counts[..., np.newaxis].astype(np.float32)
    return mean


def window_counts(op: AveragePool2d | FloatAveragePool2d, size: Pair) -> Array:
    """Return, per output position, how many elements of the window lie in an image of `size`."""
    rows, columns = axis_counts(op, size)
    counts: Array = np.multiply.outer(rows, columns)
    return counts


def axis_counts(op: AveragePool2d | FloatAveragePool2d, size: Pair) -> tuple[Array, Array]:
    """Return how many rows of each window lie in an image of `size`, and how many columns."""
    counts = []
    for axis in range(2):
        before, after = op.pads[axis], op.pads[axis + 2]
        kernel, stride = op.kernel[axis], op.stride[axis]
        positions = window_positions(size[axis], kernel, stride, before + after)
        start = np.arange(positions) * stride - before
        counts.append(np.minimum(start + kernel, size[axis]) - np.maximum(start, 0))
    return counts[0], counts[1]


def _window_sums(padded: Array, kernel: Pair, stride: Pair) -> Array:
    view = window_view(padded, kernel, stride)
    sums = np.zeros_like(view[..., 0, 0])
    for row, column in np.ndindex(kernel):
        sums += view[..., row, column]
    return sums
