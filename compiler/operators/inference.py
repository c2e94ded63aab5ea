"""Shapes and types of what an operator yields, from those of what it reads."""

import math
from dataclasses import dataclass

from typing_extensions import assert_never

from tilewright.compiler.operators import (
    Add,
    AveragePool2d,
    Clip,
    Concat,
    Conv2d,
    DataType,
    Dequantize,
    DequantizeWeights,
    FloatAdd,
    FloatAveragePool2d,
    FloatBias,
    FloatClip,
    FloatConv2d,
    FloatDense,
    FloatSoftmax,
    FloatUnary,
    Lookup,
    MaxPool2d,
    Operator,
    Pad,
    Padding,
    Pair,
    Quantize,
    Reinterpret,
    Requantize,
    Reshape,
    Slice,
    Softmax,
    Transpose,
)

QUANTISED = (DataType.INT8, DataType.UINT8)


class InferenceError(ValueError):
    """An operator cannot take operands of the given types; the text says why."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and element type of a tensor."""

    shape: tuple[int, ...]
    dtype: DataType

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def infer(op: Operator, inputs: tuple[TensorType, ...]) -> TensorType:
    """Return the type of the one output of `op`.

    Raises
    ------
    InferenceError
        If number, shapes or element types of the inputs do not suit the operator.
    """
    match op:
        case Conv2d() | FloatConv2d():
            return _convolution(op, inputs)
        case FloatDense():
            return _dense(inputs)
        case Add() | FloatAdd():
            return _add(op, inputs)
        case FloatBias():
            return _bias(inputs)
        case AveragePool2d() | FloatAveragePool2d() | MaxPool2d():
            return _pooling(op, inputs)
        case Requantize() | Clip() | Lookup() | Softmax():
            return _elementwise_integer(op, inputs)
        case FloatClip() | FloatSoftmax() | FloatUnary():
            (x,) = _operands(inputs, 1)
            return _require(x, DataType.FLOAT32)
        case Quantize() | Dequantize() | DequantizeWeights() | Reinterpret():
            return _conversion(op, inputs)
        case Reshape() | Transpose() | Slice() | Pad() | Concat():
            return _movement(op, inputs)
        case _:
            assert_never(op)


def window_positions(size: int, kernel: int, stride: int, pads: int, dilation: int = 1) -> int:
    """Return how many windows fit along an axis of `size` elements with `pads` around it."""
    return (size + pads - dilation * (kernel - 1) - 1) // stride + 1


def _operands(inputs: tuple[TensorType, ...], *counts: int) -> tuple[TensorType, ...]:
    if len(inputs) not in counts:
        raise InferenceError(f"takes {' or '.join(map(str, counts))} inputs, not {len(inputs)}")
    return inputs


def _require(operand: TensorType, *dtypes: DataType) -> TensorType:
    if operand.dtype not in dtypes:
        raise InferenceError(f"takes {' or '.join(map(str, dtypes))}, not {operand.dtype}")
    return operand


def _image(operand: TensorType) -> tuple[int, int, int, int]:
    if len(operand.shape) != 4:
        raise InferenceError(f"takes a tensor of 4 axes, not {operand}")
    batch, height, width, channels = operand.shape
    return batch, height, width, channels


def _windows(
    size: Pair, kernel: Pair, stride: Pair, pads: Padding, dilation: Pair = (1, 1)
) -> Pair:
    if min(kernel) < 1 or min(stride) < 1 or min(dilation) < 1 or min(pads) < 0:
        raise InferenceError("takes positive kernel, stride and dilation and no negative padding")
    top, left, bottom, right = pads
    rows = window_positions(size[0], kernel[0], stride[0], top + bottom, dilation[0])
    columns = window_positions(size[1], kernel[1], stride[1], left + right, dilation[1])
    if rows < 1 or columns < 1:
        raise InferenceError(f"kernel {kernel} does not fit into an image of {size}")
    return rows, columns


def _convolution(op: Conv2d | FloatConv2d, inputs: tuple[TensorType, ...]) -> TensorType:
    if isinstance(op, Conv2d):
        x, weights, *parameters = _operands(inputs, 5)
        _require(x, DataType.INT8)
        _require(weights, DataType.INT8, DataType.INT16)
        for parameter in parameters:
            _require(parameter, DataType.INT32)
    else:
        x, weights, *parameters = _operands(inputs, 2, 3)
        for operand in (x, weights, *parameters):
            _require(operand, DataType.FLOAT32)
    batch, height, width, channels = _image(x)
    outputs, kernel_rows, kernel_columns, depth = _image(weights)
    if op.groups < 1 or channels != depth * op.groups or outputs % op.groups:
        raise InferenceError(
            f"weights {weights} in {op.groups} groups do not fit {channels} input channels"
        )
    for parameter in parameters:
        if parameter.shape != (outputs,):
            raise InferenceError(f"takes one parameter per output channel, not {parameter}")
    rows, columns = _windows(
        (height, width), (kernel_rows, kernel_columns), op.stride, op.pads, op.dilation
    )
    return TensorType((batch, rows, columns, outputs), x.dtype)


def _dense(inputs: tuple[TensorType, ...]) -> TensorType:
    x, weights, *bias = _operands(inputs, 2, 3)
    for operand in inputs:
        _require(operand, DataType.FLOAT32)
    if len(x.shape) != 2 or len(weights.shape) != 2 or x.shape[1] != weights.shape[1]:
        raise InferenceError(f"cannot multiply {x} by the transpose of {weights}")
    if bias and bias[0].shape != (weights.shape[0],):
        raise InferenceError(f"takes a bias per output, not {bias[0]}")
    return TensorType((x.shape[0], weights.shape[0]), DataType.FLOAT32)


