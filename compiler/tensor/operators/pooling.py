"""Pooling over windows of ``[N, H, W, C]``."""

from tilewright.compiler.operators import (
    AveragePool2d,
    FloatAveragePool2d,
    MaxPool2d,
    Pair,
)
from tilewright.compiler.tensor.build import (
    cast,
    constant,
    equal,
    maximum,
    minimum,
    reduce_max,
    reduce_sum,
    select,
)
from tilewright.compiler.tensor.declare import compute, reduce_axis
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.operations import Number, Reduction
from tilewright.compiler.tensor.operators.elementwise import INT32, requantized
from tilewright.compiler.tensor.operators.movement import pad_image
from tilewright.compiler.tensor.scalar_types import ScalarType


def max_pool(op: MaxPool2d, image: Tensor, name: str) -> Tensor:
    """Declare the maximum over windows."""
    lowest = Reduction.MAX.identity(image.dtype)
    return reduced_windows(op, image, Reduction.MAX, lowest, image.dtype, name)


def average_pool(op: AveragePool2d, image: Tensor, name: str) -> Tensor:
    """Declare the integer mean over windows: stages ``.padded``, ``.sum`` and the result."""
    total = reduced_windows(op, image, Reduction.SUM, op.input_zero_point, INT32, f"{name}.sum")

    def mean(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        taps = op.kernel[0] * op.kernel[1]
        count = _count(op, image, y, x)
        multiplier: Expr = constant(op.multiplier, INT32)
        shift: Expr = constant(op.shift, INT32)
        for scale in op.border:
            multiplier = select(equal(count, scale.count), scale.multiplier, multiplier)
            shift = select(equal(count, scale.count), scale.shift, shift)
        return requantized(
            total[n, y, x, c] - taps * op.input_zero_point,
            0,
            multiplier,
            shift,
            zero_point=op.zero_point,
            low=op.low,
            high=op.high,
        )

    return compute(total.shape, mean, name)


def float_average_pool(op: FloatAveragePool2d, image: Tensor, name: str) -> Tensor:
    """Declare the mean over windows of real numbers."""
    total = reduced_windows(op, image, Reduction.SUM, 0, image.dtype, f"{name}.sum")

    def mean(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        if op.count_include_pad:
            return total[n, y, x, c] / (op.kernel[0] * op.kernel[1])
        return total[n, y, x, c] / cast(_count(op, image, y, x), image.dtype)

    return compute(total.shape, mean, name)


def reduced_windows(
    op: MaxPool2d | AveragePool2d | FloatAveragePool2d,
    image: Tensor,
    reduction: Reduction,
    border: Number,
    dtype: ScalarType,
    name: str,
) -> Tensor:
    """Declare the reduction of each window, padding being worth `border`."""
    padded = pad_image(image, op.pads, border, f"{name}.padded")
    shape = (image.shape[0], *_size(padded, op.kernel, op.stride), image.shape[3])
    ky, kx = reduce_axis(op.kernel[0], "ky"), reduce_axis(op.kernel[1], "kx")
    reduce = reduce_sum if reduction is Reduction.SUM else reduce_max

    def window(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        row, column = y * op.stride[0] + ky.var, x * op.stride[1] + kx.var
        return reduce(cast(padded[n, row, column, c], dtype), ky, kx)

    return compute(shape, window, name)


def _size(padded: Tensor, kernel: Pair, stride: Pair) -> Pair:
    _, height, width, _ = padded.shape
    return (height - kernel[0]) // stride[0] + 1, (width - kernel[1]) // stride[1] + 1


def _count(op: AveragePool2d | FloatAveragePool2d, image: Tensor, y: Expr, x: Expr) -> Expr:
    """Return how many elements of a window lie in the image."""
    rows = _inside(y, op.kernel[0], op.stride[0], op.pads[0], image.shape[1])
    columns = _inside(x, op.kernel[1], op.stride[1], op.pads[1], image.shape[2])
    return rows * columns


def _inside(index: Expr, kernel: int, stride: int, ahead: int, extent: int) -> Expr:
    begin = index * stride - ahead
    return minimum(begin + kernel, extent) - maximum(begin, 0)
