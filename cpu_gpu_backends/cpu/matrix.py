"""Groups around a convolution or a dense layer with constant weights."""

from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.compiler.operators import Conv2d, FloatConv2d, FloatDense
from tilewright.compiler.tensor.bfloat16 import to_bits
from tilewright.compiler.tensor.build import cast
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.codegen.dot_products import DotProducts
from tilewright.cpu_gpu_backends.cpu.builder import Activation
from tilewright.cpu_gpu_backends.cpu.context import Context
from tilewright.cpu_gpu_backends.cpu.convolution import Epilogue, matrix_nest, pack_weights
from tilewright.cpu_gpu_backends.cpu.copies import padded
from tilewright.cpu_gpu_backends.cpu.grouping import Group
from tilewright.cpu_gpu_backends.cpu.layouts import (
    border_fill,
    matrix_plan,
    output_panels,
    read_border,
)
from tilewright.cpu_gpu_backends.cpu.matrix_schedule import Window
from tilewright.cpu_gpu_backends.cpu.program import Array, View, element_type
from tilewright.cpu_gpu_backends.cpu.quantised import (
    STORED_OFFSET,
    Range,
    requantised,
    rounding_type,
    scale_factors,
)
from tilewright.cpu_gpu_backends.cpu.sums import dots_of
from tilewright.cpu_gpu_backends.cpu.tails import TailInputs, apply_tail, as_element, reshaped

#: Largest magnitude of an int8 activation.
_LARGEST_ACTIVATION = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """The image of a matrix kernel: the windows read from it, and where it lies."""

    window: Window
    view: View
    dtype: ScalarType
    #: Weights as ``[O, rows, stretches, length]``.
    weights: Array


def lower_matrix(context: Context, group: Group, output: Activation) -> None:
    """Add the kernel of a group whose first node is a matrix kernel."""
    node, target = group.first, context.target
    source = _source(context, group, output)
    panels = output_panels(context.graph, group, target)
    inputs = TailInputs.of(context, (*output.shape[:-1], panels.channels))
    window = source.window
    inputs.reshape((window.batch, window.rows, window.columns, panels.channels))
    weights = pack_weights(source.weights, window, panels, target)
    nest = matrix_nest(
        window,
        panels,
        dtype=source.dtype,
        weight_dtype=element_type(weights.dtype),
        epilogue=tail_of_sums(context, group, inputs, output),
        target=target,
        plan=matrix_plan(group),
    )
    views = {
        **inputs.views,
        "image": source.view,
        "weights": context.builder.constant(f"{node.name}.weights", weights),
        "out": inputs.view_of(output),
    }
    context.builder.kernel(group.output, nest, views)


def _source(context: Context, group: Group, output: Activation) -> _Source:
    node = group.first
    weights = context.graph.constants[node.inputs[1]]
    dtype = ScalarType.BFLOAT16 if group.half else context.activations[node.inputs[0]].dtype
    if group.half:
        weights = to_bits(weights)
    op: Conv2d | FloatConv2d
    match node.op:
        case FloatDense():
            op = FloatConv2d()
            weights = weights[:, np.newaxis, np.newaxis, :]
        case Conv2d() | FloatConv2d():
            op = node.op
        case _:
            raise AssertionError(f"{node.label} is no matrix kernel")
    dots = dots_of(element_type(weights.dtype), context.target)
    pads = read_border(context.graph, group, op)
    image = padded(context, node.inputs[0], pads, border_fill(op), dtype)
    plain = weights.shape[1:3] == op.stride == (1, 1) and not any(op.pads)
    if plain:
        joined = _joined(context, group, image, output)
        if joined is not None:
            length = _stretch(weights.shape[3], dots)
            count, step = joined.shape[2], joined.strides[2]
            window = _window(1, 1, count, column_step=step, length=length)
            view = _rows(joined, window)
            return _Source(window=window, view=view, dtype=dtype, weights=weights)
    return _image_source(image, weights, op, output, dots)


def _joined(
    context: Context, group: Group, activation: Activation, output: Activation
) -> View | None:
    """Return all positions as one row, if every operand allows it."""
    positions = prod(output.shape[:-1])
    views = [activation.view, output.with_channels(output.pitch)]
    for node in group.tail:
        views += [
            context.activations[name].view
            for name in node.inputs
            if name in context.activations
            and context.activations[name].shape == output.shape
            and name not in context.graph.constants
        ]
    joined = [reshaped(view, (1, 1, positions, view.shape[-1])) for view in views]
    return None if None in joined else joined[0]


