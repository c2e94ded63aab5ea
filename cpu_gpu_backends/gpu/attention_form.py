"""Attention as one computation: which nodes of a graph it is, and its declaration.

``softmax(f(q @ k)) @ v`` with element-wise ``f``: scale, mask. Both products and the softmax are
declared over whole matrices; that no scores lie in memory is a matter of the schedule.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tilewright.compiler.graph import Node
from tilewright.compiler.operators import FloatMatMul, FloatSoftmax
from tilewright.compiler.tensor.build import call, cast, maximum, reduce_max, reduce_sum
from tilewright.compiler.tensor.declare import compute, reduce_axis
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.operations import Function
from tilewright.compiler.tensor.operators.broadcasting import broadcast_element
from tilewright.compiler.tensor.operators.from_graph import declare_operator
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.gpu.layers import Layer

#: In place of minus infinity, so that no difference of two infinities arises from masks.
_LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionForm:
    """Declared attention: the stages that its schedule arranges.

    Attributes
    ----------
    result
        The mean of the values by weight, in the shape of the graph.
    query, key, value
        Copies of the operands, float32.
    products, scores
        The first product, and what the softmax is taken of.
    peak, weights, total
        Per row the largest score, ``exp(score - peak)`` and their sum.
    weighted
        The values, added up by weight.
    """

    result: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    products: Tensor
    scores: Tensor
    peak: Tensor
    weights: Tensor
    total: Tensor
    weighted: Tensor


def attention_length(nodes: Sequence[Node]) -> int:
    """Return how many of the first nodes of a group are an attention, 0 where it is none.

    Each node but the first reads the one before it.
    """
    for number, (node, following) in enumerate(pairwise(nodes)):
        if isinstance(node.op, FloatSoftmax):
            return number + 2 if isinstance(following.op, FloatMatMul) else 0
    return 0


def declare_attention(
    layer: Layer, stored: Mapping[str, Tensor], inputs: Mapping[str, Tensor]
) -> AttentionForm:
    """Declare the attention that a layer begins with.

    Parameters
    ----------
    stored, inputs
        The tensors that the layer reads by name: as they lie in memory, and as they are computed
        with.
    """
    nodes = layer.nodes[: attention_length(layer.nodes)]
    first, last = nodes[0], nodes[-1]
    name = last.outputs[0]
    value = _copy(stored[last.inputs[1]], f"{name}.value")
    query = _copy(stored[first.inputs[0]], f"{name}.query")
    key = _copy(stored[first.inputs[1]], f"{name}.key")
    products = declare_operator(first.op, (query, key), f"{name}.products")
    scores = _scores(nodes, {**inputs, first.outputs[0]: products}, f"{name}.scores")
    shape = scores.shape
    k = reduce_axis(shape[-1], "k")
    peak = compute(shape[:-1], lambda *at: reduce_max(scores.at(*at, k.var), k), f"{name}.peak")

    def weight(*at: Expr) -> Expr:
        return call(Function.EXP, scores[at] - maximum(peak[at[:-1]], _LOWEST))

    weights = compute(shape, weight, f"{name}.weights")
    total = compute(shape[:-1], lambda *at: reduce_sum(weights.at(*at, k.var), k), f"{name}.total")

    def share(*at: Expr) -> Expr:
        *outer, i, d = at
        own = broadcast_element(value, (*outer, k.var, d))
        return reduce_sum(own * weights.at(*outer, i, k.var), k)

    shape = layer.tensors[name].shape
    weighted = compute(shape, share, f"{name}.weighted")
    result = compute(shape, lambda *at: weighted[at] / total[at[:-1]], name)
    return AttentionForm(
        result=result, query=query, key=key, value=value, products=products, scores=scores,
        peak=peak, weights=weights, total=total, weighted=weighted,
    )  # fmt: skip


def _scores(nodes: Sequence[Node], known: dict[str, Tensor], name: str) -> Tensor:
    """Declare what the softmax is taken of, the first of `nodes` being among the `known`."""
    softmax = nodes[-2]
    assert isinstance(softmax.op, FloatSoftmax), "what stands between two products"
    for node in nodes[1:-2]:
        operands = tuple(known[operand] for operand in node.inputs)
        known[node.outputs[0]] = declare_operator(node.op, operands, node.outputs[0])
    source, beta = known[softmax.inputs[0]], softmax.op.beta
    return compute(source.shape, lambda *at: source[at] * beta, name)


def _copy(tensor: Tensor, name: str) -> Tensor:
    return compute(tensor.shape, lambda *at: cast(tensor[at], ScalarType.FLOAT32), name)
