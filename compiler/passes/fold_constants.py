"""Pass: carry out what reads constants only.

Transpose(DequantizeWeights(w))  ->  DequantizeWeights(transposed w)
Reshape(DequantizeWeights(w))    ->  DequantizeWeights(reshaped w)
f(c, ...)                        ->  the constant, f on real numbers or movement
"""

from dataclasses import dataclass

import numpy as np

from tilewright.compiler.evaluate import evaluate_node
from tilewright.compiler.graph import Array, Graph, Node
from tilewright.compiler.operators import (
    DequantizeWeights,
    FloatOperator,
    LogicOperator,
    MovementOperator,
    Reshape,
    Transpose,
)
from tilewright.compiler.passes.rewrite import Rewrite
from tilewright.isa.errors import InputError, ModelError

#: Operators that are carried out on constants.
FOLDED = MovementOperator | FloatOperator | LogicOperator


@dataclass(frozen=True, slots=True)
class _Weights:
    """Operands of a `DequantizeWeights`."""

    values: Array
    scale: str
    zero_point: str
    axis: int | None


def fold_constants(graph: Graph) -> Graph:
    """Return `graph` without operators on constants."""
    rewrite = Rewrite(graph)
    weights: dict[str, _Weights] = {}
    for node in graph.nodes:
        match node.op:
            case DequantizeWeights(axis=axis):
                values, scale, zero_point = node.inputs
                per_tensor = graph.tensors[scale].shape == (1,)
                weights[node.outputs[0]] = _Weights(
                    graph.constants[values], scale, zero_point, None if per_tensor else axis
                )
                rewrite.keep(node)
            case Transpose() | Reshape() if node.inputs[0] in weights:
                _fold_weights(rewrite, node, weights)
            case _ if isinstance(node.op, FOLDED) and _is_constant(rewrite, node):
                _fold(rewrite, node)
            case _:
                rewrite.keep(node)
    return rewrite.finish()


def _is_constant(rewrite: Rewrite, node: Node) -> bool:
    return all(rewrite.constant(name) is not None for name in node.inputs)


def _fold(rewrite: Rewrite, node: Node) -> None:
    values = {}
    for name in node.inputs:
        constant = rewrite.constant(name)
        assert constant is not None
        values[name] = constant
    try:
        result = evaluate_node(rewrite.graph, node, values)
    except InputError as error:
        raise ModelError(f"{node.label} cannot be computed: {error}") from error
    rewrite.replace_by_constant(node, np.asarray(result))


def _fold_weights(rewrite: Rewrite, node: Node, weights: dict[str, _Weights]) -> None:
    """Replace movement of dequantised weights, if their channel axis survives it."""
    before = weights[node.inputs[0]]
    assert isinstance(node.op, Transpose | Reshape)
    values = _moved(node.op, before.values)
    axis = None if before.axis is None else _moved_axis(node.op, before.values.shape, before.axis)
    if axis is None and before.axis is not None:
        rewrite.keep(node)
        return
    after = _Weights(values, before.scale, before.zero_point, axis)
    weights[node.outputs[0]] = after
    constant = rewrite.builder.add_constant(f"{node.outputs[0]}/values", values)
    operands = [constant, rewrite.new(before.scale), rewrite.new(before.zero_point)]
    rewrite.emit(node, DequantizeWeights(axis=0 if axis is None else axis), operands)


def _moved(op: Transpose | Reshape, values: Array) -> Array:
    if isinstance(op, Transpose):
        return np.ascontiguousarray(values.transpose(op.permutation))
    return values.reshape(op.shape)


def _moved_axis(op: Transpose | Reshape, shape: tuple[int, ...], axis: int) -> int | None:
    """Return where `axis` of a tensor lies after `op`, None where a reshape splits or merges it."""
    if isinstance(op, Transpose):
        return op.permutation.index(axis)
    inner = int(np.prod(shape[axis + 1 :], dtype=np.int64))
    for position, size in enumerate(op.shape):
        after = int(np.prod(op.shape[position + 1 :], dtype=np.int64))
        if (size, after) == (shape[axis], inner):
            return position
    return None
