"""Nodes computed together: one that needs loops of its own, and the element-wise ones behind it."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.operators import Conv2d, FloatConv2d, FloatDense, FloatMatMul, MatMul
from tilewright.cpu_gpu_backends.cpu.plans import Plan
from tilewright.cpu_gpu_backends.cpu.tails import OperandKind, operand_kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A node and those of its tail, each of which reads the one before it.

    `anchor` is None where all nodes are element-wise.
    """

    nodes: tuple[Node, ...]
    anchored: bool
    #: What a tuner has chosen; None where rules decide.
    plan: Plan | None = None
    #: Whether its products are of bfloat16 numbers.
    half: bool = False
    #: Whether a convolution is a plain sum, without Winograd's transformations.
    direct: bool = False

    @property
    def first(self) -> Node:
        """The node that the others follow."""
        return self.nodes[0]

    @property
    def tail(self) -> tuple[Node, ...]:
        """The element-wise nodes behind the anchor; without an anchor, all nodes."""
        return self.nodes[1:] if self.anchored else self.nodes

    @property
    def output(self) -> str:
        """Name of the tensor that the group computes."""
        return self.nodes[-1].outputs[0]

    @property
    def names(self) -> tuple[str, ...]:
        """What kernels of the group are called after: its tensor, or its first node."""
        return self.output, self.first.name

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensors that the group reads."""
        own = {name for node in self.nodes for name in node.outputs}
        read = dict.fromkeys(name for node in self.nodes for name in node.inputs)
        return tuple(name for name in read if name not in own)


def group_nodes(graph: Graph) -> tuple[Group, ...]:
    """Cut the graph into groups, in an order in which they can run."""
    consumers = graph.consumers()
    groups: dict[str, list[Node]] = {}
    anchored: dict[str, bool] = {}
    for node in graph.nodes:
        kinds = operand_kinds(graph, node)
        host = None if kinds is None else _host(graph, node, kinds, groups, consumers)
        if host is None:
            groups[node.outputs[0]] = [node]
            anchored[node.outputs[0]] = kinds is None
        else:
            # Behind everything that the node reads: the group runs where its last node stands.
            groups[node.outputs[0]] = [*groups.pop(host), node]
            anchored[node.outputs[0]] = anchored.pop(host)
    return tuple(
        Group(nodes=tuple(nodes), anchored=anchored[output]) for output, nodes in groups.items()
    )


def with_plans(
    graph: Graph, groups: tuple[Group, ...], plans: Mapping[str, Plan]
) -> tuple[Group, ...]:
    """Return the groups with what a tuner has chosen for them, by their digest."""
    if not plans:
        return groups
    return tuple(
        replace(group, plan=plans.get(group_digest(graph, group))) if group.anchored else group
        for group in groups
    )


def group_digest(graph: Graph, group: Group) -> str:
    """Return the digest of what the time of a group depends on: operators and shapes, no values."""
    text = "\n".join(" ".join(map(str, _signature(graph, node))) for node in group.nodes)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _signature(graph: Graph, node: Node) -> Iterator[object]:
    yield type(node.op).__name__
    if isinstance(node.op, Conv2d | FloatConv2d):
        yield from (node.op.stride, node.op.pads, node.op.dilation, node.op.groups)
    for name in (*node.inputs, *node.outputs):
        tensor = graph.tensors[name]
        yield from (tensor.dtype.value, tensor.shape, name in graph.constants)


def _host(
    graph: Graph,
    node: Node,
    kinds: tuple[OperandKind, ...],
    groups: dict[str, list[Node]],
    consumers: Mapping[str, tuple[Node, ...]],
) -> str | None:
    """Return the tensor whose group `node` joins: the latest one that nobody else reads."""
    for output in reversed(groups):
        if output not in node.inputs or output in graph.outputs:
            continue
        if len(consumers[output]) != 1 or node.inputs.count(output) != 1:
            continue
        if kinds[node.inputs.index(output)] is not OperandKind.SAME:
            continue
        first = groups[output][0]
        if _takes_tail(graph, first, node, kinds):
            return output
    return None


def _takes_tail(graph: Graph, first: Node, node: Node, kinds: tuple[OperandKind, ...]) -> bool:
    """Whether the kernels of `first` can compute `node` behind it."""
    if operand_kinds(graph, first) is None and not has_tail(graph, first):
        return False
    channels = [
        name
        for name, kind in zip(node.inputs, kinds, strict=True)
        if kind is OperandKind.CHANNEL and name not in graph.constants
    ]
    return not channels


def has_tail(graph: Graph, node: Node) -> bool:
    """Whether the kernel of a node computes element-wise nodes behind it."""
    match node.op:
        case Conv2d() | FloatConv2d():
            return is_plain_convolution(graph, node) or is_depthwise(graph, node)
        case FloatDense():
            return node.inputs[1] in graph.constants
        case FloatMatMul() | MatMul():
            left, right = (graph.tensors[name].shape for name in node.inputs)
            return len(left) >= 2 and left[:-2] == right[:-2]
        case _:
            return False


def is_product(graph: Graph, node: Node) -> bool:
    """Whether a node is a product of activations that a matrix kernel computes."""
    return isinstance(node.op, FloatMatMul | MatMul) and has_tail(graph, node)


def is_plain_convolution(graph: Graph, node: Node) -> bool:
    """Whether a node is a convolution with constant weights, each output reading all inputs."""
    match node.op:
        case Conv2d() | FloatConv2d():
            return node.op.groups == 1 and node.inputs[1] in graph.constants
        case _:
            return False


def is_depthwise(graph: Graph, node: Node) -> bool:
    """Whether a node is a convolution whose each output channel reads the input channel beside."""
    match node.op:
        case Conv2d() | FloatConv2d() as op:
            outputs, *_, depth = graph.tensors[node.inputs[1]].shape
            constant = node.inputs[1] in graph.constants
            return constant and depth == 1 and op.groups == outputs > 1
        case _:
            return False
