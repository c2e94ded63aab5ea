"""Translation of ONNX convolutions and poolings."""

from collections.abc import Callable

from tilewright.compiler.operators import (
    FloatAveragePool2d,
    FloatConv2d,
    FloatConvTranspose2d,
    MaxPool2d,
    Operator,
    Padding,
    Pair,
    Reshape,
    Transpose,
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


def conv_transpose(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate ConvTranspose, whose weights are ``[C, O / groups, kh, kw]``."""
    weights, groups = _scattering_weights(state, node), node.integer("group", 1)
    operands = [state.channels_last(node, 0), weights]
    if state.has_input(node, 2):
        operands.append(state.tensor(node, 2))
    _, rows, columns, _ = state.builder.tensor(weights).shape
    stride, dilation = _pair(node, "strides"), _pair(node, "dilations")
    size = state.image_size(node)
    span = tuple(
        (size[axis] - 1) * stride[axis] + ((rows, columns)[axis] - 1) * dilation[axis] + 1
        for axis in range(2)
    )
    extra = _pair(node, "output_padding", 0)
    pads = _scattering_pads(node, size, stride, (span[0] + extra[0], span[1] + extra[1]))
    # What exceeds the full result is padded with bias alone: it counts as `extra`.
    op = FloatConvTranspose2d(
        stride=stride,
        dilation=dilation,
        groups=groups,
        pads=(pads[0], pads[1], max(pads[2], 0), max(pads[3], 0)),
        extra=(extra[0] + max(-pads[2], 0), extra[1] + max(-pads[3], 0)),
    )
    state.finish_image(node, op, operands)


def _scattering_weights(state: OnnxTranslation, node: OnnxNode) -> str:
    """Return the weights of a ConvTranspose as ``[O, kh, kw, C / groups]``."""
    weights = state.spatial(node, state.tensor(node, 1), "kernel")
    groups = node.integer("group", 1)
    channels, share, rows, columns = state.builder.tensor(weights).shape
    if groups < 1 or channels % groups:
        raise ModelError(f"{node.label} has {groups} groups for {channels} channels")
    if node.integers("kernel_shape", (rows, columns))[-2:] not in ((rows, columns), (columns,)):
        raise ModelError(f"{node.label} has a kernel_shape that is not that of its weights")
    if groups == 1:
        return state.add(node, Transpose(permutation=(1, 2, 3, 0)), [weights], "kernel_last")
    depth = channels // groups
    split = Reshape(shape=(groups, depth, share, rows, columns))
    grouped = state.add(node, split, [weights], "kernel_groups")
    turned = state.add(node, Transpose(permutation=(0, 2, 3, 4, 1)), [grouped], "kernel_turned")
    return state.add(
        node, Reshape(shape=(groups * share, rows, columns, depth)), [turned], "kernel_last"
    )


def _scattering_pads(node: OnnxNode, size: Pair, stride: Pair, span: Pair) -> Padding:
    """Return what is cut off a full result of `span`; negative numbers extend it."""
    mode = node.text("auto_pad", "NOTSET")
    if "output_shape" in node.attributes:
        wanted = node.integers("output_shape", ())[-2:]
        wanted = (1, *wanted) if len(wanted) == 1 else wanted
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = (size[0] * stride[0], size[1] * stride[1])
    else:
        return _pads(node, size, (1, 1), stride, (1, 1))
    if len(wanted) != 2 or min(wanted) < 1:
        raise ModelError(f"{node.label} wants a result of {wanted}")
    total = [span[axis] - wanted[axis] for axis in range(2)]
    small = [value // 2 if value > 0 else 0 for value in total]
    large = [value - half for value, half in zip(total, small, strict=True)]
    before, after = (small, large) if mode == "SAME_UPPER" else (large, small)
    if min(before) < 0:
        before, after = after, before
    return before[0], before[1], after[0], after[1]


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


def global_max_pool(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate GlobalMaxPool."""
    op = MaxPool2d(kernel=state.image_size(node), stride=(1, 1))
    state.finish_image(node, op, [state.channels_last(node)])


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
    if node.integers("kernel_shape", (rows, columns)) not in ((rows, columns), (columns,)):
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
    if len(pads) == 2:
        pads = (0, pads[0], 0, pads[1])
    if mode != "NOTSET" or len(pads) != 4:
        raise ModelError(f"{node.label} has padding {pads} in mode {mode!r}")
    top, left, bottom, right = pads
    return top, left, bottom, right


def _pair(node: OnnxNode, name: str, least: int = 1) -> Pair:
    """Return an attribute with a number per spatial axis, `least` by default; rows come first."""
    values = node.integers(name, (least, least))
    if len(values) == 1:
        values = (least, values[0])
    if len(values) != 2 or min(values) < least:
        raise ModelError(f"{node.label} needs two positive numbers for {name}, not {values}")
    return values[0], values[1]