def _image_source(
    activation: Activation,
    weights: Array,
    op: Conv2d | FloatConv2d,
    output: Activation,
    dots: DotProducts | None,
) -> _Source:
    outputs, rows, columns, channels = weights.shape
    plane_rows = activation.view.strides[3] // activation.view.strides[1]
    planes = channels if plane_rows else 1
    if plane_rows:
        weights = weights.transpose(0, 3, 1, 2).reshape(outputs, planes * rows, columns, 1)
        channels = 1
    pitch = activation.pitch
    joins = op.dilation[1] == 1 and (pitch == channels or not activation.dtype.is_float)
    if joins:
        spread = np.zeros((*weights.shape[:3], pitch), weights.dtype)
        spread[..., :channels] = weights
        stretches, length = spread.reshape(*spread.shape[:2], 1, -1), columns * pitch
    else:
        stretches, length = weights, channels
    batch, height, width, _ = output.shape
    window = Window(
        batch=batch,
        rows=height,
        columns=width,
        row_step=op.stride[0],
        column_step=op.stride[1] * pitch,
        kernel_rows=rows,
        row_dilation=op.dilation[0],
        kernel_columns=1 if joins else columns,
        column_dilation=op.dilation[1] * pitch,
        length=_stretch(length, dots),
        planes=planes,
        plane_rows=plane_rows,
    )
    image, row, column, _ = activation.view.strides
    offset = activation.view.offset - op.pads[0] * row - op.pads[1] * column
    view = View(
        buffer=activation.view.buffer, offset=offset, shape=window.image, strides=(image, row, 1)
    )
    return _Source(window=window, view=view, dtype=activation.dtype, weights=stretches)


def _window(batch: int, rows: int, columns: int, *, column_step: int, length: int) -> Window:
    return Window(
        batch=batch,
        rows=rows,
        columns=columns,
        row_step=1,
        column_step=column_step,
        kernel_rows=1,
        row_dilation=1,
        kernel_columns=1,
        column_dilation=1,
        length=length,
    )


def _rows(view: View, window: Window) -> View:
    row = view.strides[0]
    return View(buffer=view.buffer, offset=view.offset, shape=window.image, strides=(row, row, 1))


def _stretch(length: int, dots: DotProducts | None) -> int:
    """Return a length in whole sums; weights of 0 meet the numbers behind a stretch."""
    depth = 1 if dots is None else dots.depth
    return -(-length // depth) * depth


def tail_of_sums(
    context: Context, group: Group, inputs: TailInputs, output: Activation
) -> Epilogue:
    """Return what turns the sums of a convolution into stored elements of the group's result.

    Sums of a quantised convolution are those over stored values, in int32 or exact in float32.
    """
    node = group.first

    def epilogue(total: Expr, at: tuple[Expr, ...]) -> Expr:
        match node.op:
            case Conv2d() as op:
                value = _requantised(context, op, group, inputs, total, at[-1])
            case _:
                value = total
                if len(node.inputs) == 3:
                    bias = _per_channel(context, node.inputs[2], inputs)
                    value = total + bias[at[-1]]
        main = node.outputs[0]
        for follower in group.tail:
            value = apply_tail(follower, main, value, inputs, at)
            main = follower.outputs[0]
        return as_element(value, output.dtype)

    return epilogue


def _per_channel(context: Context, name: str, inputs: TailInputs) -> Tensor:
    values = context.graph.constants[name]
    whole = np.zeros(inputs.tensor_shape[-1], values.dtype)
    whole[: values.size] = values
    return inputs.constant(f"{name}.channels", whole)


def _requantised(
    context: Context, op: Conv2d, group: Group, inputs: TailInputs, total: Expr, channel: Expr
) -> Expr:
    """Return the stored value of a sum over stored activations, which are 128 too large."""
    name, constants = group.first.name, context.graph.constants
    weights, bias, multiplier, shift = (constants[operand] for operand in group.first.inputs[1:])
    channels = inputs.tensor_shape[-1]
    taps = weights.astype(np.int64).reshape(weights.shape[0], -1)
    offset = np.zeros(channels, np.int32)
    offset[: bias.size] = (bias - STORED_OFFSET * taps.sum(axis=1)).astype(np.int32)
    factors = np.zeros(channels)
    factors[: bias.size] = scale_factors(multiplier, shift)
    largest = _LARGEST_ACTIVATION * np.abs(taps).sum(axis=1) + np.abs(bias.astype(np.int64))
    dtype = rounding_type(int(largest.max(initial=0)), factors)
    biases = inputs.constant(f"{name}.bias", offset)
    scales = inputs.constant(f"{name}.factors", factors.astype(dtype.numpy))
    result = Range(zero_point=op.zero_point, low=op.low, high=op.high)
    return requantised(total + cast(biases[channel], total.dtype), scales[channel], result, dtype)
