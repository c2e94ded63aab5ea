"""Translation of ONNX QuantizeLinear, DequantizeLinear and quantised functions of one number."""

import numpy as np

from tilewright.compiler.operators import DataType, Dequantize, FloatUnary, Function, Quantize
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


def qlinear_sigmoid(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate com.microsoft QLinearSigmoid: (x, s, z, s, z)."""
    op = FloatUnary(function=Function.SIGMOID)
    state.finish_quantized(node, op, [state.dequantized(node, 0, "x")], (3, 4))


def qlinear_leaky_relu(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate com.microsoft QLinearLeakyRelu: (x, s, z, s, z)."""
    op = FloatUnary(function=Function.LEAKY_RELU, alpha=node.real("alpha", 0.01))
    state.finish_quantized(node, op, [state.dequantized(node, 0, "x")], (3, 4))


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
