"""A network as loop nests in order, over buffers whose places are known before it runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import prod
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.statements import LoopNest

Array: TypeAlias = npt.NDArray[Any]

#: The scope of tensors that a kernel holds in registers.
REGISTER = "register"
#: Bytes behind each buffer that a kernel may read, and whose content does not matter: a panel.
SLACK_BYTES = 512


class Home(Enum):
    """Who owns the memory of a buffer."""

    INPUT = "input"
    OUTPUT = "output"
    WORKSPACE = "workspace"
    #: Of one thread within a chain of kernels: on its stack.
    SCRATCH = "scratch"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A stretch of memory of one element type."""

    name: str
    dtype: ScalarType
    elements: int
    home: Home

    @property
    def size_bytes(self) -> int:
        """Size, without the slack behind it."""
        return self.elements * int(self.dtype.numpy.itemsize)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A tensor within a buffer: element ``i`` lies at ``offset + sum(i * strides)``."""

    buffer: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        steps = dense_strides(self.shape)
        pairs = zip(self.shape, self.strides, steps, strict=True)
        return all(extent == 1 or stride == step for extent, stride, step in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A loop nest applied to views: one per input of the nest, then one per output.

    Attributes
    ----------
    is_border
        Whether it fills a part of its buffer that nobody else writes, alike in every run.
    """

    name: str
    nest: LoopNest
    views: tuple[View, ...]
    is_border: bool = False

    def __post_init__(self) -> None:
        tensors = (*self.nest.inputs, *self.nest.outputs)
        assert len(tensors) == len(self.views), f"kernel {self.name!r} has a view per tensor"
        for tensor, view in zip(tensors, self.views, strict=True):
            assert len(tensor.shape) == len(view.strides), f"{self.name!r}: rank of {tensor}"

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the buffers that it reads."""
        return tuple(view.buffer for view in self.views[: len(self.nest.inputs)])

    @property
    def writes(self) -> tuple[str, ...]:
        """Names of the buffers that it writes."""
        return tuple(view.buffer for view in self.views[len(self.nest.inputs) :])


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Shares `begin` to ``end - 1`` of the work of a kernel."""

    kernel: Kernel
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """What one thread computes at a time of a chain.

    Attributes
    ----------
    alone, following
        The calls where the thread begins with this band, and where it has computed the band before
        and finds in its scratch memory what both need.
    """

    alone: tuple[Call, ...]
    following: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Kernels of several layers, run for one band of rows after the other; threads share bands."""

    name: str
    bands: tuple[Band, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the buffers that it reads, scratch ones included."""
        return tuple(dict.fromkeys(name for kernel in self._kernels for name in kernel.reads))

    @property
    def writes(self) -> tuple[str, ...]:
        """Names of the buffers that it writes, scratch ones included."""
        return tuple(dict.fromkeys(name for kernel in self._kernels for name in kernel.writes))

    @property
    def _kernels(self) -> tuple[Kernel, ...]:
        return tuple(call.kernel for band in self.bands for call in band.alone)


Step: TypeAlias = Kernel | Chain


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuProgram:
    """A network for the processor.

    Attributes
    ----------
    inputs, outputs
        Names of the buffers that the caller gives, in the order of the graph.
    constants
        Values of the constant buffers.
    steps
        What is run, in order.
    """

    name: str
    buffers: Mapping[str, Buffer]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "buffers", MappingProxyType(dict(self.buffers)))
        object.__setattr__(self, "constants", MappingProxyType(dict(self.constants)))
        for name, values in self.constants.items():
            buffer = self.buffers[name]
            assert values.size == buffer.elements, f"constant {name!r} fills its buffer"
            assert values.dtype == buffer.dtype.numpy, f"constant {name!r} has its buffer's type"

    @property
    def layers(self) -> tuple[str, ...]:
        """Per step the name of the graph's tensor that it computes, or its last part."""
        return tuple(step.name for step in self.steps)


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a row-major tensor, in elements."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def whole_view(buffer: str, shape: tuple[int, ...]) -> View:
    """Return the view of a row-major tensor that begins where its buffer does."""
    return View(buffer=buffer, offset=0, shape=shape, strides=dense_strides(shape))


def element_type(dtype: "np.dtype[Any]") -> ScalarType:
    """Return the scalar type of numpy's element type; uint16 holds the bits of bfloat16."""
    return ScalarType.BFLOAT16 if dtype == np.uint16 else ScalarType(str(dtype))
