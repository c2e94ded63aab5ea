"""Shapes and types of operators on real numbers and on truth values."""

from typing_extensions import assert_never

from tilewright.compiler.operators import (
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
    Logical,
    LogicOperator,
    Select,
)
from tilewright.compiler.operators.tensor_type import (
    InferenceError,
    TensorType,
    broadcast,
    operands,
    require,
)

#: Element types that `Cast` converts between.
CASTABLE = (DataType.INT32, DataType.INT64, DataType.FLOAT32, DataType.BOOL)
#: Element types whose values have an order.
COMPARABLE = (DataType.INT32, DataType.INT64, DataType.FLOAT32)


def infer_float(op: FloatOperator, inputs: tuple[TensorType, ...]) -> TensorType:
    """Return the type of the output of an operator on real numbers without windows."""
    match op:
        case FloatDense():
            return _dense(inputs)
        case FloatMatMul():
            return product_type(inputs, DataType.FLOAT32)
        case FloatBinary():
            a, b = (require(operand, DataType.FLOAT32) for operand in operands(inputs, 2))
            return TensorType(broadcast(a, b), DataType.FLOAT32)
        case FloatReduce():
            return _reduce(op, inputs)
        case FloatClip() | FloatSoftmax() | FloatUnary():
            return _elementwise(op, inputs)
        case FloatLayerNorm():
            return layer_norm_type(inputs, DataType.FLOAT32)
        case FloatInterpolate():
            return _interpolate(op, inputs)
        case FloatConv2d() | FloatConvTranspose2d() | FloatAveragePool2d():
            raise AssertionError(f"{type(op).__name__} has windows")
        case _:
            assert_never(op)


def layer_norm_type(inputs: tuple[TensorType, ...], dtype: DataType) -> TensorType:
    """Return the type of a normalisation over the last axis, of `dtype`."""
    x, *parameters = operands(inputs, 3)
    require(x, dtype)
    for parameter in parameters:
        if not x.shape or require(parameter, DataType.FLOAT32).shape != x.shape[-1:]:
            raise InferenceError(f"takes one gain and offset per channel of {x}, not {parameter}")
    return x


def product_type(inputs: tuple[TensorType, ...], dtype: DataType) -> TensorType:
    """Return the type of the product of two stacks of matrices."""
    a, b = (require(operand, dtype) for operand in operands(inputs, 2))
    if min(len(a.shape), len(b.shape)) < 2 or a.shape[-1] != b.shape[-2]:
        raise InferenceError(f"cannot multiply {a} by {b}")
    leading = broadcast(TensorType(a.shape[:-2], dtype), TensorType(b.shape[:-2], dtype))
    return TensorType((*leading, a.shape[-2], b.shape[-1]), dtype)


def infer_logic(op: LogicOperator, inputs: tuple[TensorType, ...]) -> TensorType:
    """Return the type of the output of an operator on truth values and element types."""
    match op:
        case Cast(dtype=dtype):
            (x,) = operands(inputs, 1)
            require(x, *CASTABLE)
            if dtype not in CASTABLE:
                raise InferenceError(f"cannot cast to {dtype}")
            return TensorType(x.shape, dtype)
        case Compare():
            a, b = (require(operand, *COMPARABLE) for operand in operands(inputs, 2))
            if a.dtype is not b.dtype:
                raise InferenceError(f"cannot compare {a} and {b}")
            return TensorType(broadcast(a, b), DataType.BOOL)
        case Logical(connective=connective):
            count = 1 if connective is Connective.NOT else 2
            values = [require(operand, DataType.BOOL) for operand in operands(inputs, count)]
            return TensorType(broadcast(*values), DataType.BOOL)
        case Select():
            condition, a, b = operands(inputs, 3)
            require(condition, DataType.BOOL)
            if a.dtype is not b.dtype:
                raise InferenceError(f"cannot choose between {a} and {b}")
            return TensorType(broadcast(condition, a, b), a.dtype)
        case _:
            assert_never(op)


def _dense(inputs: tuple[TensorType, ...]) -> TensorType:
    x, weights, *bias = operands(inputs, 2, 3)
    for operand in inputs:
        require(operand, DataType.FLOAT32)
    if not x.shape or len(weights.shape) != 2 or x.shape[-1] != weights.shape[1]:
        raise InferenceError(f"cannot multiply {x} by the transpose of {weights}")
    if bias and bias[0].shape != (weights.shape[0],):
        raise InferenceError(f"takes a bias per output, not {bias[0]}")
    return TensorType((*x.shape[:-1], weights.shape[0]), DataType.FLOAT32)


def _elementwise(
    op: FloatClip | FloatSoftmax | FloatUnary, inputs: tuple[TensorType, ...]
) -> TensorType:
    (x,) = operands(inputs, 1)
    if isinstance(op, FloatSoftmax) and not x.shape:
        raise InferenceError("takes a tensor of at least one axis")
    return require(x, DataType.FLOAT32)


def _reduce(op: FloatReduce, inputs: tuple[TensorType, ...]) -> TensorType:
    (x,) = operands(inputs, 1)
    require(x, DataType.FLOAT32)
    rank = len(x.shape)
    if list(op.axes) != sorted({axis for axis in op.axes if 0 <= axis < rank}):
        raise InferenceError(f"takes ascending axes of {x}, not {op.axes}")
    if any(x.shape[axis] == 0 for axis in op.axes):
        raise InferenceError(f"cannot reduce an empty axis of {x}")
    shape = tuple(1 if axis in op.axes else size for axis, size in enumerate(x.shape))
    return TensorType(shape, DataType.FLOAT32)


def _interpolate(op: FloatInterpolate, inputs: tuple[TensorType, ...]) -> TensorType:
    x, indices, weights = operands(inputs, 3)
    require(x, DataType.FLOAT32)
    require(indices, DataType.INT32)
    require(weights, DataType.FLOAT32)
    if not 0 <= op.axis < len(x.shape):
        raise InferenceError(f"cannot interpolate along axis {op.axis} of {x}")
    if len(indices.shape) != 2 or indices.shape != weights.shape:
        raise InferenceError(f"takes an index per weight, not {indices} and {weights}")
    shape = (*x.shape[: op.axis], indices.shape[0], *x.shape[op.axis + 1 :])
    return TensorType(shape, DataType.FLOAT32)
