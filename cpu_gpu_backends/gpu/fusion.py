"""Nodes of a graph computed together: one, and the element-wise ones that follow it."""

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.operators import FloatMatMul, FloatSoftmax, Reshape
from tilewright.compiler.tensor.build import constant
from tilewright.compiler.tensor.declare import placeholder
from tilewright.compiler.tensor.expressions import Definition, Load, Reduce
from tilewright.compiler.tensor.operators.from_graph import declare_operator
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.traversal import loads, nodes

#: The longest query and value of an attention whose tiles a block of threads can hold.
LONGEST_HEAD = 128
#: How often a value may occur in the expression of the last node of its group.
_COPIES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Nodes of one launch, or of a few: each but the first reads the one before it."""

    nodes: tuple[Node, ...]

    @property
    def anchor(self) -> Node:
        """The node that the others follow."""
        return self.nodes[0]

    @property
    def tail(self) -> tuple[Node, ...]:
        """The element-wise nodes behind the anchor."""
        return self.nodes[1:]

    @property
    def output(self) -> str:
        """Name of the tensor that the group computes."""
        return self.nodes[-1].outputs[0]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensors that the group reads."""
        own = {name for node in self.nodes for name in node.outputs}
        read = dict.fromkeys(name for node in self.nodes for name in node.inputs)
        return tuple(name for name in read if name not in own)


def group_nodes(graph: Graph, *, fuse: bool = True) -> tuple[Group, ...]:
    """Cut a graph into groups, in an order in which they can run; without `fuse`, one per node.

    A node joins the group of an operand that only it reads, at the same place as it writes. Of
    several such operands it takes the one computed last, as all others are there by then.
    """
    consumers = graph.consumers()
    groups: dict[str, list[Node]] = {}
    copies: dict[str, int] = {}
    for node in graph.nodes:
        if fuse and (attention := _attention(graph, node, groups, consumers)):
            softmax, scores = node.inputs[0], attention[-2].inputs[0]
            groups.pop(softmax)
            groups.pop(scores)
            groups[node.outputs[0]] = list(attention)
            copies[node.outputs[0]] = 1
            continue
        host = _host(graph, node, groups, copies, consumers) if fuse else None
        uses = 1 if host is None else same_place_operands(graph, node)[host]
        copies[node.outputs[0]] = uses * (copies[host] if host else 1)
        # A group runs where its last node stands, behind everything that any of its nodes reads.
        groups[node.outputs[0]] = [*(groups.pop(host) if host else ()), node]
    return tuple(Group(nodes=tuple(nodes)) for nodes in groups.values())


def _attention(
    graph: Graph,
    node: Node,
    groups: Mapping[str, list[Node]],
    consumers: Mapping[str, tuple[Node, ...]],
) -> tuple[Node, ...]:
    """Return the nodes of the attention that ends with `node`, none where there is none.

    The softmax stands alone, in front of it a product of activations with element-wise nodes;
    nothing but the attention reads them.
    """
    softmax = groups.get(node.inputs[0], []) if isinstance(node.op, FloatMatMul) else []
    if len(softmax) != 1 or not isinstance(softmax[0].op, FloatSoftmax):
        return ()
    scores = softmax[0].inputs[0]
    product = groups.get(scores, [])
    between = (scores, softmax[0].outputs[0])
    fits = (
        not softmax[0].op.logarithm
        and len(product) > 0
        and isinstance(product[0].op, FloatMatMul)
        and all(len(consumers[name]) == 1 and name not in graph.outputs for name in between)
        and between[1] not in node.inputs[1:]
    )
    if not fits:
        return ()
    query, shape = graph.tensors[product[0].inputs[0]].shape, graph.tensors[node.outputs[0]].shape
    stacked = len(shape) >= 2 and graph.tensors[scores].shape[:-1] == shape[:-1]
    small = max(query[-1], shape[-1]) <= LONGEST_HEAD
    return (*product, *softmax, node) if stacked and small else ()


def _host(
    graph: Graph,
    node: Node,
    groups: Mapping[str, list[Node]],
    copies: Mapping[str, int],
    consumers: Mapping[str, tuple[Node, ...]],
) -> str | None:
    fitting = [
        name
        for name in groups
        if name in node.inputs
        and name not in graph.outputs
        and len(consumers[name]) == 1
        and not isinstance(groups[name][0].op, Reshape)
    ]
    if not fitting or isinstance(node.op, Reshape):
        return None
    places = same_place_operands(graph, node)
    joined = (name for name in reversed(fitting) if copies[name] * places.get(name, 99) <= _COPIES)
    return next(joined, None)


def same_place_operands(graph: Graph, node: Node) -> Mapping[str, int]:
    """Return the operands that an element-wise node reads at the place that it writes.

    Each comes with how often its value occurs in the node's expression.
    """
    operands = graph.operands(node)
    inputs = tuple(
        placeholder(operand.shape, ScalarType(operand.dtype.value), f"operand{number}")
        for number, operand in enumerate(operands)
    )
    definition = declare_operator(node.op, inputs, node.name).definition
    if definition is None or isinstance(definition.body, Reduce):
        return {}
    parts = tuple(nodes(definition.body))
    found = loads(definition.body)
    if any(load.tensor not in inputs for load in found):
        return {}
    shape = tuple(axis.extent for axis in definition.axes)
    return {
        operand.name: sum(isinstance(part, Load) and part.tensor is tensor for part in parts)
        for operand, tensor in zip(operands, inputs, strict=True)
        if tensor.shape == shape
        and all(_is_here(load, definition) for load in found if load.tensor is tensor)
    }


def _is_here(load: Load, definition: Definition) -> bool:
    """Whether `load` reads the element at the place of the one that is computed."""
    nothing = constant(0, ScalarType.INDEX)
    return all(
        index == axis.var or (axis.extent == 1 and index == nothing)
        for index, axis in zip(load.indices, definition.axes, strict=True)
    )
