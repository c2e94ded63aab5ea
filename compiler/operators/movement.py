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
