"""Shapes and types of what an operator yields, from those of what it reads."""

from typing import TypeAlias

from typing_extensions import assert_never

from tilewright.compiler.operators import (
    Add,
    AveragePool2d,
    Clip,
    Conv2d,
    ConversionOperator,
    ConvTranspose2d,
    DataType,
    Dequantize,
    DequantizeWeights,
    FloatAveragePool2d,
    FloatConv2d,
    FloatConvTranspose2d,
    FloatOperator,
    IntegerOperator,
    LayerNorm,
    LogicOperator,
    Lookup,
    MatMul,
    MaxPool2d,
    MovementOperator,
    Mul,
    Operator,
    Pair,
    Quantize,
    Reinterpret,
    Requantize,
    Softmax,
)
from tilewright.compiler.operators.float_inference import (
    infer_float,
    infer_logic,
    layer_norm_type,
    product_type,
)
from tilewright.compiler.operators.movement_inference import infer_movement
from tilewright.compiler.operators.tensor_type import (
    QUANTISED,
    InferenceError,
    TensorType,
    broadcast,
    image,
    operands,
    require,
    windows,
)

Convolution: TypeAlias = Conv2d | ConvTranspose2d | FloatConv2d | FloatConvTranspose2d


def infer(op: Operator, inputs: tuple[TensorType, ...]) -> TensorType:
    """Return the type of the one output of `op`.

    Raises
    ------
    InferenceError
        If number, shapes or element types of the inputs do not suit the operator.
    """
    match op:
        case FloatConv2d() | FloatConvTranspose2d():
            return _convolution(op, inputs)
        case FloatAveragePool2d() | MaxPool2d():
            return _pooling(op, inputs)
        case _ if isinstance(op, IntegerOperator):
            return _integer(op, inputs)
        case _ if isinstance(op, ConversionOperator):
            return _conversion(op, inputs)
        case _ if isinstance(op, MovementOperator):
            return infer_movement(op, inputs)
        case _ if isinstance(op, FloatOperator):
            return infer_float(op, inputs)
        case _ if isinstance(op, LogicOperator):
            return infer_logic(op, inputs)
        case _:
            assert_never(op)


def _integer(op: IntegerOperator, inputs: tuple[TensorType, ...]) -> TensorType:
    match op:
        case Conv2d() | ConvTranspose2d():
            return _convolution(op, inputs)
        case MatMul():
            return product_type(inputs, DataType.INT8)
        case Add() | Mul():
            return _integer_binary(op, inputs)
        case AveragePool2d():
            return _pooling(op, inputs)
        case Requantize() | Clip() | Lookup() | Softmax():
            return _elementwise_integer(op, inputs)
        case LayerNorm():
            return layer_norm_type(inputs, DataType.INT8)
        case _:
            assert_never(op)


def _convolution(op: Convolution, inputs: tuple[TensorType, ...]) -> TensorType:
    if isinstance(op, Conv2d | ConvTranspose2d):
        x, weights, *parameters = operands(inputs, 5)
        require(x, DataType.INT8)
        require(weights, DataType.INT8, DataType.INT16)
        for parameter in parameters:
            require(parameter, DataType.INT32)
    else:
        x, weights, *parameters = operands(inputs, 2, 3)
        for operand in (x, weights, *parameters):
            require(operand, DataType.FLOAT32)
    batch, height, width, channels = image(x)
    outputs, kernel_rows, kernel_columns, depth = image(weights)
    if op.groups < 1 or channels != depth * op.groups or outputs % op.groups:
        raise InferenceError(
            f"weights {weights} in {op.groups} groups do not fit {channels} input channels"
        )
    for parameter in parameters:
        if parameter.shape != (outputs,):
            raise InferenceError(f"takes one parameter per output channel, not {parameter}")
    size, kernel = (height, width), (kernel_rows, kernel_columns)
    if isinstance(op, ConvTranspose2d | FloatConvTranspose2d):
        rows, columns = _scattered(op, size, kernel)
    else:
        rows, columns = windows(size, kernel, op.stride, op.pads, op.dilation)
    return TensorType((batch, rows, columns, outputs), x.dtype)


