"""What the lowering of each group needs: the program so far and where tensors lie."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from tilewright.compiler.graph import Array, Graph
from tilewright.compiler.operators import DataType, Padding
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
from tilewright.cpu_gpu_backends.cpu.builder import NO_BORDER, Activation, Layout, ProgramBuilder
from tilewright.cpu_gpu_backends.cpu.program import Home, View, dense_strides, whole_view
from tilewright.cpu_gpu_backends.cpu.quantised import STORED_OFFSET

#: Rows of planes begin at a multiple of so many elements, a cache line's worth or more.
_LINE_ELEMENTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The state of lowering one graph."""

    builder: ProgramBuilder
    graph: Graph
    target: CpuTarget
    #: Tensors of real numbers that are kept in bfloat16.
    halves: Collection[str] = ()
    #: Tensors of the graph that have a place, by name.
    activations: dict[str, Activation] = field(default_factory=dict)
    #: Copies of tensors with a border or in another type: by name, border, what it holds, and type.
    copies: dict[tuple[str, Padding, float, ScalarType], Activation] = field(default_factory=dict)

    def stored(self, name: str) -> ScalarType:
        """Return the element type in which a tensor of the graph is kept."""
        if name in self.halves:
            return ScalarType.BFLOAT16
        dtype = self.graph.tensors[name].dtype
        return ScalarType.UINT8 if dtype is DataType.INT8 else ScalarType(dtype.value)

    def allocate(self, name: str, layout: Layout, output: str | None) -> Activation:
        """Give a tensor of the graph a place: in the output buffer of that name if it suits."""
        tensor, dtype = self.graph.tensors[name], self.stored(name)
        plain = layout.border == NO_BORDER and layout.pitch == (tensor.shape or (1,))[-1]
        if output is not None and plain and tensor.dtype is not DataType.INT8 and self._last(name):
            activation = Activation(
                view=whole_view(output, tensor.shape), dtype=dtype, pitch=layout.pitch
            )
        else:
            activation = self._in_workspace(name, tensor.shape, layout, dtype)
        self.activations[name] = activation
        return activation

    def _last(self, name: str) -> bool:
        """Whether no node reads a tensor: kernels may read a little beyond what they are given."""
        return not self.graph.consumers()[name]

    def scratch_rows(self, name: str, rows: int, layout: Layout) -> Activation:
        """Give some rows of a tensor's images a place in the scratch memory of a thread."""
        _, _, width, channels = self.graph.tensors[name].shape
        return self._placed(
            name, (1, rows, width, channels), layout, self.stored(name), Home.SCRATCH
        )

    def _in_workspace(
        self, name: str, shape: tuple[int, ...], layout: Layout, dtype: ScalarType
    ) -> Activation:
        return self._placed(name, shape, layout, dtype, Home.WORKSPACE)

    def _placed(
        self, name: str, shape: tuple[int, ...], layout: Layout, dtype: ScalarType, home: Home
    ) -> Activation:
        if layout.border == NO_BORDER:
            physical = (*shape[:-1], layout.pitch) if shape else ()
            offset = 0
        elif layout.planar:
            return self._planes(name, shape, layout, dtype)
        else:
            batch, height, width, _ = shape
            top, left, bottom, right = layout.border
            physical = (batch, height + top + bottom, width + left + right, layout.pitch)
            offset = (top * physical[2] + left) * layout.pitch
        buffer = self.builder.buffer(name, dtype, prod(physical), home)
        view = View(buffer=buffer, offset=offset, shape=shape, strides=dense_strides(physical))
        return Activation(
            view=view, dtype=dtype, border=layout.border, fill=layout.fill, pitch=layout.pitch
        )

    def _planes(
        self, name: str, shape: tuple[int, ...], layout: Layout, dtype: ScalarType
    ) -> Activation:
        batch, channels, height, width = shape
        top, left, bottom, right = layout.border
        before, row = _in_lines(left), _in_lines(_in_lines(left) + width + right)
        physical = (batch, channels, height + top + bottom, row)
        buffer = self.builder.buffer(name, dtype, prod(physical), Home.WORKSPACE)
        view = View(
            buffer=buffer,
            offset=top * row + before,
            shape=shape,
            strides=dense_strides(physical),
        )
        return Activation(view=view, dtype=dtype, pitch=width)

    def scratch(self, name: str, layout: Layout, dtype: ScalarType) -> Activation:
        """Give a copy of a tensor a place."""
        shape = self.graph.tensors[name].shape
        return self._in_workspace(f"{name}.padded", shape, layout, dtype)

    def add_constants(self, names: Iterable[str]) -> None:
        """Give those that are constants of the graph places, as operands of general kernels."""
        for name in names:
            if name in self.graph.constants and name not in self.activations:
                self._add_constant(name)

    def _add_constant(self, name: str) -> None:
        values: Array = self.graph.constants[name]
        if values.dtype == np.int8:
            values = (values.astype(np.int16) + STORED_OFFSET).astype(np.uint8)
        self.activations[name] = Activation(
            view=self.builder.constant(name, values),
            dtype=self.stored(name),
            pitch=values.shape[-1] if values.shape else 1,
        )

    def alias(self, name: str, source: str) -> None:
        """Let a tensor be another one's elements, which lie densely, in row-major order."""
        shape, activation = self.graph.tensors[name].shape, self.activations[source]
        view = activation.view
        if shape != view.shape:
            view = replace(view, shape=shape, strides=dense_strides(shape))
        pitch = activation.pitch if shape == activation.shape else (shape or (1,))[-1]
        border = activation.border if shape == activation.shape else NO_BORDER
        self.activations[name] = Activation(
            view=view,
            dtype=activation.dtype,
            border=border,
            fill=activation.fill,
            pitch=pitch,
        )


def _in_lines(elements: int) -> int:
    return -(-elements // _LINE_ELEMENTS) * _LINE_ELEMENTS
