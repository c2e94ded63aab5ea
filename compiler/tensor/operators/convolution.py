"""Convolutions and matrix products."""

from tilewright.compiler.operators import Conv2d, FloatConv2d, Padding, Pair
from tilewright.compiler.tensor.build import all_of, cast, reduce_sum, select
from tilewright.compiler.tensor.declare import compute, reduce_axis
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.operators.elementwise import INT32, requantized
from tilewright.compiler.tensor.operators.movement import pad_image
from tilewright.compiler.tensor.scalar_types import ScalarType


def conv2d(
    op: Conv2d,
    image: Tensor,
    weights: Tensor,
    bias: Tensor,
    multiplier: Tensor,
    shift: Tensor,
    name: str,
) -> Tensor:
    """Declare a convolution: stages ``.padded``, ``.sum`` (int32) and the requantised result."""
    padded = pad_image(image, op.pads, op.input_zero_point, f"{name}.padded")
    total = correlate(
        padded, weights, op.stride, op.dilation, op.groups, dtype=INT32, name=f"{name}.sum"
    )
    return compute(
        total.shape,
        lambda n, y, x, o: requantized(
            total[n, y, x, o],
            bias[o],
            multiplier[o],
            shift[o],
            zero_point=op.zero_point,
            low=op.low,
            high=op.high,
        ),
        name,
    )


def float_conv2d(
    op: FloatConv2d, image: Tensor, weights: Tensor, bias: Tensor | None, name: str
) -> Tensor:
    """Declare a convolution of real numbers."""
    padded = pad_image(image, op.pads, 0, f"{name}.padded")
    dtype = image.dtype
    total_name = name if bias is None else f"{name}.sum"
    total = correlate(
        padded, weights, op.stride, op.dilation, op.groups, dtype=dtype, name=total_name
    )
    if bias is None:
        return total
    return compute(total.shape, lambda n, y, x, o: total[n, y, x, o] + bias[o], name)


def correlate(
    image: Tensor,
    weights: Tensor,
    stride: Pair,
    dilation: Pair,
    groups: int,
    *,
    dtype: ScalarType,
    name: str,
) -> Tensor:
    """Declare the sums of products of ``[N, H, W, C]`` with ``[O, kh, kw, C / groups]``."""
    batch, height, width, _ = image.shape
    outputs, rows, columns, depth = weights.shape
    share = outputs // groups
    ky, kx, c = reduce_axis(rows, "ky"), reduce_axis(columns, "kx"), reduce_axis(depth, "c")

    def product(n: Expr, y: Expr, x: Expr, o: Expr) -> Expr:
        row = y * stride[0] + ky.var * dilation[0]
        column = x * stride[1] + kx.var * dilation[1]
        channel = o // share * depth + c.var
        value = cast(image[n, row, column, channel], dtype)
        return reduce_sum(value * cast(weights[o, ky.var, kx.var, c.var], dtype), ky, kx, c)

    shape = (
        batch,
        (height - (rows - 1) * dilation[0] - 1) // stride[0] + 1,
        (width - (columns - 1) * dilation[1] - 1) // stride[1] + 1,
        outputs,
    )
    return compute(shape, product, name)


def transposed_conv2d(
    image: Tensor,
    weights: Tensor,
    *,
    stride: Pair,
    pads: Padding = (0, 0, 0, 0),
    input_zero_point: int = 0,
    name: str,
) -> Tensor:
    """Declare the sums of a transposed convolution, over the taps that meet an element only.

    Element ``(y, x)`` of the image adds ``(value - input_zero_point) * weights[o, ky, kx, c]`` to
    the result at ``(y * stride[0] + ky - pads[0], x * stride[1] + kx - pads[1])``. Of ``kh`` rows
    of taps only each ``stride[0]``-th one meets a given row of the result, so the reduction runs
    over ``ceil(kh / stride[0])`` rows.

    Parameters
    ----------
    image, weights
        ``[N, H, W, C]`` and ``[O, kh, kw, C]``; integers are summed in int32.
    """
    batch, height, width, channels = image.shape
    outputs, rows, columns, _ = weights.shape
    top, left, bottom, right = pads
    dtype = image.dtype if image.dtype.is_float else INT32
    ty = reduce_axis(-(-rows // stride[0]), "ty")
    tx = reduce_axis(-(-columns // stride[1]), "tx")
    c = reduce_axis(channels, "c")

    def product(n: Expr, y: Expr, x: Expr, o: Expr) -> Expr:
        row, ky = _meeting(y + top, ty.var, stride[0])
        column, kx = _meeting(x + left, tx.var, stride[1])
        inside = all_of(
            ky < rows, kx < columns, 0 <= row, row < height, 0 <= column, column < width
        )
        value = cast(image[n, row, column, c.var], dtype) - input_zero_point
        tap = cast(weights[o, ky, kx, c.var], dtype)
        return reduce_sum(select(inside, value * tap, 0), ty, tx, c)

    size = (
        (height - 1) * stride[0] + rows - top - bottom,
        (width - 1) * stride[1] + columns - left - right,
    )
    return compute((batch, *size, outputs), product, name)


def _meeting(position: Expr, number: Expr, stride: int) -> tuple[Expr, Expr]:
    """Return the element and the tap of the `number`-th pair that meets at `position`."""
    return position // stride - number, position % stride + number * stride


def matmul(
    a: Tensor, b: Tensor, *, a_zero_point: int = 0, b_zero_point: int = 0, name: str
) -> Tensor:
    """Declare ``a @ b`` of two activations ``[..., M, K]`` and ``[..., K, N]``.

    The zero points are taken off first; integers are summed in int32.
    """
    dtype = a.dtype if a.dtype.is_float else INT32
    k = reduce_axis(a.shape[-1], "k")

    def product(*at: Expr) -> Expr:
        *outer, i, j = at
        left = cast(a.at(*outer, i, k.var), dtype) - a_zero_point
        right = cast(b.at(*outer, k.var, j), dtype) - b_zero_point
        return reduce_sum(left * right, k)

    return compute((*a.shape[:-1], b.shape[-1]), product, name)


def dense(x: Tensor, weights: Tensor, bias: Tensor | None, name: str) -> Tensor:
    """Declare ``x @ weights.T + bias`` for ``[N, K]`` and ``[O, K]``; integers sum in int32."""
    dtype = x.dtype if x.dtype.is_float else INT32
    k = reduce_axis(x.shape[1], "k")

    def product(n: Expr, o: Expr) -> Expr:
        return reduce_sum(cast(x[n, k.var], dtype) * cast(weights[o, k.var], dtype), k)

    shape = (x.shape[0], weights.shape[0])
    total = compute(shape, product, name if bias is None else f"{name}.sum")
    if bias is None:
        return total
    return compute(shape, lambda n, o: total[n, o] + bias[o], name)
