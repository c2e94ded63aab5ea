"""Layers: groups of nodes without their names, so that equal ones are compiled once."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tilewright.compiler.graph import Graph, Node, Tensor
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.gpu.fusion import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Nodes over tensors with names of their own; two equal ones have the same kernels.

    Attributes
    ----------
    nodes
        In the order in which they run.
    types
        Shape and element type of every tensor; the ones that the layer reads come first.
    inputs
        Names of the tensors that the layer reads.
    constants
        Those of the inputs whose values are known when the network is compiled.
    """

    nodes: tuple[Node, ...]
    types: tuple[Tensor, ...]
    inputs: tuple[str, ...]
    constants: frozenset[str]
    #: Those of the tensors, real numbers, that lie in memory as float16.
    halves: frozenset[str] = frozenset()

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Every tensor by name."""
        return MappingProxyType({tensor.name: tensor for tensor in self.types})

    def stored(self, name: str) -> ScalarType:
        """Return the type that a tensor has in memory."""
        if name in self.halves:
            return ScalarType.FLOAT16
        return ScalarType(self.tensors[name].dtype.value)

    @property
    def anchor(self) -> Node:
        """The node that the others follow."""
        return self.nodes[0]

    @property
    def output(self) -> str:
        """Name of the tensor that the layer computes."""
        return self.nodes[-1].outputs[0]

    def operands(self, node: Node) -> tuple[Tensor, ...]:
        """Return the tensors that `node` reads."""
        tensors = self.tensors
        return tuple(tensors[name] for name in node.inputs)


def layer_of(graph: Graph, group: Group, halves: frozenset[str] = frozenset()) -> Layer:
    """Return `group` with its inputs called ``x0 x1 ...`` and its results ``y0 y1 ...``."""
    names = {name: f"x{number}" for number, name in enumerate(group.inputs)}
    names |= {node.outputs[0]: f"y{number}" for number, node in enumerate(group.nodes)}
    nodes = tuple(
        Node(
            name=f"n{number}",
            op=node.op,
            inputs=tuple(names[name] for name in node.inputs),
            outputs=tuple(names[name] for name in node.outputs),
        )
        for number, node in enumerate(group.nodes)
    )
    return Layer(
        nodes=nodes,
        types=tuple(_plain(graph.tensors[name], own) for name, own in names.items()),
        inputs=tuple(names[name] for name in group.inputs),
        constants=frozenset(names[name] for name in group.inputs if name in graph.constants),
        halves=frozenset(names[name] for name in (*group.inputs, group.output) if name in halves),
    )


def _plain(tensor: Tensor, name: str) -> Tensor:
    return replace(tensor, name=name, scale=None, zero_point=None, source=None)