def _add(op: Add | FloatAdd, inputs: tuple[TensorType, ...]) -> TensorType:
    a, b = _operands(inputs, 2)
    dtype = DataType.INT8 if isinstance(op, Add) else DataType.FLOAT32
    if _require(a, dtype) != _require(b, dtype):
        raise InferenceError(f"takes two tensors of one shape, not {a} and {b}")
    return a


def _bias(inputs: tuple[TensorType, ...]) -> TensorType:
    x, bias = _operands(inputs, 2)
    _require(x, DataType.FLOAT32)
    _require(bias, DataType.FLOAT32)
    if not x.shape or bias.shape != x.shape[-1:]:
        raise InferenceError(f"takes a bias per channel, not {bias} for {x}")
    return x


def _pooling(
    op: AveragePool2d | FloatAveragePool2d | MaxPool2d, inputs: tuple[TensorType, ...]
) -> TensorType:
    (x,) = _operands(inputs, 1)
    match op:
        case AveragePool2d():
            _require(x, DataType.INT8)
        case FloatAveragePool2d():
            _require(x, DataType.FLOAT32)
        case MaxPool2d():
            _require(x, DataType.INT8, DataType.UINT8, DataType.FLOAT32)
        case _:
            assert_never(op)
    batch, height, width, channels = _image(x)
    rows, columns = _windows((height, width), op.kernel, op.stride, op.pads)
    top, left, bottom, right = op.pads
    if max(top, bottom) >= op.kernel[0] or max(left, right) >= op.kernel[1]:
        raise InferenceError(f"padding {op.pads} must be smaller than the window {op.kernel}")
    return TensorType((batch, rows, columns, channels), x.dtype)


def _elementwise_integer(
    op: Requantize | Clip | Lookup | Softmax, inputs: tuple[TensorType, ...]
) -> TensorType:
    match op:
        case Lookup() | Softmax():
            x, table = _operands(inputs, 2)
            entry = DataType.INT8 if isinstance(op, Lookup) else DataType.INT32
            if _require(table, entry).shape != (256,):
                raise InferenceError(f"takes a table of 256 entries, not {table}")
            if isinstance(op, Softmax) and not x.shape:
                raise InferenceError("takes a tensor of at least one axis")
        case Requantize() | Clip():
            (x,) = _operands(inputs, 1)
        case _:
            assert_never(op)
    return _require(x, DataType.INT8)


def _conversion(
    op: Quantize | Dequantize | DequantizeWeights | Reinterpret, inputs: tuple[TensorType, ...]
) -> TensorType:
    match op:
        case Quantize(dtype=dtype):
            (x,) = _operands(inputs, 1)
            _require(x, DataType.FLOAT32)
            if dtype not in QUANTISED:
                raise InferenceError(f"yields int8 or uint8, not {dtype}")
            return TensorType(x.shape, dtype)
        case Dequantize():
            (x,) = _operands(inputs, 1)
            return TensorType(_require(x, *QUANTISED).shape, DataType.FLOAT32)
        case Reinterpret(dtype=dtype):
            (x,) = _operands(inputs, 1)
            if {_require(x, *QUANTISED).dtype, dtype} != set(QUANTISED):
                raise InferenceError(f"turns int8 into uint8 or back, not {x.dtype} into {dtype}")
            return TensorType(x.shape, dtype)
        case DequantizeWeights(axis=axis):
            return _dequantize_weights(axis, inputs)
        case _:
            assert_never(op)


def _dequantize_weights(axis: int, inputs: tuple[TensorType, ...]) -> TensorType:
    values, scale, zero_point = _operands(inputs, 3)
    _require(values, *QUANTISED, DataType.INT32)
    _require(scale, DataType.FLOAT32)
    _require(zero_point, DataType.INT32)
    length = values.shape[axis] if 0 <= axis < len(values.shape) else 1
    if scale.shape not in ((1,), (length,)) or zero_point.shape != scale.shape:
        raise InferenceError(f"takes 1 or {length} scales and zero points along axis {axis}")
    return TensorType(values.shape, DataType.FLOAT32)


def _movement(
    op: Reshape | Transpose | Slice | Pad | Concat, inputs: tuple[TensorType, ...]
) -> TensorType:
    if isinstance(op, Concat):
        return _concat(op, inputs)
    (x,) = _operands(inputs, 1)
    match op:
        case Reshape(shape=shape):
            if math.prod(shape) != math.prod(x.shape) or min(shape, default=1) < 0:
                raise InferenceError(f"cannot view {x} as {list(shape)}")
        case Transpose(permutation=permutation):
            if sorted(permutation) != list(range(len(x.shape))):
                raise InferenceError(f"{permutation} does not permute the axes of {x}")
            shape = tuple(x.shape[axis] for axis in permutation)
        case Slice():
            shape = _slice_shape(op, x)
        case Pad(before=before, after=after):
            if not len(before) == len(after) == len(x.shape) or min(before + after, default=0) < 0:
                raise InferenceError(f"cannot pad {x} by {before} and {after}")
            shape = tuple(a + size + b for a, size, b in zip(before, x.shape, after, strict=True))
        case _:
            assert_never(op)
    return TensorType(shape, x.dtype)


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
