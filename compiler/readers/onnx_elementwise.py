"""Translation of ONNX element-wise operators, softmax, and quantisation itself."""

import math

import numpy as np

from tilewright.compiler.operators import (
    DataType,
    Dequantize,
    FloatAveragePool2d,
    FloatClip,
    FloatSoftmax,
    FloatUnary,
    Function,
    Quantize,
    Reshape,
    Transpose,
)
from tilewright.compiler.readers.onnx_file import OnnxNode
from tilewright.compiler.readers.onnx_translation import OnnxTranslation
from tilewright.isa.errors import ModelError


def quantize_linear(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate QuantizeLinear; of a constant, compute it."""
    _require_unblocked(node)
    if node.inputs and node.inputs[0] in state.constants:
        _quantize_constant(state, node)
        return
    zero_point, dtype = state.zero_point(node, 2)
    op = Quantize(scale=state.scale(node, 1), zero_point=zero_point, dtype=dtype)
    state.finish(node, op, [state.tensor(node)])


def dequantize_linear(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate DequantizeLinear."""
    _require_unblocked(node)
    if node.inputs and node.inputs[0] in state.constants:
        axes = state.constants[node.inputs[0]].ndim
        if not axes:  # an attribute-like number, such as the value of a Pad
            state.set_constant(node, state.dequantized_number(node))
            return
        axis = node.integer("axis", 1)
        state.finish_dequantized_constant(node, axis % axes if axes and -axes <= axis else axis)
        return
    zero_point, _ = state.zero_point(node, 2)
    op = Dequantize(scale=state.scale(node, 1), zero_point=zero_point)
    state.finish(node, op, [state.tensor(node)])


def relu(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Relu."""
    state.finish(node, FloatClip(low=0.0, high=math.inf), [state.tensor(node)])


def clip(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Clip; its bounds are attributes or, from opset 11 on, inputs."""
    bounds = []
    for index, name, default in ((1, "min", -math.inf), (2, "max", math.inf)):
        if state.has_input(node, index):
            values = state.constant(node, index)
            if values.size != 1 or values.dtype != np.float32:
                raise ModelError(f"{node.label} needs one float32 value for {name}")
            bounds.append(float(values.reshape(-1)[0]))
        else:
            bounds.append(node.real(name, 0.0) if name in node.attributes else default)
    if not bounds[0] <= bounds[1]:
        raise ModelError(f"{node.label} clips to the empty range {bounds[0]} to {bounds[1]}")
    state.finish(node, FloatClip(low=bounds[0], high=bounds[1]), [state.tensor(node)])


def softmax(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Softmax; before opset 13 it covers all axes from `axis` on."""
    axes = len(state.shape(node))
    axis = node.integer("axis", 1 if state.opset < 13 else -1)
    if not axes or not -axes <= axis < axes:
        raise ModelError(f"{node.label} names axis {axis} of {axes}")
    axis %= axes
    if state.opset < 13 and math.prod(state.shape(node)[axis + 1 :]) != 1:
        raise ModelError(f"{node.label} covers several axes, which is not supported")
    if axis == axes - 1:
        state.finish(node, FloatSoftmax(), [state.tensor(node)])
        return
    order = (*(other for other in range(axes) if other != axis), axis)
    back = tuple(int(position) for position in np.argsort(order))
    moved = state.add(node, Transpose(permutation=order), [state.tensor(node)], "axis_last")
    shares = state.add(node, FloatSoftmax(), [moved])
    state.finish(node, Transpose(permutation=back), [shares])


def sigmoid(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Sigmoid."""
    state.finish(node, FloatUnary(function=Function.SIGMOID), [state.tensor(node)])


def tanh(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Tanh."""
    state.finish(node, FloatUnary(function=Function.TANH), [state.tensor(node)])


def hard_sigmoid(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate HardSigmoid."""
    op = FloatUnary(
        function=Function.HARD_SIGMOID,
        alpha=node.real("alpha", 0.2),
        beta=node.real("beta", 0.5),
    )
    state.finish(node, op, [state.tensor(node)])


def hard_swish(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate HardSwish."""
    state.finish(node, FloatUnary(function=Function.HARD_SWISH), [state.tensor(node)])


def leaky_relu(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate LeakyRelu."""
    op = FloatUnary(function=Function.LEAKY_RELU, alpha=node.real("alpha", 0.01))
    state.finish(node, op, [state.tensor(node)])


def elu(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Elu."""
    op = FloatUnary(function=Function.ELU, alpha=node.real("alpha", 1.0))
    state.finish(node, op, [state.tensor(node)])


def qlinear_sigmoid(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate com.microsoft QLinearSigmoid: (x, s, z, s, z)."""
    op = FloatUnary(function=Function.SIGMOID)
    state.finish_quantized(node, op, [state.dequantized(node, 0, "x")], (3, 4))


def qlinear_leaky_relu(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate com.microsoft QLinearLeakyRelu: (x, s, z, s, z)."""
    op = FloatUnary(function=Function.LEAKY_RELU, alpha=node.real("alpha", 0.01))
    state.finish_quantized(node, op, [state.dequantized(node, 0, "x")], (3, 4))


def reduce_mean(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate ReduceMean over height and width of an NCHW image."""
    size = state.image_size(node)
    axes = state.integers(node, 1) if state.has_input(node, 1) else node.integers("axes", ())
    if sorted(axis % 4 for axis in axes) != [2, 3]:
        raise ModelError(f"{node.label} is only supported over height and width")
    op = FloatAveragePool2d(kernel=size, stride=(1, 1))
    if node.integer("keepdims", 1):
        state.finish_image(node, op, [state.channels_last(node)])
        return
    mean = state.add(node, op, [state.channels_last(node)])
    batch, channels = state.shape(node)[:2]
    state.finish(node, Reshape(shape=(batch, channels)), [mean])


def _quantize_constant(state: OnnxTranslation, node: OnnxNode) -> None:
    values, scales = state.constant(node, 0), state.scales(node, 1)
    zero_points, dtype = state.zero_points(node, 2)
    axis = node.integer("axis", 1)
    shape = [1] * values.ndim
    if scales.size > 1:
        if not -values.ndim <= axis < values.ndim or values.shape[axis] != scales.size:
            raise ModelError(f"{node.label} has {scales.size} scales for {list(values.shape)}")
        shape[axis] = scales.size
    if zero_points.size not in (1, scales.size) or dtype is DataType.INT32:
        raise ModelError(f"{node.label} has {zero_points.size} zero points")
    if values.dtype != np.float32 or not np.isfinite(values).all():
        raise ModelError(f"{node.label} quantises a constant that is not finite float32")
    zero = zero_points.reshape(shape) if zero_points.size > 1 else zero_points.reshape(())
    steps = np.rint(values / scales.reshape(shape)) + zero
    state.set_constant(node, np.clip(steps, *dtype.limits).astype(dtype.numpy))


def _require_unblocked(node: OnnxNode) -> None:
    if node.integer("block_size", 0):
        raise ModelError(f"{node.label} quantises in blocks, which is not supported")
