"""Convolutions and products as one matrix product: the declaration that tiles of a GPU suit.

``total[b, m, n] = sum(left[b, m, k] * right[b, n, k] for k)``, all extents rounded up to whole
tiles. For a convolution, row ``m`` of the left matrix is the window of one output position, column
``k`` one of its taps (``[row][column][channel]``): the matrix is never stored, its tiles are read
from the image (implicit GEMM). What is rounded up reads as 0 on one side, so it adds nothing.

Zero points of a product of quantised activations are taken off the sum of the products of bytes:
``sum((a - p) * (b - q)) = sum(a * b) - q * sum(a) - p * sum(b) + k * p * q``, modulo 2**32.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.compiler.graph import Array, Node
from tilewright.compiler.operators import (
    Conv2d,
    FloatConv2d,
    FloatDense,
    FloatMatMul,
    MatMul,
    Pair,
)
from tilewright.compiler.tensor.build import all_of, cast, constant, reduce_sum, select
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Expr, Operand, Tensor
from tilewright.compiler.tensor.operators.broadcasting import broadcast_element
from tilewright.compiler.tensor.operators.elementwise import INT32, requantized
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.gpu.layers import Layer
from tilewright.cpu_gpu_backends.winograd import Transforms, transform_weights

Element = Callable[[Expr, Expr, Expr], Expr]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixSizes:
    """Extents of a product: matrices, rows, columns, depth."""

    batch: int
    m: int
    n: int
    k: int

    @property
    def products(self) -> int:
        """Multiplications."""
        return self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """What the extents of a product are rounded up to multiples of."""

    m: int
    n: int
    k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixForm:
    """A declared product.

    Attributes
    ----------
    result
        What the operator yields, in the shape of the graph; it reads ``total``.
    rows, columns
        Sums of each row of the left matrix and of each column of the right one, where the zero
        point of the other one asks for them.
    packed
        The constant operand that `right` holds, packed by `pack_weights`, if it is one.
    """

    result: Tensor
    left: Tensor
    right: Tensor
    total: Tensor
    rows: Tensor | None
    columns: Tensor | None
    packed: str | None


def matrix_sizes(layer: Layer, node: Node) -> MatrixSizes | None:
    """Return the extents of the product that `node` is, None where it is none."""
    operands, shape = layer.operands(node), layer.tensors[node.outputs[0]].shape
    match node.op:
        case Conv2d(groups=1) | FloatConv2d(groups=1):
            outputs, rows, columns, depth = operands[1].shape
            return MatrixSizes(batch=1, m=prod(shape[:3]), n=outputs, k=rows * columns * depth)
        case FloatDense():
            outputs, depth = operands[1].shape
            return MatrixSizes(batch=1, m=prod(shape[:-1]), n=outputs, k=depth)
        case MatMul() | FloatMatMul():
            return MatrixSizes(
                batch=prod(shape[:-2]), m=shape[-2], n=shape[-1], k=operands[0].shape[-1]
            )
        case _:
            return None


def declare_matrix_form(
    layer: Layer,
    node: Node,
    stored: Mapping[str, Tensor],
    inputs: Mapping[str, Tensor],
    padding: Padding,
) -> MatrixForm:
    """Declare the product that `node` is.

    Parameters
    ----------
    stored, inputs
        The tensors that the layer reads by name: as they lie in memory, and as they are computed
        with. Both factors are read as they lie in memory, if they are of one type there.
    """
    sizes = matrix_sizes(layer, node)
    assert sizes is not None, f"{node.label} is a product"
    operands = tuple(inputs[name] for name in node.inputs)
    factors = tuple(stored[name] for name in node.inputs[:2])
    if factors[0].dtype is not factors[1].dtype and factors[0].dtype.is_float:
        factors = operands[:2]
    name = node.outputs[0]
    left = _left(layer, node, factors[0], sizes, padding, f"{name}.left")
    weights = None if isinstance(node.op, MatMul | FloatMatMul) else node.inputs[1]
    packed = weights if weights in layer.constants else None
    if packed is not None:
        extents = (1, rounded_up(sizes.n, padding.n), rounded_up(sizes.k, padding.k))
        right = placeholder(extents, stored[packed].dtype, f"{packed}.packed")
    else:
        right = _right(layer, node, factors[1], sizes, padding, f"{name}.right")
    total = declare_total(left, right, f"{name}.total")
    rows, columns = _sums(node, factors, layer.tensors[name].shape, sizes)

    def product(b: Expr, m: Expr, n: Expr) -> Expr:
        return _without_zero_points(node, total[b, m, n], sizes.k, (rows, columns), (b, m, n))

    result = _result(node, operands, layer.tensors[name].shape, product)
    return MatrixForm(
        result=result, left=left, right=right, total=total, rows=rows, columns=columns,
        packed=packed,
    )  # fmt: skip


def rounded_up(extent: int, multiple: int) -> int:
    """Return the smallest multiple that is not below `extent`."""
    return -(-extent // multiple) * multiple


def _left(
    layer: Layer, node: Node, x: Tensor, sizes: MatrixSizes, padding: Padding, name: str
) -> Tensor:
    shape = layer.tensors[node.outputs[0]].shape
    match node.op:
        case Conv2d() | FloatConv2d():
            kernel = layer.tensors[node.inputs[1]].shape[1:3]
            element = _window_element(node.op, x, shape, (kernel[0], kernel[1]))
        case MatMul() | FloatMatMul():
            element = _stack_element(x, shape[:-2])
        case _:
            element = _row_element(x)

    def padded(b: Expr, m: Expr, k: Expr) -> Expr:
        return select(all_of(m < sizes.m, k < sizes.k), element(b, m, k), 0)

    extents = (sizes.batch, rounded_up(sizes.m, padding.m), rounded_up(sizes.k, padding.k))
    return compute(extents, padded, name)


def _window_element(
    op: Conv2d | FloatConv2d, image: Tensor, shape: tuple[int, ...], kernel: Pair
) -> Element:
    """Return tap ``k`` of the window of output position ``m``."""
    _, height, width, channels = image.shape
    _, rows, columns, _ = shape
    border = op.input_zero_point if isinstance(op, Conv2d) else 0

    def element(b: Expr, m: Expr, k: Expr) -> Expr:
        y, x = m // columns % rows, m % columns
        row = y * op.stride[0] + k // (kernel[1] * channels) * op.dilation[0] - op.pads[0]
        column = x * op.stride[1] + k // channels % kernel[1] * op.dilation[1] - op.pads[1]
        value = image[m // (rows * columns), row, column, k % channels]
        if not any(op.pads):
            return value
        inside = all_of(0 <= row, row < height, 0 <= column, column < width)
        return select(inside, value, border)

    return element


def _stack_element(x: Tensor, leading: tuple[int, ...]) -> Element:
    """Return element ``(m, k)`` of matrix ``b`` of a stack that broadcasts to `leading`."""
    return lambda b, m, k: broadcast_element(x, (*unflattened(b, leading), m, k))


def _sums(
    node: Node, factors: tuple[Tensor, ...], shape: tuple[int, ...], sizes: MatrixSizes
) -> tuple[Tensor | None, Tensor | None]:
    """Declare the sums of rows and of columns that zero points of the other factor ask for."""
    if not isinstance(node.op, MatMul):
        return None, None
    name, k = node.outputs[0], reduce_axis(sizes.k, "k")
    left, right = (_stack_element(factor, shape[:-2]) for factor in factors)
    rows = columns = None
    if node.op.b_zero_point:
        rows = compute(
            (sizes.batch, sizes.m),
            lambda b, m: reduce_sum(cast(left(b, m, k.var), INT32), k),
            f"{name}.rows",
        )
    if node.op.a_zero_point:
        columns = compute(
            (sizes.batch, sizes.n),
            lambda b, n: reduce_sum(cast(right(b, k.var, n), INT32), k),
            f"{name}.columns",
        )
    return rows, columns


def _without_zero_points(
    node: Node,
    value: Expr,
    depth: int,
    sums: tuple[Tensor | None, Tensor | None],
    at: tuple[Expr, Expr, Expr],
) -> Expr:
    """Return an element of the product of what is left without zero points, from `value`."""
    if not isinstance(node.op, MatMul):
        return value
    (rows, columns), (b, m, n) = sums, at
    left, right = node.op.a_zero_point, node.op.b_zero_point
    if rows is not None:
        value = value - rows[b, m] * right
    if columns is not None:
        value = value - columns[b, n] * left
    return value + depth * left * right if left and right else value


def _row_element(x: Tensor) -> Element:
    """Return element ``k`` of row ``m``, all axes but the last being one."""
    return lambda b, m, k: x.at(*unflattened(m, x.shape[:-1]), k)


def unflattened(position: Expr, shape: tuple[int, ...]) -> tuple[Expr, ...]:
    """Return the index of the element at a position in row-major order."""
    index: list[Expr] = []
    for extent in reversed(shape[1:]):
        index.insert(0, position % extent)
        position = position // extent
    return (position, *index) if shape else ()


def flattened(index: tuple[Expr, ...], shape: tuple[int, ...]) -> Expr:
    """Return the position in row-major order of the element at an index."""
    position: Expr = constant(0, ScalarType.INDEX)
    for place, extent in zip(index, shape, strict=True):
        position = position * extent + place
    return position


def _right(
    layer: Layer, node: Node, y: Tensor, sizes: MatrixSizes, padding: Padding, name: str
) -> Tensor:
    """Declare the right matrix of a product of activations, or of weights that are computed."""
    shape = layer.tensors[node.outputs[0]].shape
    match node.op:
        case MatMul() | FloatMatMul():
            transposed = _stack_element(y, shape[:-2])
        case _:
            outputs = y.shape[0]
            flat = prod(y.shape[1:])

            def transposed(b: Expr, k: Expr, n: Expr) -> Expr:
                return y.at(*unflattened(n * flat + k, (outputs, *y.shape[1:])))

    def padded(b: Expr, n: Expr, k: Expr) -> Expr:
        return select(all_of(n < sizes.n, k < sizes.k), transposed(b, k, n), 0)

    extents = (sizes.batch, rounded_up(sizes.n, padding.n), rounded_up(sizes.k, padding.k))
    return compute(extents, padded, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeights:
    """How a constant lies in the buffer that kernels read.

    Attributes
    ----------
    buffer
        Name of the buffer's tensor.
    extents
        Its extents ``[b, n, k]``, zeros where they are rounded up.
    filtering
        The matrices that the weights are transformed by, if they are.
    """

    buffer: str
    extents: tuple[int, ...]
    filtering: Transforms | None = None

    @property
    def suffix(self) -> str:
        """What is added to the name of a constant that is packed so."""
        kind = "" if self.filtering is None else f"for tiles of {self.filtering.outputs} "
        return f"packed {kind}{' x '.join(map(str, self.extents))}"

    def pack(self, weights: Array) -> Array:
        """Return weights ``[O, ...]`` as they lie in the buffer."""
        rows = weights.reshape(1, weights.shape[0], -1)
        if self.filtering is not None:
            rows = transform_weights(weights, self.filtering)
        packed = np.zeros(self.extents, weights.dtype)
        packed[:, : rows.shape[1], : rows.shape[2]] = rows
        return packed


def declare_total(left: Tensor, right: Tensor, name: str) -> Tensor:
    """Declare the sums of products of ``[b, m, k]`` and ``[b, n, k]``, or ``[1, n, k]`` for all."""
    dtype = ScalarType.FLOAT32 if left.dtype.is_float else INT32
    k = reduce_axis(left.shape[2], "k")

    def product(b: Expr, m: Expr, n: Expr) -> Expr:
        own = 0 if right.shape[0] == 1 else b
        value = cast(left[b, m, k.var], dtype) * cast(right[own, n, k.var], dtype)
        return reduce_sum(value, k)

    return compute((left.shape[0], left.shape[1], right.shape[1]), product, name)


def _result(
    node: Node, operands: tuple[Tensor, ...], shape: tuple[int, ...], product: Element
) -> Tensor:
    """Declare the operator's result from the elements of the product."""
    op = node.op

    def element(*at: Expr) -> Expr:
        if isinstance(op, MatMul | FloatMatMul):
            value = product(flattened(at[:-2], shape[:-2]), at[-2], at[-1])
        else:
            zero = constant(0, ScalarType.INDEX)
            value = product(zero, flattened(at[:-1], shape[:-1]), at[-1])
        match op:
            case Conv2d():
                factors = (operand[at[-1]] for operand in operands[2:])
                return _requantized(op, value, *factors)
            case MatMul():
                return _requantized(op, value, 0, op.multiplier, op.shift)
            case _:
                return value + operands[2][at[-1]] if len(operands) == 3 else value

    return compute(shape, element, node.outputs[0])


def _requantized(
    op: Conv2d | MatMul, total: Expr, bias: Operand, multiplier: Operand, shift: Operand
) -> Expr:
    return requantized(
        total, bias, multiplier, shift, zero_point=op.zero_point, low=op.low, high=op.high
    )
