"""Operators that move or select values: the same on float and on quantised tensors."""

from dataclasses import dataclass

from tilewright.compiler.operators.integer import Padding, Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxPool2d:
    """Maximum over a window of ``[N, H, W, C]``; padding never wins (int8: -128)."""

    kernel: Pair
    stride: Pair
    pads: Padding = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshape:
    """Row-major view with another shape of as many elements."""

    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transpose:
    """Axis ``i`` of the result is axis ``permutation[i]`` of the input."""

    permutation: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """``x[begin[0]:end[0]:stride[0], ...]``, one entry per axis, all within the shape."""

    begin: tuple[int, ...]
    end: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pad:
    """`value` around the tensor: ``before[i]`` and ``after[i]`` elements along axis ``i``."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Concat:
    """Join one or more tensors of one type along `axis`.

    In the integer graph the inputs share scale and zero point; a `Requantize` in front of an input
    makes them so.
    """

    axis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expand:
    """Repeat axes of size 1 up to `shape`; missing leading axes are added, as numpy broadcasts."""

    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsample2d:
    """Each pixel of ``[N, H, W, C]`` ``factor[0]`` times down and ``factor[1]`` times across."""

    factor: Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Gather:
    """Entries of x along `axis`: ``x[..., indices, ...]``, the axes of the indices in its place.

    Inputs: x; indices int32 or int64, constant or not, within ``-size..size - 1``, the negative
    ones counted from the end.
    """

    axis: int
