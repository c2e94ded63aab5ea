"""Operators that move or select elements."""

from tilewright.compiler.operators import (
    Concat,
    Expand,
    FloatInterpolate,
    Gather,
    Pad,
    Padding,
    Reshape,
    Slice,
    Transpose,
    Upsample2d,
)
from tilewright.compiler.tensor.build import all_of, cast, constant, reduce_sum, select
from tilewright.compiler.tensor.declare import compute, reduce_axis
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.operations import Number
from tilewright.compiler.tensor.operators.broadcasting import (
    broadcast_element,
    broadcast_shape,
)
from tilewright.compiler.tensor.scalar_types import ScalarType


def reshape(op: Reshape, x: Tensor, name: str) -> Tensor:
    """Declare a row-major view with another shape."""

    def element(*at: Expr) -> Expr:
        position: Expr = constant(0, ScalarType.INDEX)
        for index, extent in zip(at, op.shape, strict=True):
            position = position * extent + index
        source: list[Expr] = []
        for extent in reversed(x.shape[1:]):
            source.insert(0, position % extent)
            position = position // extent
        return x.at(position, *source) if x.shape else x.at()

    return compute(op.shape, element, name)


def transpose(op: Transpose, x: Tensor, name: str) -> Tensor:
    """Declare a permutation of axes."""

    def element(*at: Expr) -> Expr:
        source = dict(zip(op.permutation, at, strict=True))
        return x[tuple(source[axis] for axis in range(len(at)))]

    return compute(tuple(x.shape[axis] for axis in op.permutation), element, name)


def slice_of(op: Slice, x: Tensor, name: str) -> Tensor:
    """Declare a regular selection."""
    bounds = tuple(zip(op.begin, op.end, op.stride, strict=True))
    shape = tuple(len(range(*bound)) for bound in bounds)

    def element(*at: Expr) -> Expr:
        places = zip(at, bounds, strict=True)
        return x[tuple(index * stride + begin for index, (begin, _, stride) in places)]

    return compute(shape, element, name)


def pad(op: Pad, x: Tensor, name: str) -> Tensor:
    """Declare a tensor with a border of one value."""
    extents = zip(op.before, op.after, strict=True)
    axes = tuple(axis for axis, border in enumerate(extents) if any(border))
    return bordered(x, op.before, op.after, op.value, axes, name)


def pad_image(image: Tensor, pads: Padding, value: Number, name: str) -> Tensor:
    """Declare ``[N, H, W, C]`` with a border of `value`; without a border, the image itself."""
    if not any(pads):
        return image
    top, left, bottom, right = pads
    return bordered(image, (0, top, left, 0), (0, bottom, right, 0), value, (1, 2), name)


def bordered(
    x: Tensor,
    before: tuple[int, ...],
    after: tuple[int, ...],
    value: Number,
    axes: tuple[int, ...],
    name: str,
) -> Tensor:
    """Declare `x` between so many elements of `value` along each axis.

    The condition names both ends of each of `axes`, the first axis first, so that one pattern of
    an intrinsic fits all borders along them.
    """
    fill = constant(value if x.dtype.is_float else int(value), x.dtype)

    def element(*at: Expr) -> Expr:
        source = tuple(index - ahead for index, ahead in zip(at, before, strict=True))
        ends = [(0 <= source[axis], source[axis] < x.shape[axis]) for axis in axes]
        return select(all_of(*(end for pair in ends for end in pair)), x[source], fill)

    sizes = zip(x.shape, before, after, strict=True)
    return compute(tuple(map(sum, sizes)), element, name)


def concat(op: Concat, parts: tuple[Tensor, ...], name: str) -> Tensor:
    """Declare tensors joined along an axis."""

    def element(*at: Expr) -> Expr:
        end = sum(part.shape[op.axis] for part in parts)
        joined: Expr | None = None
        for part in reversed(parts):
            begin = end - part.shape[op.axis]
            value = part.at(*at[: op.axis], at[op.axis] - begin, *at[op.axis + 1 :])
            joined = value if joined is None else select(at[op.axis] < end, value, joined)
            end = begin
        assert joined is not None, "a concat has inputs"
        return joined

    extent = sum(part.shape[op.axis] for part in parts)
    shape = parts[0].shape
    return compute((*shape[: op.axis], extent, *shape[op.axis + 1 :]), element, name)


def expand(op: Expand, x: Tensor, name: str) -> Tensor:
    """Declare axes of size 1 repeated up to a shape."""
    shape = broadcast_shape(x.shape, op.shape)
    return compute(shape, lambda *at: broadcast_element(x, at), name)


def upsample(op: Upsample2d, image: Tensor, name: str) -> Tensor:
    """Declare ``[N, H, W, C]`` with each pixel repeated."""
    batch, height, width, channels = image.shape
    rows, columns = op.factor
    return compute(
        (batch, height * rows, width * columns, channels),
        lambda n, y, x, c: image[n, y // rows, x // columns, c],
        name,
    )


def gather(op: Gather, x: Tensor, indices: Tensor, name: str) -> Tensor:
    """Declare entries of `x` along an axis; an index below 0 counts from the end."""
    end = op.axis + len(indices.shape)

    def element(*at: Expr) -> Expr:
        entry = cast(indices.at(*at[op.axis : end]), ScalarType.INDEX)
        place = select(entry < 0, entry + x.shape[op.axis], entry)
        return x.at(*at[: op.axis], place, *at[end:])

    shape = (*x.shape[: op.axis], *indices.shape, *x.shape[op.axis + 1 :])
    return compute(shape, element, name)


def interpolate(
    op: FloatInterpolate, x: Tensor, indices: Tensor, weights: Tensor, name: str
) -> Tensor:
    """Declare weighted sums of entries along an axis."""
    t = reduce_axis(indices.shape[1], "t")

    def total(*at: Expr) -> Expr:
        entry = cast(indices[at[op.axis], t.var], ScalarType.INDEX)
        value = x.at(*at[: op.axis], entry, *at[op.axis + 1 :])
        return reduce_sum(value * weights[at[op.axis], t.var], t)

    shape = (*x.shape[: op.axis], indices.shape[0], *x.shape[op.axis + 1 :])
    return compute(shape, total, name)
