"""Which operators of a float graph become integer ones, and which tensors are quantised."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.operators import (
    BinaryFunction,
    Concat,
    DataType,
    FloatAveragePool2d,
    FloatBinary,
    FloatClip,
    FloatConv2d,
    FloatConvTranspose2d,
    FloatDense,
    FloatLayerNorm,
    FloatMatMul,
    FloatReduce,
    FloatSoftmax,
    FloatUnary,
    Gather,
    MovementOperator,
    Pad,
    Reduction,
)
from tilewright.compiler.quantisation.masks import masking_nodes

WEIGHTED = FloatConv2d | FloatConvTranspose2d | FloatDense
#: Operators that stay real behind the last matrix product: they shape results for people.
TAIL = FloatBinary | FloatUnary | FloatSoftmax | FloatReduce | FloatLayerNorm


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is quantised.

    Attributes
    ----------
    computed
        Nodes that compute on int8.
    tensors
        Float tensors that are stored as int8.
    """

    computed: frozenset[str]
    tensors: frozenset[str]


def choose(graph: Graph, exclude: frozenset[str] = frozenset()) -> Choice:
    """Decide what of a float graph is quantised; masks and what `exclude` names stay real."""
    exclude |= masking_nodes(graph)
    products = _lead_to_products(graph)
    computed: set[str] = set()
    at_hand = set(graph.inputs) | set(graph.constants)
    for node in graph.nodes:
        (output,) = node.outputs
        chosen = node.name not in exclude and _has_integer_form(graph, node)
        is_product = isinstance(node.op, WEIGHTED | FloatMatMul)
        if chosen and not (products[output] or is_product):
            # Behind the last product, nothing real is quantised once more.
            chosen = not isinstance(node.op, TAIL) and at_hand.issuperset(node.inputs)
        if chosen:
            computed.add(node.name)
        if chosen or (moves(graph, node) and node.inputs[0] in at_hand):
            at_hand.add(output)
    return Choice(computed=frozenset(computed), tensors=frozenset(_tensors(graph, computed)))


def moves(graph: Graph, node: Node) -> bool:
    """Tell whether a node hands on the values of its first operand, so shares its scale."""
    if isinstance(node.op, Pad):
        return node.op.value == 0.0
    if isinstance(node.op, Gather):
        return node.inputs[0] not in graph.constants
    return isinstance(node.op, MovementOperator) and not isinstance(node.op, Concat)


def _has_integer_form(graph: Graph, node: Node) -> bool:
    """Tell whether a node that computes real numbers becomes an integer operator."""
    constant = [name in graph.constants for name in node.inputs]
    match node.op:
        case FloatConv2d() | FloatConvTranspose2d() | FloatDense():
            return not constant[0] and all(constant[1:])
        case FloatBinary(function=function):
            return _binary_has_form(graph, node, function)
        case FloatReduce(function=function, axes=axes):
            adjacent = list(axes) == list(range(axes[0], axes[-1] + 1)) if axes else False
            return function is Reduction.MEAN and adjacent
        case FloatSoftmax(logarithm=logarithm):
            return not logarithm
        case FloatLayerNorm():
            return all(constant[1:])
        case FloatMatMul() | FloatAveragePool2d() | FloatUnary() | FloatClip() | Concat():
            return graph.tensors[node.outputs[0]].dtype is DataType.FLOAT32 and not all(constant)
        case _:
            return False


def _binary_has_form(graph: Graph, node: Node, function: BinaryFunction) -> bool:
    constants = [graph.constants.get(name) for name in node.inputs]
    for values, other in zip(constants, reversed(node.inputs), strict=True):
        if values is not None and values.size == 1:
            return values.ndim <= len(graph.tensors[other].shape) and bool(
                np.isfinite(values).all()
            )
    return function in (BinaryFunction.ADD, BinaryFunction.SUBTRACT, BinaryFunction.MULTIPLY)


def _lead_to_products(graph: Graph) -> Mapping[str, bool]:
    """Tell for each tensor whether a matrix product is computed from it."""
    leads = {name: False for name in graph.tensors}
    for node in reversed(graph.nodes):
        product = isinstance(node.op, WEIGHTED | FloatMatMul)
        if product or leads[node.outputs[0]]:
            for name in node.inputs:
                leads[name] = True
    return leads


def _tensors(graph: Graph, computed: set[str]) -> set[str]:
    """Return the tensors that get scales of their own."""
    consumers, wanted = graph.consumers(), _wanted(graph, computed)
    reals = {name for name, tensor in graph.tensors.items() if tensor.dtype is DataType.FLOAT32}
    chosen = {name for name in graph.inputs if name in wanted & reals}
    stored = set(chosen)
    for node in graph.nodes:
        (name,) = node.outputs
        hands_on = moves(graph, node) or isinstance(node.op, FloatClip)
        if hands_on and node.inputs[0] in stored:
            stored.add(name)
            continue
        if node.name in computed:
            own = not _joins_its_reader(graph, consumers[name], name, computed)
        else:
            own = name in wanted & reals
        if own:
            chosen.add(name)
            stored.add(name)
    return chosen


def _wanted(graph: Graph, computed: set[str]) -> set[str]:
    """Return what integer operators read, through movement or not."""
    wanted: set[str] = set()
    for node in reversed(graph.nodes):
        if node.name in computed or (moves(graph, node) and node.outputs[0] in wanted):
            wanted.update(node.inputs[:1] if moves(graph, node) else node.inputs)
    return wanted


def _joins_its_reader(
    graph: Graph, readers: tuple[Node, ...], name: str, computed: set[str]
) -> bool:
    """Tell whether the one reader of a tensor stores it, clipped or joined with others."""
    if len(readers) != 1 or name in graph.outputs or readers[0].name not in computed:
        return False
    return isinstance(readers[0].op, FloatClip | Concat)
