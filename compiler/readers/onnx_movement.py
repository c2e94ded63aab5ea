"""Translation of ONNX operators that move or select values."""

import math

import numpy as np

from tilewright.compiler.operators import Concat, Pad, Reshape, Slice, Transpose
from tilewright.compiler.readers.onnx_file import OnnxNode
from tilewright.compiler.readers.onnx_translation import OnnxTranslation
from tilewright.isa.errors import ModelError


def identity(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Identity and Dropout, which do nothing in inference."""
    name = node.inputs[0] if node.inputs else ""
    if name in state.constants:
        state.set_constant(node, state.constants[name])
    else:
        state.finish(node, Reshape(shape=state.shape(node)), [state.tensor(node)])


def reshape(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Reshape: 0 keeps a size, -1 stands for the rest."""
    shape = state.shape(node)
    target = list(state.integers(node, 1))
    if not node.integer("allowzero", 0):
        if any(size == 0 and axis >= len(shape) for axis, size in enumerate(target)):
            raise ModelError(f"{node.label} keeps the size of an axis that its input lacks")
        target = [shape[axis] if size == 0 else size for axis, size in enumerate(target)]
    if target.count(-1) == 1:
        known = -math.prod(target)
        target[target.index(-1)] = math.prod(shape) // known if known else 0
    _finish_reshape(state, node, tuple(target))


def flatten(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Flatten."""
    shape = state.shape(node)
    axis = _axis(node, node.integer("axis", 1), len(shape) + 1)
    _finish_reshape(state, node, (math.prod(shape[:axis]), math.prod(shape[axis:])))


def squeeze(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Squeeze; the axes are an attribute or, from opset 13 on, an input."""
    shape = state.shape(node)
    default = tuple(axis for axis, size in enumerate(shape) if size == 1)
    axes = {_axis(node, axis, len(shape)) for axis in _axes(state, node, default)}
    if any(shape[axis] != 1 for axis in axes):
        raise ModelError(f"{node.label} removes an axis that is longer than 1")
    _finish_reshape(state, node, tuple(s for axis, s in enumerate(shape) if axis not in axes))


def unsqueeze(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Unsqueeze; the axes are an attribute or, from opset 13 on, an input."""
    shape = list(state.shape(node))
    axes = _axes(state, node, ())
    for axis in sorted(_axis(node, axis, len(shape) + len(axes)) for axis in axes):
        shape.insert(axis, 1)
    _finish_reshape(state, node, tuple(shape))


def transpose(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Transpose."""
    default = tuple(reversed(range(len(state.shape(node)))))
    permutation = node.integers("perm", default)
    state.finish(node, Transpose(permutation=permutation), [state.tensor(node)])


def concat(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Concat."""
    axis = _axis(node, node.integer("axis", 0), len(state.shape(node)))
    operands = [state.tensor(node, index) for index in range(len(node.inputs))]
    state.finish(node, Concat(axis=axis), operands)


def qlinear_concat(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate com.microsoft QLinearConcat: (s, z, then x, s, z per input)."""
    if len(node.inputs) < 5 or len(node.inputs) % 3 != 2:
        raise ModelError(f"{node.label} has {len(node.inputs)} inputs, not 2 and 3 per tensor")
    starts = range(2, len(node.inputs), 3)
    operands = [state.dequantized(node, start, f"x{start // 3}") for start in starts]
    axis = _axis(node, node.integer("axis", 0), len(state.shape(node, 2)))
    state.finish_quantized(node, Concat(axis=axis), operands, (0, 1))


def slice_(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Slice; its bounds are attributes or, from opset 10 on, inputs."""
    shape = state.shape(node)
    if state.opset < 10:
        starts, ends = node.integers("starts", ()), node.integers("ends", ())
        axes = node.integers("axes", tuple(range(len(starts))))
        steps: tuple[int, ...] = (1,) * len(starts)
    else:
        starts, ends = state.integers(node, 1), state.integers(node, 2)
        default = tuple(range(len(starts)))
        axes = state.integers(node, 3) if state.has_input(node, 3) else default
        steps = state.integers(node, 4) if state.has_input(node, 4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ModelError(f"{node.label} has starts, ends, axes and steps of different lengths")
    begin, end, stride = [0] * len(shape), list(shape), [1] * len(shape)
    for start, stop, axis, step in zip(starts, ends, axes, steps, strict=True):
        position = _axis(node, axis, len(shape))
        if step < 1:
            raise ModelError(f"{node.label} runs backwards, which is not supported")
        begin[position], end[position], stride[position] = slice(start, stop, step).indices(
            shape[position]
        )
    op = Slice(begin=tuple(begin), end=tuple(end), stride=tuple(stride))
    state.finish(node, op, [state.tensor(node)])


def pad(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Pad with a constant value; widths are an attribute before opset 11."""
    if node.text("mode", "constant") != "constant":
        raise ModelError(f"{node.label} is only supported in mode 'constant'")
    axes = len(state.shape(node))
    if state.opset < 11:
        widths, value = node.integers("pads", ()), node.real("value", 0.0)
    else:
        widths = state.integers(node, 1)
        value = float(state.constant(node, 2).reshape(-1)[0]) if state.has_input(node, 2) else 0.0
    if state.has_input(node, 3):
        raise ModelError(f"{node.label} states axes, which is not supported")
    if len(widths) != 2 * axes:
        raise ModelError(f"{node.label} needs {2 * axes} padding widths, not {len(widths)}")
    op = Pad(before=widths[:axes], after=widths[axes:], value=value)
    state.finish(node, op, [state.tensor(node)])


def constant(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Constant."""
    if "value" in node.attributes:
        value = node.attributes["value"]
        if isinstance(value, np.ndarray):
            state.set_constant(node, value)
            return
    if "value_ints" in node.attributes:
        state.set_constant(node, np.array(node.integers("value_ints", ()), dtype=np.int64))
    elif "value_int" in node.attributes:
        state.set_constant(node, np.array(node.integer("value_int", 0), dtype=np.int64))
    elif "value_float" in node.attributes:
        state.set_constant(node, np.array(node.real("value_float", 0.0), dtype=np.float32))
    else:
        raise ModelError(f"{node.label} states its value in a way that is not supported")


def _axes(state: OnnxTranslation, node: OnnxNode, default: tuple[int, ...]) -> tuple[int, ...]:
    if state.has_input(node, 1):
        return state.integers(node, 1)
    return node.integers("axes", default)


def _axis(node: OnnxNode, axis: int, axes: int) -> int:
    if not -axes <= axis < axes:
        raise ModelError(f"{node.label} names axis {axis} of {axes}")
    return axis % axes


def _finish_reshape(state: OnnxTranslation, node: OnnxNode, shape: tuple[int, ...]) -> None:
    state.finish(node, Reshape(shape=shape), [state.tensor(node)])
