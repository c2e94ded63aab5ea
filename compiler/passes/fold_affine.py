"""Pass: factors and addends per channel behind a convolution go into its weights and bias.

    f(x, w, b) * c   ->  f(x, w * c, b * c)
    f(x, w, b) + c   ->  f(x, w, b + c)
    f(x, w, b) - c   ->  f(x, w, b - c)
    f(x, w, b) / c   ->  f(x, w / c, b / c)

where f is a convolution, a transposed one or a dense layer with float weights, c is constant and
has one number per output channel or one for all, and nothing else reads the result of f.
"""

from dataclasses import dataclass

import numpy as np

from tilewright.compiler.graph import Array, Graph, Node
from tilewright.compiler.operators import (
    BinaryFunction,
    FloatBinary,
    FloatConv2d,
    FloatConvTranspose2d,
    FloatDense,
)
from tilewright.compiler.passes.patterns import Patterns
from tilewright.compiler.passes.rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class _Weighted:
    """A convolution or dense layer with what has been folded into it, in float64."""

    node: Node
    weights: Array
    bias: Array


def fold_affine(graph: Graph) -> Graph:
    """Return `graph` with factors and addends per channel folded into weights."""
    patterns = Patterns.of(graph)
    folded: dict[str, _Weighted] = {}
    absorbed: set[str] = set()
    for node in graph.nodes:
        weighted = _weighted(graph, node)
        if weighted is not None:
            folded[node.outputs[0]] = weighted
            continue
        affine = _absorb(patterns, node, folded)
        if affine is not None:
            source, result = affine
            absorbed.add(source)
            folded[node.outputs[0]] = result
    rewrite = Rewrite(graph)
    for node in graph.nodes:
        name = node.outputs[0]
        if name in absorbed:
            continue
        if name in folded and folded[name].node is not node:
            _emit(rewrite, node, folded[name])
        else:
            rewrite.keep(node)
    return rewrite.finish()


def _weighted(graph: Graph, node: Node) -> _Weighted | None:
    if not isinstance(node.op, FloatConv2d | FloatConvTranspose2d | FloatDense):
        return None
    constants = [graph.constants.get(name) for name in node.inputs[1:]]
    weights = constants[0]
    bias = constants[1] if len(constants) == 2 else np.zeros(1, np.float32)
    if weights is None or bias is None:
        return None
    wide = np.broadcast_to(bias.astype(np.float64), weights.shape[:1])
    if weights.dtype != np.float32 or not np.isfinite(weights).all():
        return None
    return _Weighted(node, weights.astype(np.float64), wide)


def _absorb(
    patterns: Patterns, node: Node, folded: dict[str, _Weighted]
) -> tuple[str, _Weighted] | None:
    """Return the tensor that a node scales or shifts, and the layer that does it instead."""
    if not isinstance(node.op, FloatBinary):
        return None
    commutes = node.op.function in (BinaryFunction.ADD, BinaryFunction.MULTIPLY)
    orders = (node.inputs, node.inputs[::-1]) if commutes else (node.inputs,)
    for source, other in orders:
        values = patterns.constant(other)
        if source not in folded or values is None or patterns.readers[source] != 1:
            continue
        shape = patterns.graph.tensors[node.outputs[0]].shape
        per_channel = values.size == 1 or values.shape[-1:] == (values.size,) == shape[-1:]
        if shape != patterns.graph.tensors[source].shape or not per_channel:
            continue
        layer = _combined(folded[source], node.op.function, values.reshape(-1).astype(np.float64))
        if layer is not None:
            return source, layer
    return None


def _combined(layer: _Weighted, function: BinaryFunction, values: Array) -> _Weighted | None:
    match function:
        case BinaryFunction.ADD:
            return _Weighted(layer.node, layer.weights, layer.bias + values)
        case BinaryFunction.SUBTRACT:
            return _Weighted(layer.node, layer.weights, layer.bias - values)
        case BinaryFunction.MULTIPLY:
            return _scaled(layer, values)
        case BinaryFunction.DIVIDE if values.all():
            return _scaled(layer, 1 / values)
        case _:
            return None


def _scaled(layer: _Weighted, factor: Array) -> _Weighted | None:
    per_output = factor.reshape(-1, *(1,) * (layer.weights.ndim - 1))
    with np.errstate(all="ignore"):
        weights, bias = layer.weights * per_output, layer.bias * factor
        narrow = weights.astype(np.float32)
    if not np.isfinite(narrow).all():
        return None
    return _Weighted(layer.node, weights, bias)


def _emit(rewrite: Rewrite, node: Node, layer: _Weighted) -> None:
    """Let the layer compute what `node`, the last of what it has absorbed, did."""
    source = layer.node
    operands = [
        rewrite.new(source.inputs[0]),
        rewrite.builder.add_constant(f"{source.name}.weights", layer.weights.astype(np.float32)),
        rewrite.builder.add_constant(f"{source.name}.bias", layer.bias.astype(np.float32)),
    ]
    rewrite.emit(source, source.op, operands, result=node.outputs[0])
