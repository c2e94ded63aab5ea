"""Which integer operator, if any, a real operator on quantised operands becomes."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from typing_extensions import assert_never

from tilewright.compiler.evaluate_float import apply_binary, apply_function
from tilewright.compiler.graph import Array, Node
from tilewright.compiler.operators import (
    BinaryFunction,
    FloatAveragePool2d,
    FloatBinary,
    FloatConv2d,
    FloatConvTranspose2d,
    FloatDense,
    FloatLayerNorm,
    FloatMatMul,
    FloatReduce,
    FloatSoftmax,
    FloatUnary,
    Reduction,
)
from tilewright.compiler.passes.integer_emission import IntegerEmission, Quantised
from tilewright.compiler.passes.integer_forms import Quantisation, WeightValues

Operand: TypeAlias = Quantised | WeightValues


def integer_form(
    emission: IntegerEmission, node: Node, operands: Sequence[Operand], target: Quantisation
) -> str | None:
    """Add the integer form of `node`, its result quantised to `target`; None where it has none."""
    x, *others = operands
    match node.op:
        case FloatBinary(function=function):
            return _binary(emission, node, function, operands, target)
        case FloatMatMul():
            pair = _activations(emission, node, operands)
            return None if pair is None else emission.matrix_product(node, *pair, target)
        case _ if isinstance(x, WeightValues):
            return None
        case FloatConv2d() | FloatConvTranspose2d() | FloatDense():
            return _weighted(emission, node, node.op, x, others, target)
        case FloatAveragePool2d():
            return emission.average(node, node.op, x, target)
        case FloatReduce(function=Reduction.MEAN, axes=axes):
            return emission.mean(node, axes, x, target)
        case FloatSoftmax(logarithm=False):
            return emission.softmax(node, node.op, x, target)
        case FloatLayerNorm():
            return _layer_norm(emission, node, node.op, x, others, target)
        case FloatUnary() as op:
            return emission.lookup(node, lambda values: apply_function(op, values), x, target)
        case _:
            return None


def _weighted(
    emission: IntegerEmission,
    node: Node,
    op: FloatConv2d | FloatConvTranspose2d | FloatDense,
    x: Quantised,
    others: Sequence[Operand],
    target: Quantisation,
) -> str | None:
    """Add a convolution or dense layer, if its weights and its bias are constant."""
    constants = [other for other in others if isinstance(other, WeightValues)]
    if len(constants) != len(others) or not constants[0].is_eight_bit:
        return None
    weights, bias = constants[0], constants[1] if len(constants) == 2 else None
    match op:
        case FloatConv2d():
            return emission.convolution(node, op, x, weights, bias, target)
        case FloatConvTranspose2d():
            return emission.transposed_convolution(node, op, x, weights, bias, target)
        case FloatDense():
            return emission.dense(node, x, weights, bias, target)
        case _:
            assert_never(op)


def _layer_norm(
    emission: IntegerEmission,
    node: Node,
    op: FloatLayerNorm,
    x: Quantised,
    parameters: Sequence[Operand],
    target: Quantisation,
) -> str | None:
    constants = [other.real() for other in parameters if isinstance(other, WeightValues)]
    if len(constants) != 2:
        return None
    return emission.layer_norm(node, op, x, constants[0], constants[1], target)


def _binary(
    emission: IntegerEmission,
    node: Node,
    function: BinaryFunction,
    operands: Sequence[Operand],
    target: Quantisation,
) -> str | None:
    """Add a function of two tensors; with a constant number it is one of the other alone."""
    a, b = operands
    if isinstance(a, Quantised) and isinstance(b, WeightValues) and b.values.size == 1:
        return _table(emission, node, a, b, target, lambda x, c: apply_binary(function, x, c))
    if isinstance(b, Quantised) and isinstance(a, WeightValues) and a.values.size == 1:
        return _table(emission, node, b, a, target, lambda x, c: apply_binary(function, c, x))
    pair = _activations(emission, node, operands)
    if pair is None:
        return None
    match function:
        case BinaryFunction.ADD:
            return emission.add(node, *pair, target)
        case BinaryFunction.SUBTRACT:
            return emission.subtract(node, *pair, target)
        case BinaryFunction.MULTIPLY:
            return emission.multiply(node, *pair, target)
        case _:
            return None


def _table(
    emission: IntegerEmission,
    node: Node,
    x: Quantised,
    number: WeightValues,
    target: Quantisation,
    function: Callable[[Array, Array], Array],
) -> str | None:
    constant = number.real().astype(np.float64).reshape(())
    if not np.isfinite(constant) or number.values.ndim > emission.rank(x):
        return None
    return emission.lookup(node, lambda values: function(values, constant), x, target)


def _activations(
    emission: IntegerEmission, node: Node, operands: Sequence[Operand]
) -> tuple[Quantised, Quantised] | None:
    """Return two operands as int8 tensors, a constant of one scale as well; None for others."""
    found = []
    for operand in operands:
        if isinstance(operand, Quantised):
            found.append(operand)
        elif operand.is_quantised_tensor:
            found.append(emission.constant(node, operand))
        else:
            return None
    return found[0], found[1]
