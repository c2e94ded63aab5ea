"""Shapes and types of operators that move or select values."""

import math

from typing_extensions import assert_never

from tilewright.compiler.operators import (
    Concat,
    DataType,
    Expand,
    Gather,
    MaxPool2d,
    MovementOperator,
    Pad,
    Reshape,
    Slice,
    Transpose,
    Upsample2d,
)
from tilewright.compiler.operators.tensor_type import (
    InferenceError,
    TensorType,
    broadcast,
    image,
    operands,
    require,
)


def infer_movement(op: MovementOperator, inputs: tuple[TensorType, ...]) -> TensorType:
    """Return the type of the output of a movement operator other than `MaxPool2d`."""
    match op:
        case Concat():
            return _concat(op, inputs)
        case Gather():
            return _gather(op, inputs)
        case MaxPool2d():
            raise AssertionError("max pooling is a window")
        case _:
            (x,) = operands(inputs, 1)
            return TensorType(_moved_shape(op, x), x.dtype)


def _moved_shape(
    op: Reshape | Transpose | Slice | Pad | Expand | Upsample2d, x: TensorType
) -> tuple[int, ...]:
    match op:
        case Reshape(shape=shape):
            if math.prod(shape) != math.prod(x.shape) or min(shape, default=1) < 0:
                raise InferenceError(f"cannot view {x} as {list(shape)}")
            return shape
        case Transpose(permutation=permutation):
            if sorted(permutation) != list(range(len(x.shape))):
                raise InferenceError(f"{permutation} does not permute the axes of {x}")
            return tuple(x.shape[axis] for axis in permutation)
        case Slice():
            return _slice_shape(op, x)
        case Pad():
            return _pad_shape(op, x)
        case Expand():
            return _expanded_shape(op, x)
        case Upsample2d(factor=factor):
            if min(factor) < 1:
                raise InferenceError(f"takes positive factors, not {factor}")
            batch, height, width, channels = image(x)
            return batch, height * factor[0], width * factor[1], channels
        case _:
            assert_never(op)


def _expanded_shape(op: Expand, x: TensorType) -> tuple[int, ...]:
    shape = op.shape
    if len(shape) < len(x.shape) or broadcast(x, TensorType(shape, x.dtype)) != shape:
        raise InferenceError(f"cannot expand {x} to {list(shape)}")
    return shape


def _pad_shape(op: Pad, x: TensorType) -> tuple[int, ...]:
    before, after = op.before, op.after
    if not len(before) == len(after) == len(x.shape) or min(before + after, default=0) < 0:
        raise InferenceError(f"cannot pad {x} by {before} and {after}")
    return tuple(a + size + b for a, size, b in zip(before, x.shape, after, strict=True))


def _slice_shape(op: Slice, x: TensorType) -> tuple[int, ...]:
    if not len(op.begin) == len(op.end) == len(op.stride) == len(x.shape):
        raise InferenceError(f"takes one begin, end and stride per axis of {x}")
    bounds = tuple(zip(op.begin, op.end, op.stride, x.shape, strict=True))
    if any(not 0 <= begin < end <= size or stride < 1 for begin, end, stride, size in bounds):
        raise InferenceError(f"slice {op.begin} to {op.end} by {op.stride} is not within {x}")
    return tuple(-(-(end - begin) // stride) for begin, end, stride, _ in bounds)


def _concat(op: Concat, inputs: tuple[TensorType, ...]) -> TensorType:
    if not inputs or not 0 <= op.axis < len(inputs[0].shape):
        raise InferenceError(f"cannot join {len(inputs)} tensors along axis {op.axis}")
    first = inputs[0]

    def others(operand: TensorType) -> tuple[object, ...]:
        return (operand.dtype, operand.shape[: op.axis], operand.shape[op.axis + 1 :])

    if any(others(operand) != others(first) for operand in inputs):
        raise InferenceError(f"cannot join {', '.join(map(str, inputs))} along axis {op.axis}")
    length = sum(operand.shape[op.axis] for operand in inputs)
    return TensorType((*first.shape[: op.axis], length, *first.shape[op.axis + 1 :]), first.dtype)


def _gather(op: Gather, inputs: tuple[TensorType, ...]) -> TensorType:
    x, indices = operands(inputs, 2)
    require(indices, DataType.INT32, DataType.INT64)
    if not 0 <= op.axis < len(x.shape):
        raise InferenceError(f"cannot take entries along axis {op.axis} of {x}")
    return TensorType((*x.shape[: op.axis], *indices.shape, *x.shape[op.axis + 1 :]), x.dtype)
