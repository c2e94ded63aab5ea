"""A program under construction: buffers, constants and kernels in the order in which they run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.statements import Allocate, LoopNest, Seq, Statement
from tilewright.cpu_gpu_backends.cpu.program import (
    REGISTER,
    Array,
    Buffer,
    Chain,
    CpuProgram,
    Home,
    Kernel,
    Step,
    View,
    element_type,
    whole_view,
)
from tilewright.cpu_gpu_backends.cpu.uses import used_tensors

NO_BORDER = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Border, what it holds, and channels from one position to the next.

    `planar` images have their channels one behind the other, each with the border around it.
    """

    pitch: int
    border: tuple[int, int, int, int] = NO_BORDER
    fill: float = 0.0
    planar: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """A tensor of the graph in memory.

    Attributes
    ----------
    view
        Its elements; a border and padded channels may lie between them.
    dtype
        As stored: a graph's int8 tensor is kept as uint8, 128 more.
    border, fill
        Rows above, columns left, rows below and columns right of each image that belong to it,
        and what they hold, as stored.
    pitch
        Channels from one position to the next; those beyond the tensor's own hold numbers that
        mean nothing.
    """

    view: View
    dtype: ScalarType
    border: tuple[int, int, int, int] = (0, 0, 0, 0)
    fill: float = 0.0
    pitch: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return self.view.shape

    @property
    def has_border(self) -> bool:
        """Whether rows or columns surround the images."""
        return any(self.border)

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie one behind the other."""
        return self.view.is_dense

    def with_channels(self, channels: int) -> View:
        """Return the view of so many channels, padded ones included."""
        return replace(self.view, shape=(*self.view.shape[:-1], channels))


class ProgramBuilder:
    """Collects the parts of a program."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._buffers: dict[str, Buffer] = {}
        self._constants: dict[str, Array] = {}
        self._steps: list[Step] = []
        self._inputs: list[str] = []
        self._outputs: list[str] = []

    def buffer(self, name: str, dtype: ScalarType, elements: int, home: Home) -> str:
        """Add a buffer and return its name, made unique."""
        unique = self._unique(name)
        self._buffers[unique] = Buffer(name=unique, dtype=dtype, elements=elements, home=home)
        if home is Home.INPUT:
            self._inputs.append(unique)
        if home is Home.OUTPUT:
            self._outputs.append(unique)
        return unique

    def constant(self, name: str, values: Array) -> View:
        """Add a constant and return the view of it."""
        data = np.ascontiguousarray(values)
        buffer = self.buffer(name, element_type(data.dtype), data.size, Home.CONSTANT)
        self._constants[buffer] = data.reshape(-1)
        return whole_view(buffer, data.shape)

    def kernel(
        self, layer: str, nest: LoopNest, views: Mapping[str, View], *, is_border: bool = False
    ) -> None:
        """Add the loops of a nest, one kernel for each statement at its root.

        Parameters
        ----------
        layer
            Name of the graph's node.
        views
            Where the inputs and outputs of the nest lie, by name; what it allocates at its root
            becomes a buffer of its own, unless it is held in registers.
        """
        places = dict(views)
        tensors = {tensor.name: tensor for tensor in (*nest.inputs, *nest.outputs)}
        body: Statement = nest.body
        while isinstance(body, Allocate) and body.tensor.scope != REGISTER:
            tensor = body.tensor
            name = self.buffer(
                f"{layer}/{tensor.name}", tensor.dtype, prod(tensor.shape), Home.WORKSPACE
            )
            places[tensor.name], tensors[tensor.name] = whole_view(name, tensor.shape), tensor
            body = body.body
        for part in body.statements if isinstance(body, Seq) else (body,):
            kernel = self._kernel(layer, part, tensors, places, nest.ahead)
            self._steps.append(replace(kernel, is_border=is_border))

    def _kernel(
        self,
        layer: str,
        body: Statement,
        tensors: Mapping[str, Tensor],
        places: Mapping[str, View],
        ahead: tuple[tuple[str, int], ...],
    ) -> Kernel:
        read, written = used_tensors(body)
        outputs = tuple(tensors[name] for name in tensors if name in written)
        inputs = tuple(tensors[name] for name in tensors if name in read - written)
        kept = tuple(one for one in ahead if one[0] in read - written)
        nest = LoopNest(inputs=inputs, outputs=outputs, body=body, ahead=kept)
        views = tuple(places[tensor.name] for tensor in (*inputs, *outputs))
        return Kernel(name=layer, nest=nest, views=views)

    def chain(self, chain: Chain) -> None:
        """Add a chain of kernels."""
        self._steps.append(chain)

    def collect(self, add: Callable[[], None]) -> tuple[Kernel, ...]:
        """Return the kernels that `add` adds, which are then no steps of the program."""
        start = len(self._steps)
        add()
        added, self._steps = self._steps[start:], self._steps[:start]
        return tuple(step for step in added if isinstance(step, Kernel))

    def build(self) -> CpuProgram:
        """Return the program, with those constants that are read."""
        read = {name for step in self._steps for name in step.reads}
        constants = {name: values for name, values in self._constants.items() if name in read}
        buffers = {
            name: buffer
            for name, buffer in self._buffers.items()
            if buffer.home is not Home.CONSTANT or name in read
        }
        return CpuProgram(
            name=self._name,
            buffers=buffers,
            inputs=tuple(self._inputs),
            outputs=tuple(self._outputs),
            constants=constants,
            steps=tuple(self._steps),
        )

    def _unique(self, name: str) -> str:
        unique, number = name, 1
        while unique in self._buffers:
            number += 1
            unique = f"{name}.{number}"
        return unique
