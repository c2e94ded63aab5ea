"""Kernels: what one pass of the accelerator over an output tensor computes, still without tiles."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.compiler.lowering.tensors import Int8Array, TensorShape
from tilewright.isa.instructions import VectorOperation

IntArray: TypeAlias = npt.NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Geometry of a sliding window; 1x1 with stride 1 for element-wise work."""

    kernel: tuple[int, int] = (1, 1)
    #: 0 where every output reads the same row or column.
    stride: tuple[int, int] = (1, 1)
    #: Rows above and columns left of the image that the first window covers; negative where it
    #: begins inside.
    before: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    #: What positions outside the image read.
    pad_value: int = 0

    @property
    def taps(self) -> int:
        """Positions of the window."""
        return self.kernel[0] * self.kernel[1]

    def span(self, axis: int, first: int, count: int, size: int) -> "Extent":
        """Return what `count` outputs from `first` on read of an image `size` long."""
        begin = first * self.stride[axis] - self.before[axis]
        reach = (count - 1) * self.stride[axis] + (self.kernel[axis] - 1) * self.dilation[axis] + 1
        inside_begin = min(max(begin, 0), size)
        inside_end = min(max(begin + reach, inside_begin), size)
        pad_before = min(max(-begin, 0), reach)
        return Extent(
            begin=inside_begin,
            count=inside_end - inside_begin,
            pad_before=pad_before,
            pad_after=reach - pad_before - (inside_end - inside_begin),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """A stretch of an image's axis with the padding around it."""

    begin: int
    count: int
    pad_before: int
    pad_after: int

    @property
    def reach(self) -> int:
        """Length with padding."""
        return self.pad_before + self.count + self.pad_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Requantisation:
    """Parameters per output channel, and the range of the result."""

    #: int32, ``[channels]``.
    bias: IntArray
    #: Below 2**24, ``[channels]``.
    multiplier: IntArray
    #: Below 64, ``[channels]``.
    shift: IntArray
    zero_point: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """A tensor that is added to a kernel's int8 result before it is stored."""

    tensor: str
    #: int16 factor of the kernel's result.
    own_coefficient: int
    #: int16 factor of `tensor`.
    coefficient: int
    scale: Requantisation


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixKernel:
    """A convolution on the array, requantised, with an optional residual addition.

    With `phases` it makes so many rows and columns of results per position of its window, each with
    weights, bias and scale of its own, in whole layout blocks: those of one phase after the other,
    columns before rows. `taps` then says which taps of the window each phase has.
    """

    name: str
    source: str
    output: str
    window: Window
    #: ``[O, kh, kw, I / groups]``, values in -255..255.
    weights: IntArray
    groups: int
    scale: Requantisation
    residual: Residual | None = None
    phases: tuple[int, int] = (1, 1)
    #: bool ``[phase rows, phase columns, kh, kw]``; None where every tap counts.
    taps: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSource:
    """A tensor that a lane kernel reads, from some channel block on."""

    tensor: str
    block: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneKernel:
    """Work of the vector engine, channel by channel: windows, additions, copies, tables.

    With one source the window's positions are combined; with two, the same position of both.
    """

    name: str
    sources: tuple[LaneSource, ...]
    output: str
    window: Window
    operation: VectorOperation
    #: int16 ``[taps or sources, channels]`` for `VectorOperation.MAC`.
    coefficients: IntArray | None = None
    #: Requantisation, or None to clip to `low` and `high` only.
    scale: Requantisation | None = None
    #: Further scales for windows that cover fewer positions, by their number of positions.
    border: tuple[tuple[int, Requantisation], ...] = ()
    low: int = -128
    high: int = 127
    #: int8 ``[256]`` look-up table applied last.
    table: npt.NDArray[np.int8] | None = None
    #: Rows and columns that are computed.
    rows: int
    columns: int
    #: Channels that are computed.
    channels: int
    #: Block, row and column of the output tensor where the result begins.
    target: tuple[int, int, int] = (0, 0, 0)
    #: Rows and columns of equal results that each of the computed ones becomes.
    repeat: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductKernel:
    """Elements of a tensor, less its zero point, times factors, on the vector engine."""

    name: str
    source: str
    #: Of pairs of bytes: a pixel of a layout block is two, which hold the int16 of its lanes.
    factors: str
    output: str
    #: Of `source`.
    zero_point: int
    scale: Requantisation


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixProductKernel:
    """Stacks of matrices ``(source - zero point) @ (weights - zero point)``, on the array.

    Rows of an image are matrices, their columns the rows of a matrix, channels its columns. A
    tensor with one image, or one row, has the same matrix for all those of the output. With
    `diagonal`, `source` is one layout block squared, of which the whole matrix has one after the
    other on its diagonal, and zeros elsewhere.
    """

    name: str
    source: str
    #: Of tiles of weights, see `tilewright.compiler.lowering.bindings.WeightTiles`; zero beyond
    #: the channels of `source`.
    weights: str
    output: str
    diagonal: bool = False
    source_zero_point: int
    weights_zero_point: int
    #: The same for all channels; its bias holds the product of the zero points.
    scale: Requantisation


Kernel: TypeAlias = MatrixKernel | LaneKernel | ProductKernel | MatrixProductKernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Legalised:
    """The kernels that compute one node, in order, and the tensors that only they know."""

    kernels: tuple[Kernel, ...]
    temporaries: tuple[tuple[str, TensorShape], ...] = ()
    #: Values of those temporaries that no kernel computes.
    constants: tuple[tuple[str, Int8Array], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReason:
    """Why an operator runs on the host."""

    text: str


#: What becomes of an operator.
Decision: TypeAlias = Legalised | HostReason
