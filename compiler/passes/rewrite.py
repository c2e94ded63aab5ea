"""What passes share that copy a graph node by node and replace some."""

from collections.abc import Sequence

from tilewright.compiler.graph import Array, Graph, Node
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import Operator


class Rewrite:
    """A copy of `graph` under construction; every old tensor stands for a new one."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.builder = GraphBuilder(graph.name)
        self.builder.reserve(graph.outputs)
        self._new: dict[str, str] = {}
        for name in graph.inputs:
            self._new[name] = self.builder.add_input(graph.tensors[name])
        for name, values in graph.constants.items():
            self._new[name] = self.builder.add_constant(name, values)

    def new(self, name: str) -> str:
        """Return the new tensor for the old one."""
        return self._new[name]

    def stand_for(self, name: str, tensor: str) -> None:
        """Let a new tensor stand for the old one from here on."""
        self._new[name] = tensor

    def constant(self, name: str) -> Array | None:
        """Return the values of an old tensor that is, or became, constant."""
        return self.builder.constant_value(self._new[name])

    def keep(self, node: Node) -> None:
        """Copy a node."""
        self.emit(node, node.op, [self._new[name] for name in node.inputs])

    def emit(
        self, node: Node, op: Operator, operands: Sequence[str], *, result: str | None = None
    ) -> None:
        """Let `op` on new tensors compute what the old `node` did, or the old tensor `result`.

        The new node has the name of the old one.
        """
        old = self.graph.tensors[result or node.outputs[0]]
        self._new[old.name] = self.builder.add(
            op,
            operands,
            node=node.name,
            output=old.name,
            scale=old.scale,
            zero_point=old.zero_point,
            source=old.source,
            node_source=node.source,
        )

    def replace_by(self, node: Node, tensor: str) -> None:
        """Let a new tensor that exists already stand for the output of the old `node`."""
        self._new[node.outputs[0]] = tensor
        self.share_source(node, tensor)

    def share_source(self, node: Node, tensor: str) -> None:
        """Let a new tensor of the same values, in order, have the source of `node`'s output."""
        source = self.graph.tensors[node.outputs[0]].source
        if source is not None and self.builder.tensor(tensor).source is None:
            self.builder.describe(tensor, source=source)

    def replace_by_constant(self, node: Node, values: Array) -> None:
        """Let a constant stand for the output of the old `node`."""
        self._new[node.outputs[0]] = self.builder.add_constant(node.outputs[0], values)

    def finish(self) -> Graph:
        """Return the new graph, its inputs and outputs named as the old one's."""
        for name in self.graph.outputs:
            if name not in self.graph.inputs:
                self.builder.name_output(
                    self._new[name], name, source=self.graph.tensors[name].source
                )
        return self.builder.build(self.graph.outputs)
