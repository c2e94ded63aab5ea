"""Operators on real numbers and on truth values in numpy."""

import math
from collections.abc import Callable, Mapping

import numpy as np
from typing_extensions import assert_never

from tilewright.compiler.evaluate_convolution import convolve_float, convolve_transposed_float
from tilewright.compiler.evaluate_pooling import float_average_pool
from tilewright.compiler.graph import Array
from tilewright.compiler.operators import (
    BinaryFunction,
    Cast,
    Compare,
    Connective,
    DataType,
    FloatAveragePool2d,
    FloatBinary,
    FloatClip,
    FloatConv2d,
    FloatConvTranspose2d,
    FloatDense,
    FloatInterpolate,
    FloatLayerNorm,
    FloatMatMul,
    FloatOperator,
    FloatReduce,
    FloatSoftmax,
    FloatUnary,
    Function,
    Logical,
    LogicOperator,
    Reduction,
    Relation,
    Select,
)

RELATIONS: Mapping[Relation, Callable[..., Array]] = {
    Relation.EQUAL: np.equal,
    Relation.LESS: np.less,
    Relation.LESS_OR_EQUAL: np.less_equal,
}
CONNECTIVES: Mapping[Connective, Callable[..., Array]] = {
    Connective.AND: np.logical_and,
    Connective.OR: np.logical_or,
    Connective.XOR: np.logical_xor,
    Connective.NOT: np.logical_not,
}

_erf = np.frompyfunc(math.erf, 1, 1)


def evaluate_float(op: FloatOperator, operands: tuple[Array, ...]) -> Array:  # noqa: C901
    """Evaluate an operator on real numbers: one case each."""
    x = operands[0]
    match op:
        case FloatConv2d():
            return convolve_float(op, *operands)
        case FloatConvTranspose2d():
            return convolve_transposed_float(op, *operands)
        case FloatDense():
            product: Array = x @ operands[1].T
            return product + operands[2] if len(operands) == 3 else product
        case FloatMatMul():
            matrices: Array = x @ operands[1]
            return matrices
        case FloatBinary(function=function):
            return apply_binary(function, *operands)
        case FloatAveragePool2d():
            return float_average_pool(op, x)
        case FloatReduce():
            return reduce(op, x)
        case FloatClip(low=low, high=high):
            return np.clip(x, np.float32(low), np.float32(high))
        case FloatSoftmax():
            return softmax(op, x)
        case FloatLayerNorm():
            return layer_norm(op, *operands)
        case FloatInterpolate():
            return interpolate(op, *operands)
        case FloatUnary():
            return apply_function(op, x)
        case _:
            assert_never(op)


def evaluate_logic(op: LogicOperator, operands: tuple[Array, ...]) -> Array:
    """Evaluate an operator on truth values or element types."""
    match op:
        case Cast(dtype=dtype):
            return _cast(operands[0], dtype)
        case Compare(relation=relation):
            return RELATIONS[relation](*operands)
        case Logical(connective=connective):
            return CONNECTIVES[connective](*operands)
        case Select():
            return np.where(*operands)
        case _:
            assert_never(op)


def apply_binary(function: BinaryFunction, a: Array, b: Array) -> Array:
    """Evaluate a function of two numbers, in their element type."""
    result: Array
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        match function:
            case BinaryFunction.ADD:
                result = a + b
            case BinaryFunction.SUBTRACT:
                result = a - b
            case BinaryFunction.MULTIPLY:
                result = a * b
            case BinaryFunction.DIVIDE:
                result = a / b
            case BinaryFunction.POWER:
                result = np.power(a, b)
            case BinaryFunction.MINIMUM:
                result = np.minimum(a, b)
            case BinaryFunction.MAXIMUM:
                result = np.maximum(a, b)
            case BinaryFunction.PRELU:
                result = np.where(a < 0, a * b, a)
            case _:
                assert_never(function)
    return result


