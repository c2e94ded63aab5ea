"""Translation of the TFLite operators; option fields are numbered as in schema.fbs."""

import math

from tilewright.compiler.operators import (
    BinaryFunction,
    Concat,
    DataType,
    FloatAveragePool2d,
    FloatBinary,
    FloatClip,
    FloatConv2d,
    FloatDense,
    FloatSoftmax,
    FloatUnary,
    Function,
    MaxPool2d,
    Pad,
    Reshape,
    Slice,
    Ties,
    Transpose,
)
from tilewright.compiler.readers.tflite_file import TfliteOperator
from tilewright.compiler.readers.tflite_translation import TfliteTranslation
from tilewright.isa.errors import ModelError


def add(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate ADD."""
    operands = [state.real(op, 0), state.real(op, 1)]
    state.finish(op, FloatBinary(function=BinaryFunction.ADD), operands, op.option(0, "<b"))


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


def mean(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate MEAN over height and width of an image."""
    size = state.image_size(op)
    if sorted(axis % 4 for axis in state.integers(op, 1)) != [1, 2]:
        raise ModelError(f"{op.label} is only supported over height and width")
    operator = FloatAveragePool2d(kernel=size, stride=(1, 1))
    average = state.add(op, operator, [state.real(op)])
    state.finish(op, Reshape(shape=state.result(op).shape), [average])


def reshape(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate RESHAPE, SQUEEZE and EXPAND_DIMS: the declared output has the shape."""
    state.finish(op, Reshape(shape=state.result(op).shape), [state.real(op)])


def transpose(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate TRANSPOSE."""
    state.finish(op, Transpose(permutation=state.integers(op, 1)), [state.real(op)])


def concatenation(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate CONCATENATION."""
    axes = len(state.operand(op, 0).shape)
    axis = op.option(0)
    if not -axes <= axis < axes:
        raise ModelError(f"{op.label} names axis {axis} of {axes}")
    operands = [state.real(op, position) for position in range(len(op.inputs))]
    state.finish(op, Concat(axis=axis % axes), operands, op.option(1, "<b"))


def pad(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate PAD and PADV2; the value of PADV2 is quantised as its input is."""
    widths = state.integers(op, 1)
    if len(widths) != 2 * len(state.operand(op, 0).shape):
        raise ModelError(f"{op.label} has {len(widths)} padding widths")
    value = 0.0
    if state.has_operand(op, 2):
        tensor = state.operand(op, 2)
        if tensor.constant is None or tensor.constant.size != 1 or tensor.scale.size > 1:
            raise ModelError(f"{op.label} pads with what is not one constant")
        steps = tensor.constant.reshape(-1)[0]
        value = float(steps)
        if tensor.scale.size:
            value = float((int(steps) - int(tensor.zero_point[0])) * tensor.scale[0])
    if not math.isfinite(value):
        raise ModelError(f"{op.label} pads with {value}")
    operator = Pad(before=widths[::2], after=widths[1::2], value=value)
    state.finish(op, operator, [state.real(op)])


def slice_(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate SLICE; a size of -1 reaches to the end."""
    shape = state.operand(op, 0).shape
    begin, size = state.integers(op, 1), state.integers(op, 2)
    if not len(begin) == len(size) == len(shape):
        raise ModelError(f"{op.label} needs a begin and a size per axis")
    end = tuple(
        length if extent == -1 else start + extent
        for start, extent, length in zip(begin, size, shape, strict=True)
    )
    operator = Slice(begin=begin, end=end, stride=(1,) * len(shape))
    state.finish(op, operator, [state.real(op)])


def strided_slice(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate STRIDED_SLICE; fields 0 and 1 are the masks of bounds that do not count."""
    shape = state.operand(op, 0).shape
    bounds = [state.integers(op, position) for position in (1, 2, 3)]
    if any(len(values) != len(shape) for values in bounds):
        raise ModelError(f"{op.label} needs a begin, an end and a stride per axis")
    if any(op.option(field) for field in (2, 3)) or min(bounds[2], default=1) < 1:
        raise ModelError(f"{op.label} has an ellipsis, a new axis or runs backwards")
    ranges = []
    for axis, (start, stop, step) in enumerate(zip(*bounds, strict=True)):
        first = None if op.option(0) >> axis & 1 else start
        last = None if op.option(1) >> axis & 1 else stop
        if op.option(4) >> axis & 1:
            first, last = start, start + 1 if start != -1 else None
        ranges.append(slice(first, last, step).indices(shape[axis]))
    begin, end, stride = (tuple(values) for values in zip(*ranges, strict=True))
    part = state.add(op, Slice(begin=begin, end=end, stride=stride), [state.real(op)], "part")
    state.finish(op, Reshape(shape=state.result(op).shape), [part])


def softmax(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate SOFTMAX over the last axis."""
    beta = op.real_option(0, 0.0)
    if beta < 0:
        raise ModelError(f"{op.label} has the negative beta {beta}")
    state.finish(op, FloatSoftmax(beta=beta), [state.real(op)])


def convert(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate QUANTIZE and DEQUANTIZE: the types of the tensors say what happens."""
    state.finish(op, Reshape(shape=state.operand(op, 0).shape), [state.real(op)])


def relu(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate RELU, RELU6 and RELU_N1_TO_1."""
    bounds = {"RELU": (0.0, math.inf), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0)}
    low, high = bounds[op.op_type]
    state.finish(op, FloatClip(low=low, high=high), [state.real(op)])


def unary(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate functions of one number without options."""
    functions = {
        "LOGISTIC": FloatUnary(function=Function.SIGMOID),
        "TANH": FloatUnary(function=Function.TANH),
        "HARD_SWISH": FloatUnary(function=Function.HARD_SWISH),
        "ELU": FloatUnary(function=Function.ELU, alpha=1.0),
    }
    state.finish(op, functions[op.op_type], [state.real(op)])


def leaky_relu(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate LEAKY_RELU."""
    operator = FloatUnary(function=Function.LEAKY_RELU, alpha=op.real_option(0, 0.0))
    state.finish(op, operator, [state.real(op)])


def _kernel_shape(state: TfliteTranslation, op: TfliteOperator) -> tuple[int, int, int, int]:
    state.image_size(op)
    shape = state.operand(op, 1).shape
    if len(shape) != 4:
        raise ModelError(f"{op.label} has weights of {len(shape)} axes")
    return shape[0], shape[1], shape[2], shape[3]


def _bias(state: TfliteTranslation, op: TfliteOperator) -> list[str]:
    return [state.real(op, 2)] if state.has_operand(op, 2) else []
