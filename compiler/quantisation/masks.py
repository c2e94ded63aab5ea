"""Nodes of a float graph that hide entries by a mask: their numbers are no magnitudes to round."""

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.operators import (
    Concat,
    DataType,
    FloatSoftmax,
    Gather,
    MovementOperator,
)


def masking_nodes(graph: Graph) -> frozenset[str]:
    """Return the nodes that compute or apply masks, and the softmax of what they hide.

    A mask is what is computed from integers or truth values alone, except by looking up a table. A
    score that is hidden by adding a large negative number would leave no steps for the others.
    """
    masks = {
        name
        for name in graph.inputs
        if graph.tensors[name].dtype not in (DataType.FLOAT32, DataType.INT8, DataType.UINT8)
    }
    hidden: set[str] = set()
    found: set[str] = set()
    for node in graph.nodes:
        varying = [name for name in node.inputs if name not in graph.constants]
        if not _looks_up(graph, node) and varying and masks.issuperset(varying):
            masks.update(node.outputs)
            found.add(node.name)
        elif not _looks_up(graph, node) and not masks.isdisjoint(varying):
            hidden.update(node.outputs)
            found.add(node.name)
        elif not hidden.isdisjoint(varying) and isinstance(
            node.op, FloatSoftmax | MovementOperator
        ):
            found.add(node.name)
            if not isinstance(node.op, FloatSoftmax | Concat):
                hidden.update(node.outputs)
    return frozenset(found)


def _looks_up(graph: Graph, node: Node) -> bool:
    """Tell whether a node takes entries of what is no mask."""
    return isinstance(node.op, Gather) and graph.tensors[node.inputs[0]].dtype is DataType.FLOAT32