def apply_function(op: FloatUnary, x: Array) -> Array:
    """Evaluate a function of one real number, in the element type of `x`."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return _function(op, x).astype(x.dtype)


def _function(op: FloatUnary, x: Array) -> Array:  # noqa: C901
    result: Array
    match op.function:
        case Function.SIGMOID:
            result = _sigmoid(x)
        case Function.TANH:
            result = np.tanh(x)
        case Function.HARD_SIGMOID:
            result = np.clip(x * op.alpha + op.beta, 0, 1)
        case Function.HARD_SWISH:
            result = x * np.clip(x + 3, 0, 6) / 6
        case Function.LEAKY_RELU:
            result = np.where(x < 0, x * op.alpha, x)
        case Function.ELU:
            result = np.where(x < 0, op.alpha * np.expm1(np.minimum(x, 0)), x)
        case Function.SILU:
            result = x * _sigmoid(x)
        case Function.GELU:
            result = x * (1 + _error_function(x * math.sqrt(0.5))) / 2
        case Function.GELU_TANH:
            result = x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
        case Function.SOFTPLUS:
            result = np.logaddexp(x, 0)
        case Function.MISH:
            result = x * np.tanh(np.logaddexp(x, 0))
        case Function.EXP:
            result = np.exp(x)
        case Function.LOG:
            result = np.log(x)
        case Function.SQRT:
            result = np.sqrt(x)
        case Function.RECIPROCAL:
            result = 1 / x
        case Function.NEGATE:
            result = -x
        case Function.ABSOLUTE:
            result = np.abs(x)
        case Function.ERF:
            result = _error_function(x)
        case Function.FLOOR:
            result = np.floor(x)
        case Function.CEIL:
            result = np.ceil(x)
        case Function.ROUND:
            result = np.rint(x)
        case Function.SIGN:
            result = np.sign(x)
        case _:
            assert_never(op.function)
    return result


def reduce(op: FloatReduce, x: Array) -> Array:
    """Evaluate a reduction that keeps its axes."""
    result: Array
    match op.function:
        case Reduction.MEAN:
            result = x.mean(axis=op.axes, keepdims=True)
        case Reduction.SUM:
            result = x.sum(axis=op.axes, keepdims=True)
        case Reduction.MAXIMUM:
            result = x.max(axis=op.axes, keepdims=True)
        case Reduction.MINIMUM:
            result = x.min(axis=op.axes, keepdims=True)
        case Reduction.PRODUCT:
            result = x.prod(axis=op.axes, keepdims=True)
        case _:
            assert_never(op.function)
    return result


def softmax(op: FloatSoftmax, x: Array) -> Array:
    """Evaluate a softmax over the last axis, or its logarithm."""
    distance = (x - x.max(axis=-1, keepdims=True)) * np.float32(op.beta)
    exponentials = np.exp(distance)
    total = exponentials.sum(axis=-1, keepdims=True)
    result: Array = distance - np.log(total) if op.logarithm else exponentials / total
    return result


def layer_norm(op: FloatLayerNorm, x: Array, gain: Array, offset: Array) -> Array:
    """Evaluate a normalisation over the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    result: Array = centred / np.sqrt(variance + np.float32(op.epsilon)) * gain + offset
    return result


def interpolate(op: FloatInterpolate, x: Array, indices: Array, weights: Array) -> Array:
    """Evaluate weighted sums of entries along an axis."""
    moved = np.moveaxis(x, op.axis, -1)
    total = np.zeros((*moved.shape[:-1], indices.shape[0]), dtype=x.dtype)
    for tap in range(indices.shape[1]):
        total += moved[..., indices[:, tap]] * weights[:, tap]
    return np.ascontiguousarray(np.moveaxis(total, -1, op.axis))


def _sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


def _error_function(x: Array) -> Array:
    values: Array = np.asarray(_erf(x)).astype(np.float64)
    return values


def _cast(x: Array, dtype: DataType) -> Array:
    with np.errstate(invalid="ignore"):
        cast: Array = x.astype(dtype.numpy)
    return cast
