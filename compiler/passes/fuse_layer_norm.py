"""Pass: layer normalisations that files spell out become one operator.

    d = x - mean(x);  d / sqrt(mean(d * d) + epsilon) * gain + offset  ->  FloatLayerNorm(x)

over the last axis; a square may be a power, a quotient a product with a reciprocal; gain and offset
may be absent, if both are.
"""

from dataclasses import dataclass

import numpy as np

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.operators import (
    BinaryFunction,
    FloatLayerNorm,
    FloatReduce,
    Function,
    Reduction,
)
from tilewright.compiler.passes.patterns import Patterns
from tilewright.compiler.passes.rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class _Normalised:
    """``(x - mean) / sqrt(variance + epsilon)`` over the last axis."""

    x: str
    epsilon: float


def fuse_layer_norm(graph: Graph) -> Graph:
    """Return `graph` with layer normalisations as one operator each."""
    patterns = Patterns.of(graph)
    affine: dict[str, tuple[_Normalised, str | None, str | None]] = {}
    for node in graph.nodes:
        found = _affine(patterns, node.outputs[0])
        if found is not None:
            affine[node.outputs[0]] = found
    rewrite = Rewrite(graph)
    for node in graph.nodes:
        if node.outputs[0] in affine:
            normalised, gain, offset = affine[node.outputs[0]]
            _emit(rewrite, node, normalised, gain, offset)
        else:
            rewrite.keep(node)
    return rewrite.finish()


def _emit(
    rewrite: Rewrite, node: Node, normalised: _Normalised, gain: str | None, offset: str | None
) -> None:
    size = rewrite.graph.tensors[normalised.x].shape[-1]
    operands = [rewrite.new(normalised.x)]
    for part, name, default in (("gain", gain, 1.0), ("offset", offset, 0.0)):
        values = np.full(size, default, np.float32)
        if name is not None:
            values = np.broadcast_to(rewrite.graph.constants[name].reshape(-1), size)
        operands.append(rewrite.builder.add_constant(f"{node.name}/{part}", values.copy()))
    rewrite.emit(node, FloatLayerNorm(epsilon=normalised.epsilon), operands)


def _affine(patterns: Patterns, result: str) -> tuple[_Normalised, str | None, str | None] | None:
    """Return what a tensor is a gain and an offset of; without both, if it is scaled no further."""
    plain = _normalised(patterns, result)
    if plain is not None:
        return plain, None, None
    for product, offset in patterns.pairs(result, BinaryFunction.ADD):
        for inner, gain in patterns.pairs(product, BinaryFunction.MULTIPLY):
            if not (_is_vector(patterns, gain, inner) and _is_vector(patterns, offset, inner)):
                continue
            normalised = _normalised(patterns, inner)
            if normalised is not None:
                return normalised, gain, offset
    return None


def _is_vector(patterns: Patterns, tensor: str, x: str) -> bool:
    """Tell whether a tensor is constant and varies along the last axis of x only."""
    values, shape = patterns.constant(tensor), patterns.graph.tensors[x].shape
    return (
        values is not None
        and values.ndim <= len(shape)
        and values.size in (1, shape[-1])
        and values.shape[-1:] in ((values.size,), ())
    )


def _normalised(patterns: Patterns, result: str) -> _Normalised | None:
    """Return x where a tensor is x normalised over the last axis."""
    for centred, root in _quotients(patterns, result):
        difference = patterns.binary(centred, BinaryFunction.SUBTRACT)
        if difference is None or _mean_of(patterns, difference[1]) != difference[0]:
            continue
        for variance, epsilon in patterns.pairs(root, BinaryFunction.ADD):
            value = patterns.number(epsilon)
            squares = _mean_of(patterns, variance)
            if value is None or squares is None or value < 0:
                continue
            if _is_square(patterns, squares, difference):
                return _Normalised(difference[0], value)
    return None


def _quotients(patterns: Patterns, result: str) -> list[tuple[str, str]]:
    """Return numerator and radicand where a tensor is a quotient by a square root."""
    found = []
    quotient = patterns.binary(result, BinaryFunction.DIVIDE)
    if quotient is not None:
        radicand = patterns.unary(quotient[1], Function.SQRT)
        if radicand is not None:
            found.append((quotient[0], radicand))
    for numerator, factor in patterns.pairs(result, BinaryFunction.MULTIPLY):
        root = patterns.unary(factor, Function.RECIPROCAL)
        radicand = patterns.unary(root, Function.SQRT) if root is not None else None
        if radicand is not None:
            found.append((numerator, radicand))
    return found


def _mean_of(patterns: Patterns, tensor: str) -> str | None:
    """Return x where a tensor is the mean of x over the last axis."""
    node = patterns.producer(tensor, FloatReduce)
    if node is None:
        return None
    last = len(patterns.graph.tensors[node.inputs[0]].shape) - 1
    mean = FloatReduce(function=Reduction.MEAN, axes=(last,))
    return node.inputs[0] if node.op == mean else None


def _is_square(patterns: Patterns, tensor: str, difference: tuple[str, str]) -> bool:
    """Tell whether a tensor is the square of a difference, which may be computed twice."""
    power = patterns.binary(tensor, BinaryFunction.POWER)
    if power is not None and patterns.is_number(power[1], 2.0):
        return patterns.binary(power[0], BinaryFunction.SUBTRACT) == difference
    product = patterns.binary(tensor, BinaryFunction.MULTIPLY)
    return product is not None and all(
        patterns.binary(factor, BinaryFunction.SUBTRACT) == difference for factor in product
    )
