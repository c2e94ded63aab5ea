"""Pass: functions of one number that files spell out become one operator.

    x * sigmoid(x)                                        ->  silu(x)
    x * hard_sigmoid(x; 1 / 6, 1 / 2)                     ->  hard_swish(x)
    x * clip(x + 3, 0, 6) / 6                             ->  hard_swish(x)
    x * tanh(softplus(x))                                 ->  mish(x)
    x * (1 + erf(x / sqrt(2))) * 0.5                      ->  gelu(x)
    x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) * 0.5  ->  gelu_tanh(x)

in any order of the factors.
"""

import math
from collections.abc import Iterator

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.operators import BinaryFunction, FloatClip, FloatUnary, Function
from tilewright.compiler.passes.patterns import Patterns
from tilewright.compiler.passes.rewrite import Rewrite

MULTIPLY = BinaryFunction.MULTIPLY


def fuse_functions(graph: Graph) -> Graph:
    """Return `graph` with functions of one number as one operator each."""
    patterns = Patterns.of(graph)
    rewrite = Rewrite(graph)
    for node in graph.nodes:
        found = _function(patterns, node)
        if found is None:
            rewrite.keep(node)
        else:
            x, function = found
            rewrite.emit(node, FloatUnary(function=function), [rewrite.new(x)])
    return rewrite.finish()


def _function(patterns: Patterns, node: Node) -> tuple[str, Function] | None:
    """Return x and the function where a node is the last one of a spelled-out function of x."""
    result = node.outputs[0]
    for x, gate in patterns.pairs(result, MULTIPLY):
        function = _gate(patterns, x, gate)
        if function is not None and _same_type(patterns, x, result):
            return x, function
    for x, gate, factor in _scaled_products(patterns, result):
        found = _gelu(patterns, x, gate) if factor == 0.5 else _swish(patterns, x, gate)
        if found is not None and _same_type(patterns, x, result):
            return x, found
    return None


def _scaled_products(patterns: Patterns, result: str) -> Iterator[tuple[str, str, float]]:
    """Return two factors and a number, 1 / 2 or 1 / 6, whose product a tensor is."""
    for factor in (0.5, 1 / 6):
        product = patterns.scaled(result, factor)
        if product is not None:
            for x, gate in patterns.pairs(product, MULTIPLY):
                yield x, gate, factor
        for first, second in patterns.pairs(result, MULTIPLY):
            part = patterns.scaled(first, factor)
            if part is not None:
                yield part, second, factor
                yield second, part, factor


def _swish(patterns: Patterns, x: str, gate: str) -> Function | None:
    return Function.HARD_SWISH if _is_clipped_sum(patterns, x, gate) else None


def _gate(patterns: Patterns, x: str, gate: str) -> Function | None:
    """Return the function that is ``x * gate``."""
    if patterns.unary(gate, Function.SIGMOID) == x:
        return Function.SILU
    opened = patterns.unary(gate, Function.TANH)
    if opened is not None and patterns.unary(opened, Function.SOFTPLUS) == x:
        return Function.MISH
    if patterns.unary(gate, Function.HARD_SIGMOID) == x:
        op = patterns.producers[gate].op
        assert isinstance(op, FloatUnary)
        sixth = math.isclose(op.alpha, 1 / 6, rel_tol=1e-5)
        return Function.HARD_SWISH if sixth and op.beta == 0.5 else None
    return None


def _is_clipped_sum(patterns: Patterns, x: str, tensor: str) -> bool:
    """Tell whether a tensor is ``clip(x + 3, 0, 6)``."""
    clip = patterns.producer(tensor, FloatClip)
    return (
        clip is not None
        and clip.op == FloatClip(low=0.0, high=6.0)
        and patterns.plus(clip.inputs[0], 3.0) == x
    )


def _gelu(patterns: Patterns, x: str, tensor: str) -> Function | None:
    """Return the gelu that is ``x * tensor / 2``."""
    inner = patterns.plus(tensor, 1.0)
    if inner is None:
        return None
    error = patterns.unary(inner, Function.ERF)
    if error is not None and patterns.scaled(error, math.sqrt(0.5)) == x:
        return Function.GELU
    bent = patterns.unary(inner, Function.TANH)
    sum_ = patterns.scaled(bent, math.sqrt(2 / math.pi)) if bent is not None else None
    if sum_ is None:
        return None
    for first, cubic in patterns.pairs(sum_, BinaryFunction.ADD):
        cube = patterns.scaled(cubic, 0.044715)
        if first == x and cube is not None and _is_cube(patterns, x, cube):
            return Function.GELU_TANH
    return None


def _is_cube(patterns: Patterns, x: str, tensor: str) -> bool:
    power = patterns.binary(tensor, BinaryFunction.POWER)
    if power is not None:
        return power[0] == x and patterns.is_number(power[1], 3.0)
    return any(
        first == x and patterns.binary(square, MULTIPLY) == (x, x)
        for first, square in patterns.pairs(tensor, MULTIPLY)
    )


def _same_type(patterns: Patterns, x: str, result: str) -> bool:
    tensors = patterns.graph.tensors
    return x not in patterns.graph.constants and tensors[x].type == tensors[result].type
