"""ONNX nodes under construction, with each image at hand as NHWC, as NCHW, or both."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tilewright.compiler.graph import Array, Graph

#: From NHWC to NCHW, and back.
FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)
Attribute: TypeAlias = int | float | str | Sequence[int] | Sequence[float]


class OnnxBuilder:
    """Nodes and initialisers of an ONNX graph.

    A tensor of the graph has its ONNX name in its own layout; an image may have another one in
    NCHW. Whichever is missing is made by a transposition when it is asked for.
    """

    def __init__(self, graph: Graph) -> None:
        import onnx

        self._onnx = onnx
        self.graph = graph
        self.nodes: list[Any] = []
        self.initializers: dict[str, Array] = {}
        self._own: dict[str, str] = {}
        self._first: dict[str, str] = {}
        self._names: set[str] = set(graph.inputs)
        for name in graph.inputs:
            self._own[name] = name

    def own(self, tensor: str) -> str:
        """Return the ONNX name of a tensor in its own layout."""
        if tensor not in self._own:
            if tensor in self.graph.constants:
                self._own[tensor] = self.initializer(tensor, self.graph.constants[tensor])
            else:
                name = self.name(tensor)
                self._transpose(self._first[tensor], name, LAST)
                self._own[tensor] = name
        return self._own[tensor]

    def first(self, tensor: str) -> str:
        """Return the ONNX name of an image as NCHW."""
        if tensor not in self._first:
            values = self.graph.constants.get(tensor)
            if values is not None:
                moved = np.ascontiguousarray(values.transpose(FIRST))
                self._first[tensor] = self.initializer(f"{tensor}/nchw", moved)
            else:
                name = self.name(f"{tensor}/nchw")
                self._transpose(self.own(tensor), name, FIRST)
                self._first[tensor] = name
        return self._first[tensor]

    def is_first(self, tensor: str) -> bool:
        """Tell whether an image is at hand as NCHW."""
        return tensor in self._first

    def initializer(self, name: str, values: Array) -> str:
        """Add a constant and return its name."""
        free = self.name(name)
        self.initializers[free] = values
        return free

    def numbers(self, name: str, values: Sequence[int]) -> str:
        """Add a constant list of integers and return its name."""
        return self.initializer(name, np.array(values, np.int64))

    def add(self, kind: str, inputs: Sequence[str], name: str, **attributes: Attribute) -> str:
        """Add a node with one output, which is returned."""
        node = self._onnx.helper.make_node(kind, list(inputs), [name], name=name)
        node.attribute.extend(
            self._onnx.helper.make_attribute(key, value) for key, value in attributes.items()
        )
        self.nodes.append(node)
        return name

    def define(self, tensor: str, name: str, *, first: bool = False) -> None:
        """Say where a tensor of the graph is: in its own layout, or as NCHW."""
        (self._first if first else self._own)[tensor] = name

    def name(self, wanted: str) -> str:
        """Return a name that nothing else has."""
        free, number = wanted, 1
        while free in self._names:
            free, number = f"{wanted}_{number}", number + 1
        self._names.add(free)
        return free

    def _transpose(self, source: str, name: str, order: tuple[int, ...]) -> None:
        self.add("Transpose", [source], name, perm=list(order))