def _scattered(op: ConvTranspose2d | FloatConvTranspose2d, size: Pair, kernel: Pair) -> Pair:
    """Return the size of the image that a transposed convolution yields."""
    if (
        min(kernel) < 1
        or min(op.stride) < 1
        or min(op.dilation) < 1
        or min(*op.pads, *op.extra) < 0
    ):
        raise InferenceError("takes positive kernel, stride and dilation and no negative padding")
    result = tuple(
        (size[axis] - 1) * op.stride[axis]
        + (kernel[axis] - 1) * op.dilation[axis]
        + 1
        - op.pads[axis]
        - op.pads[axis + 2]
        + op.extra[axis]
        for axis in range(2)
    )
    if min(result) < 1:
        raise InferenceError(f"padding {op.pads} leaves nothing of the result for an image {size}")
    return result[0], result[1]


def _integer_binary(op: Add | Mul, inputs: tuple[TensorType, ...]) -> TensorType:
    a, b = operands(inputs, 2)
    require(a, DataType.INT8)
    require(b, DataType.INT8)
    return TensorType(broadcast(a, b), DataType.INT8)


def _pooling(
    op: AveragePool2d | FloatAveragePool2d | MaxPool2d, inputs: tuple[TensorType, ...]
) -> TensorType:
    (x,) = operands(inputs, 1)
    match op:
        case AveragePool2d():
            require(x, DataType.INT8)
        case FloatAveragePool2d():
            require(x, DataType.FLOAT32)
        case MaxPool2d():
            require(x, DataType.INT8, DataType.UINT8, DataType.FLOAT32)
        case _:
            assert_never(op)
    batch, height, width, channels = image(x)
    rows, columns = windows((height, width), op.kernel, op.stride, op.pads)
    top, left, bottom, right = op.pads
    if max(top, bottom) >= op.kernel[0] or max(left, right) >= op.kernel[1]:
        raise InferenceError(f"padding {op.pads} must be smaller than the window {op.kernel}")
    return TensorType((batch, rows, columns, channels), x.dtype)


def _elementwise_integer(
    op: Requantize | Clip | Lookup | Softmax, inputs: tuple[TensorType, ...]
) -> TensorType:
    match op:
        case Lookup() | Softmax():
            x, table = operands(inputs, 2)
            entry = DataType.INT8 if isinstance(op, Lookup) else DataType.INT32
            if require(table, entry).shape != (256,):
                raise InferenceError(f"takes a table of 256 entries, not {table}")
            if isinstance(op, Softmax) and not x.shape:
                raise InferenceError("takes a tensor of at least one axis")
        case Requantize() | Clip():
            (x,) = operands(inputs, 1)
        case _:
            assert_never(op)
    return require(x, DataType.INT8)


def _conversion(
    op: Quantize | Dequantize | DequantizeWeights | Reinterpret, inputs: tuple[TensorType, ...]
) -> TensorType:
    match op:
        case Quantize(dtype=dtype):
            (x,) = operands(inputs, 1)
            require(x, DataType.FLOAT32)
            if dtype not in QUANTISED:
                raise InferenceError(f"yields int8 or uint8, not {dtype}")
            return TensorType(x.shape, dtype)
        case Dequantize():
            (x,) = operands(inputs, 1)
            return TensorType(require(x, *QUANTISED).shape, DataType.FLOAT32)
        case Reinterpret(dtype=dtype):
            (x,) = operands(inputs, 1)
            if {require(x, *QUANTISED).dtype, dtype} != set(QUANTISED):
                raise InferenceError(f"turns int8 into uint8 or back, not {x.dtype} into {dtype}")
            return TensorType(x.shape, dtype)
        case DequantizeWeights(axis=axis):
            return _dequantize_weights(axis, inputs)
        case _:
            assert_never(op)


def _dequantize_weights(axis: int, inputs: tuple[TensorType, ...]) -> TensorType:
    values, scale, zero_point = operands(inputs, 3)
    require(values, *QUANTISED, DataType.INT32)
    require(scale, DataType.FLOAT32)
    require(zero_point, DataType.INT32)
    length = values.shape[axis] if 0 <= axis < len(values.shape) else 1
    if scale.shape not in ((1,), (length,)) or zero_point.shape != scale.shape:
        raise InferenceError(f"takes 1 or {length} scales and zero points along axis {axis}")
    return TensorType(values.shape, DataType.FLOAT32)
