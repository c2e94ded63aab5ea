"""Translation of ONNX convolutions and poolings."""

from collections.abc import Callable

from tilewright.compiler.operators import (
    FloatAveragePool2d,
    FloatConv2d,
    MaxPool2d,
    Operator,
    Padding,
    Pair,
)
from tilewright.compiler.readers.onnx_file import OnnxNode
from tilewright.compiler.readers.onnx_translation import OnnxTranslation
from tilewright.compiler.readers.windows import ceiling_padding, same_padding
from tilewright.isa.errors import ModelError


def conv(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Conv."""
    operands = [state.channels_last(node, 0), state.channels_last(node, 1)]
    if state.has_input(node, 2):
        operands.append(state.tensor(node, 2))
    state.finish_image(node, _convolution(state, node, operands), operands)


def qlinear_conv(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate QLinearConv: (x, scale, zero, weights, scale, zero, scale, zero, bias)."""
    x = state.dequantized(node, 0, "x")
    weights = state.dequantized(node, 3, "weights")
    operands = [state.to_channels_last(node, x), state.to_channels_last(node, weights)]
    if state.has_input(node, 8):
        operands.append(state.dequantized_bias(node, 8, (1, 4)))
    op = _convolution(state, node, operands)
    state.finish_quantized_image(node, op, operands, (6, 7))


def max_pool(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate MaxPool."""
    kernel, stride, pads = _pooling(state, node)
    if node.integer("storage_order", 0):
        raise ModelError(f"{node.label} wants indices in column-major order")
    op = MaxPool2d(kernel=kernel, stride=stride, pads=pads)
    state.finish_image(node, op, [state.channels_last(node)])


def average_pool(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate AveragePool."""
    state.finish_image(node, _average(state, node), [state.channels_last(node)])


def global_average_pool(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate GlobalAveragePool."""
    size = state.image_size(node)
    op = FloatAveragePool2d(kernel=size, stride=(1, 1))
    state.finish_image(node, op, [state.channels_last(node)])


def qlinear_average_pool(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate com.microsoft QLinearAveragePool: (x, scale, zero, scale, zero)."""
    _quantized_pool(state, node, _average)


def qlinear_global_average_pool(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate com.microsoft QLinearGlobalAveragePool: (x, scale, zero, scale, zero)."""

    def whole(state: OnnxTranslation, node: OnnxNode) -> FloatAveragePool2d:
        return FloatAveragePool2d(kernel=state.image_size(node), stride=(1, 1))

    _quantized_pool(state, node, whole)


def _quantized_pool(
    state: OnnxTranslation,
    node: OnnxNode,
    operator: Callable[[OnnxTranslation, OnnxNode], FloatAveragePool2d],
) -> None:
    if node.integer("channels_last", 0):
        raise ModelError(f"{node.label} is NHWC, which is not supported")
    image = state.to_channels_last(node, state.dequantized(node, 0, "x"))
    state.finish_quantized_image(node, operator(state, node), [image], (3, 4))


def _convolution(state: OnnxTranslation, node: OnnxNode, operands: list[str]) -> Operator:
    rows, columns = state.builder.tensor(operands[1]).shape[1:3]
    if node.integers("kernel_shape", (rows, columns)) != (rows, columns):
        raise ModelError(f"{node.label} has a kernel_shape that is not that of its weights")
    stride = _pair(node, "strides")
    dilation = _pair(node, "dilations")
    size = state.image_size(node)
    return FloatConv2d(
        stride=stride,
        dilation=dilation,
        pads=_pads(node, size, (rows, columns), stride, dilation),
        groups=node.integer("group", 1),
    )


def _average(state: OnnxTranslation, node: OnnxNode) -> FloatAveragePool2d:
    kernel, stride, pads = _pooling(state, node)
    include = bool(node.integer("count_include_pad", 0))
    if include and pads != _pads(node, state.image_size(node), kernel, stride, (1, 1)):
        raise ModelError(f"{node.label} combines count_include_pad with partial windows")
    return FloatAveragePool2d(kernel=kernel, stride=stride, pads=pads, count_include_pad=include)


def _pooling(state: OnnxTranslation, node: OnnxNode) -> tuple[Pair, Pair, Padding]:
    kernel = _pair(node, "kernel_shape")
    if "kernel_shape" not in node.attributes:
        raise ModelError(f"{node.label} lacks its kernel_shape")
    if _pair(node, "dilations") != (1, 1):
        raise ModelError(f"{node.label} is dilated, which is not supported")
    stride = _pair(node, "strides")
    size = state.image_size(node)
    pads = _pads(node, size, kernel, stride, (1, 1))
    if node.integer("ceil_mode", 0):
        pads = ceiling_padding(size, kernel, stride, pads)
    return kernel, stride, pads


def _pads(node: OnnxNode, size: Pair, kernel: Pair, stride: Pair, dilation: Pair) -> Padding:
    mode = node.text("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        return same_padding(size, kernel, stride, dilation, lower=mode == "SAME_LOWER")
    if mode == "VALID":
        return (0, 0, 0, 0)
    pads = node.integers("pads", (0, 0, 0, 0))
    if mode != "NOTSET" or len(pads) != 4:
        raise ModelError(f"{node.label} has padding {pads} in mode {mode!r}")
    top, left, bottom, right = pads
    return top, left, bottom, right


def _pair(node: OnnxNode, name: str) -> Pair:
    values = node.integers(name, (1, 1))
    if len(values) != 2 or min(values) < 1:
        raise ModelError(f"{node.label} needs two positive numbers for {name}, not {values}")
    return values[0], values[1]
