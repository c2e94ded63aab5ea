"""Convolutions and matrix products."""

from tilewright.compiler.operators import (
    Conv2d,
    ConvTranspose2d,
    FloatConv2d,
    FloatConvTranspose2d,
    MatMul,
    Pair,
)
from tilewright.compiler.tensor.build import all_of, cast, constant, equal, reduce_sum, select
from tilewright.compiler.tensor.declare import compute, reduce_axis
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.operators.broadcasting import (
    broadcast_element,
    broadcast_shape,
)
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
    op: ConvTranspose2d,
    image: Tensor,
    weights: Tensor,
    bias: Tensor,
    multiplier: Tensor,
    shift: Tensor,
    name: str,
) -> Tensor:
    """Declare a transposed convolution: stages ``.sum`` (int32) and the requantised result."""
    total = transposed_sums(op, image, weights, op.input_zero_point, f"{name}.sum")
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


def float_transposed_conv2d(
    op: FloatConvTranspose2d, image: Tensor, weights: Tensor, bias: Tensor | None, name: str
) -> Tensor:
    """Declare a transposed convolution of real numbers."""
    if bias is None:
        return transposed_sums(op, image, weights, 0, name)
    total = transposed_sums(op, image, weights, 0, f"{name}.sum")
    return compute(total.shape, lambda n, y, x, o: total[n, y, x, o] + bias[o], name)


def transposed_sums(
    op: ConvTranspose2d | FloatConvTranspose2d,
    image: Tensor,
    weights: Tensor,
    input_zero_point: int,
    name: str,
) -> Tensor:
    """Declare the sums of a transposed convolution, over the taps that meet an element only.

    Without dilation, of ``kh`` rows of taps only each ``stride[0]``-th one meets a given row of the
    result, so the reduction runs over ``ceil(kh / stride[0])`` rows. Integers are summed in int32.
    """
    batch, height, width, _ = image.shape
    outputs, rows, columns, depth = weights.shape
    top, left, bottom, right = op.pads
    share = outputs // op.groups
    dtype = image.dtype if image.dtype.is_float else INT32
    ty = reduce_axis(_meetings(rows, op.stride[0], op.dilation[0]), "ty")
    tx = reduce_axis(_meetings(columns, op.stride[1], op.dilation[1]), "tx")
    c = reduce_axis(depth, "c")

    def product(n: Expr, y: Expr, x: Expr, o: Expr) -> Expr:
        row, ky, meets_row = _meeting(y + top, ty.var, op.stride[0], op.dilation[0])
        column, kx, meets_column = _meeting(x + left, tx.var, op.stride[1], op.dilation[1])
        inside = all_of(
            *(meets_row, ky < rows, 0 <= row, row < height),
            *(meets_column, kx < columns, 0 <= column, column < width),
        )
        channel = o // share * depth + c.var
        value = cast(image[n, row, column, channel], dtype) - input_zero_point
        tap = cast(weights[o, ky, kx, c.var], dtype)
        return reduce_sum(select(inside, value * tap, 0), ty, tx, c)

    size = (
        (height - 1) * op.stride[0] + (rows - 1) * op.dilation[0] + 1 + op.extra[0] - top - bottom,
        (width - 1) * op.stride[1]
        + (columns - 1) * op.dilation[1]
        + 1
        + op.extra[1]
        - left
        - right,
    )
    return compute((batch, *size, outputs), product, name)


def _meetings(taps: int, stride: int, dilation: int) -> int:
    return -(-taps // stride) if dilation == 1 else taps


def _meeting(position: Expr, number: Expr, stride: int, dilation: int) -> tuple[Expr, Expr, Expr]:
    """Return element and tap of the `number`-th pair at `position`, and whether they do meet."""
    if dilation == 1:
        always = constant(True, ScalarType.BOOL)
        return position // stride - number, position % stride + number * stride, always
    distance = position - number * dilation
    return distance // stride, number, equal(distance % stride, 0)


def matmul(op: MatMul, a: Tensor, b: Tensor, name: str) -> Tensor:
    """Declare the product of two quantised activations: stages ``.sum`` and the result."""
    total = product_sums(a, b, op.a_zero_point, op.b_zero_point, f"{name}.sum")
    return compute(
        total.shape,
        lambda *at: requantized(
            total[at],
            0,
            op.multiplier,
            op.shift,
            zero_point=op.zero_point,
            low=op.low,
            high=op.high,
        ),
        name,
    )


def product_sums(a: Tensor, b: Tensor, a_zero_point: int, b_zero_point: int, name: str) -> Tensor:
    """Declare ``a @ b`` of ``[..., M, K]`` and ``[..., K, N]``, whose leading axes broadcast.

    The zero points are taken off first; integers are summed in int32.
    """
    dtype = a.dtype if a.dtype.is_float else INT32
    k = reduce_axis(a.shape[-1], "k")
    leading = broadcast_shape(a.shape[:-2], b.shape[:-2])

    def product(*at: Expr) -> Expr:
        *outer, i, j = at
        left = cast(broadcast_element(a, (*outer, i, k.var)), dtype) - a_zero_point
        right = cast(broadcast_element(b, (*outer, k.var, j)), dtype) - b_zero_point
        return reduce_sum(left * right, k)

    return compute((*leading, a.shape[-2], b.shape[-1]), product, name)


def dense(x: Tensor, weights: Tensor, bias: Tensor | None, name: str) -> Tensor:
    """Declare ``x @ weights.T + bias`` for ``[..., K]`` and ``[O, K]``; integers sum in int32."""
    dtype = x.dtype if x.dtype.is_float else INT32
    k = reduce_axis(x.shape[-1], "k")

    def product(*at: Expr) -> Expr:
        *outer, o = at
        return reduce_sum(cast(x.at(*outer, k.var), dtype) * cast(weights[o, k.var], dtype), k)

    shape = (*x.shape[:-1], weights.shape[0])
    total = compute(shape, product, name if bias is None else f"{name}.sum")
    if bias is None:
        return total
    return compute(shape, lambda *at: total[at] + bias[at[-1]], name)
