"""Translation of TFLite windows, products, conversions; options are numbered as in schema.fbs."""

import math

from tilewright.compiler.operators import (
    DataType,
    FloatAveragePool2d,
    FloatConv2d,
    FloatConvTranspose2d,
    FloatDense,
    FloatMatMul,
    MaxPool2d,
    Reshape,
    Ties,
    Transpose,
)
from tilewright.compiler.readers.tflite_file import TfliteOperator
from tilewright.compiler.readers.tflite_translation import TfliteTranslation
from tilewright.compiler.readers.windows import same_padding
from tilewright.isa.errors import ModelError


def conv_2d(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate CONV_2D; weights are ``[O, kh, kw, C / groups]``."""
    _, rows, columns, depth = _kernel_shape(state, op)
    dilation = (op.option(5, default=1), op.option(4, default=1))
    stride, pads = state.windows(op, (rows, columns), (0, 1, 2), dilation)
    channels = state.operand(op, 0).shape[3]
    operator = FloatConv2d(
        stride=stride, pads=pads, dilation=dilation, groups=channels // max(depth, 1)
    )
    operands = [state.real(op, 0), state.real(op, 1), *_bias(state, op)]
    state.finish(op, operator, operands, op.option(3, "<b"))


def depthwise_conv_2d(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate DEPTHWISE_CONV_2D; weights are ``[1, kh, kw, O]``."""
    _, rows, columns, _ = _kernel_shape(state, op)
    dilation = (op.option(6, default=1), op.option(5, default=1))
    stride, pads = state.windows(op, (rows, columns), (0, 1, 2), dilation)
    channels = state.operand(op, 0).shape[3]
    operator = FloatConv2d(stride=stride, pads=pads, dilation=dilation, groups=channels)
    order = Transpose(permutation=(3, 1, 2, 0))
    weights = state.add(op, order, [state.real(op, 1)], "weights")
    operands = [state.real(op, 0), weights, *_bias(state, op)]
    state.finish(op, operator, operands, op.option(4, "<b"))


def transpose_conv(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate TRANSPOSE_CONV: (output shape, weights ``[O, kh, kw, C]``, x, bias)."""
    result, x, weights = state.result(op).shape, state.operand(op, 2).shape, state.operand(op, 1)
    if not len(result) == len(x) == len(weights.shape) == 4:
        raise ModelError(f"{op.label} takes images NHWC only")
    kernel, size = (weights.shape[1], weights.shape[2]), (result[1], result[2])
    stride = (op.option(2), op.option(1))
    padding = op.option(0, "<b")
    if min(*stride, *kernel) < 1 or padding not in (0, 1):
        raise ModelError(f"{op.label} has an impossible window, stride or padding")
    before = same_padding(size, kernel, stride) if padding == 0 else (0, 0, 0, 0)
    span = [(x[axis + 1] - 1) * stride[axis] + kernel[axis] for axis in range(2)]
    after = [span[axis] - before[axis] - size[axis] for axis in range(2)]
    operator = FloatConvTranspose2d(
        stride=stride,
        pads=(before[0], before[1], max(after[0], 0), max(after[1], 0)),
        extra=(max(-after[0], 0), max(-after[1], 0)),
    )
    bias = [state.real(op, 3)] if state.has_operand(op, 3) else []
    operands = [state.real(op, 2), state.real(op, 1), *bias]
    state.finish(op, operator, operands, op.option(3, "<b"))


def batch_matmul(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate BATCH_MATMUL; either side may be transposed."""
    operands = []
    for side in range(2):
        x = state.real(op, side)
        if op.option(side, "<b"):
            rank = len(state.operand(op, side).shape)
            if rank < 2:
                raise ModelError(f"{op.label} takes matrices only")
            order = (*range(rank - 2), rank - 1, rank - 2)
            x = state.add(op, Transpose(permutation=order), [x], f"side{side}")
        operands.append(x)
    state.finish(op, FloatMatMul(), operands)


def fully_connected(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate FULLY_CONNECTED; the input is flattened to the weights' ``[O, K]``."""
    weights = state.operand(op, 1).shape
    if len(weights) != 2 or op.option(1, "<b"):
        raise ModelError(f"{op.label} has weights in a layout that is not supported")
    shape, result = state.operand(op, 0).shape, state.result(op).shape
    rows = math.prod(shape) // max(weights[1], 1)
    x = state.real(op, 0)
    if shape != (rows, weights[1]):
        x = state.add(op, Reshape(shape=(rows, weights[1])), [x], "rows")
    product = state.add(op, FloatDense(), [x, state.real(op, 1), *_bias(state, op)])
    state.finish(op, Reshape(shape=result), [product], op.option(0, "<b"))


def average_pool_2d(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate AVERAGE_POOL_2D, where padding does not count."""
    kernel = (op.option(4), op.option(3))
    stride, pads = state.windows(op, kernel, (0, 1, 2))
    unsigned = state.operand(op, 0).dtype is DataType.UINT8
    ties = Ties.UP if unsigned else Ties.AWAY_FROM_ZERO
    operator = FloatAveragePool2d(kernel=kernel, stride=stride, pads=pads, ties=ties)
    state.finish(op, operator, [state.real(op)], op.option(5, "<b"))


def max_pool_2d(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate MAX_POOL_2D."""
    kernel = (op.option(4), op.option(3))
    stride, pads = state.windows(op, kernel, (0, 1, 2))
    operator = MaxPool2d(kernel=kernel, stride=stride, pads=pads)
    state.finish(op, operator, [state.real(op)], op.option(5, "<b"))


def convert(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate QUANTIZE and DEQUANTIZE: the types of the tensors say what happens."""
    state.finish(op, Reshape(shape=state.operand(op, 0).shape), [state.real(op)])


def _kernel_shape(state: TfliteTranslation, op: TfliteOperator) -> tuple[int, int, int, int]:
    state.image_size(op)
    shape = state.operand(op, 1).shape
    if len(shape) != 4:
        raise ModelError(f"{op.label} has weights of {len(shape)} axes")
    return shape[0], shape[1], shape[2], shape[3]


def _bias(state: TfliteTranslation, op: TfliteOperator) -> list[str]:
    return [state.real(op, 2)] if state.has_operand(op, 2) else []
