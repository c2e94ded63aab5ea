"""Looking backwards from a node of a float graph: producers, constants, functions of two."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.graph import Array, Graph, Node
from tilewright.compiler.operators import (
    BinaryFunction,
    FloatBinary,
    FloatUnary,
    Function,
    Operator,
)


@dataclass(frozen=True, slots=True)
class Patterns:
    """Questions about what computes the tensors of a graph."""

    graph: Graph
    producers: dict[str, Node]
    readers: dict[str, int]

    @classmethod
    def of(cls, graph: Graph) -> "Patterns":
        """Prepare the questions; an output of the graph counts as read once more."""
        readers = {name: 0 for name in graph.tensors}
        for node in graph.nodes:
            for name in set(node.inputs):
                readers[name] += 1
        for name in graph.outputs:
            readers[name] += 1
        return cls(graph, {node.outputs[0]: node for node in graph.nodes}, readers)

    def producer(self, tensor: str, op: type[Operator]) -> Node | None:
        """Return the node that computes a tensor, if it is of this kind."""
        node = self.producers.get(tensor)
        return node if node is not None and isinstance(node.op, op) else None

    def unary(self, tensor: str, function: Function) -> str | None:
        """Return x where a tensor is a function of x."""
        node = self.producer(tensor, FloatUnary)
        if node is None or not isinstance(node.op, FloatUnary) or node.op.function is not function:
            return None
        return node.inputs[0]

    def binary(self, tensor: str, function: BinaryFunction) -> tuple[str, str] | None:
        """Return the operands where a tensor is a function of two."""
        node = self.producer(tensor, FloatBinary)
        if node is None or node.op != FloatBinary(function=function):
            return None
        return node.inputs[0], node.inputs[1]

    def pairs(self, tensor: str, function: BinaryFunction) -> Iterator[tuple[str, str]]:
        """Return the operands of a function of two in both orders, nothing where it is none."""
        found = self.binary(tensor, function)
        if found is not None:
            yield found
            yield found[1], found[0]

    def constant(self, tensor: str) -> Array | None:
        """Return the values of a constant."""
        return self.graph.constants.get(tensor)

    def number(self, tensor: str) -> float | None:
        """Return the value of a constant that holds one number."""
        values = self.constant(tensor)
        if values is None or values.size != 1 or values.dtype != np.float32:
            return None
        return float(values.reshape(()))

    def is_number(self, tensor: str, expected: float, tolerance: float = 1e-5) -> bool:
        """Tell whether a tensor is a constant number, up to a relative tolerance."""
        value = self.number(tensor)
        return value is not None and abs(value - expected) <= tolerance * abs(expected)

    def scaled(self, tensor: str, factor: float) -> str | None:
        """Return x where a tensor is ``x * factor`` or ``x / (1 / factor)``."""
        for x, other in self.pairs(tensor, BinaryFunction.MULTIPLY):
            if self.is_number(other, factor):
                return x
        quotient = self.binary(tensor, BinaryFunction.DIVIDE)
        if quotient is not None and self.is_number(quotient[1], 1 / factor):
            return quotient[0]
        return None

    def plus(self, tensor: str, addend: float) -> str | None:
        """Return x where a tensor is ``x + addend``."""
        for x, other in self.pairs(tensor, BinaryFunction.ADD):
            if self.is_number(other, addend):
                return x
        return None
