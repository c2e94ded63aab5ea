"""Kernels for operators that move data: copies by block, selections of channels on the array."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.lowering.kernels import (
    Decision,
    HostReason,
    IntArray,
    Kernel,
    LaneKernel,
    LaneSource,
    Legalised,
    MatrixKernel,
    Requantisation,
    Residual,
    Window,
)
from tilewright.compiler.lowering.tensors import TensorShape
from tilewright.compiler.operators import Concat, Pad, Slice, Upsample2d
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import VectorOperation
from tilewright.isa.integers import MULTIPLIER_BITS

#: Multiplier and shift that leave an int8 value as it is.
_UNIT_MULTIPLIER, _UNIT_SHIFT = 1 << MULTIPLIER_BITS - 1, MULTIPLIER_BITS - 1


def lower_concat(node: Node, op: Concat, graph: Graph, config: AcceleratorConfig) -> Decision:
    """Copy each input to its place; channels that do not begin a block go through the array."""
    rank = len(graph.tensors[node.outputs[0]].shape)
    axis = op.axis % rank
    if axis == 0:
        return HostReason(text="concatenation of images")
    if axis != rank - 1 and rank != 4:
        return HostReason(text=f"concatenation along axis {axis} of a tensor with {rank} axes")
    shapes = [TensorShape.of(graph.tensors[name].shape) for name in node.inputs]
    if axis == rank - 1:
        return _concat_channels(node, shapes, graph, config)
    kernels: list[Kernel] = []
    row, column = 0, 0
    for number, (name, shape) in enumerate(zip(node.inputs, shapes, strict=True)):
        kernels.append(
            copy_kernel(
                f"{node.name}#{number}",
                LaneSource(tensor=name),
                node.outputs[0],
                size=(shape.height, shape.width, shape.channels),
                target=(0, row, column),
            )
        )
        row += shape.height if axis == 1 else 0
        column += shape.width if axis == 2 else 0
    return Legalised(kernels=tuple(kernels))


def _concat_channels(
    node: Node, shapes: list[TensorShape], graph: Graph, config: AcceleratorConfig
) -> Legalised:
    begins = np.cumsum([0, *(shape.channels for shape in shapes)]).tolist()
    if any(begin % config.layout_block for begin in begins[:-1]):
        return _interleave_channels(node, shapes, begins, graph)
    kernels = tuple(
        copy_kernel(
            f"{node.name}#{number}",
            LaneSource(tensor=name),
            node.outputs[0],
            size=(shape.height, shape.width, shape.channels),
            target=(begin // config.layout_block, 0, 0),
        )
        for number, (name, shape, begin) in enumerate(
            zip(node.inputs, shapes, begins, strict=False)
        )
    )
    return Legalised(kernels=kernels)


def _interleave_channels(
    node: Node, shapes: list[TensorShape], begins: list[int], graph: Graph
) -> Legalised:
    """Select each input's channels and add them up: where one input has a value, others have 0."""
    output = TensorShape.of(graph.tensors[node.outputs[0]].shape)
    unit = unit_scale(np.zeros(1, dtype=np.int64))
    kernels: list[Kernel] = []
    temporaries: list[tuple[str, TensorShape]] = []
    for number, (name, shape) in enumerate(zip(node.inputs, shapes, strict=True)):
        last = number == len(shapes) - 1
        result = node.outputs[0] if last else f"{node.outputs[0]}#{number}"
        if not last:
            temporaries.append((result, output))
        kernel = selection_kernel(
            f"{node.name}#{number}",
            name,
            result,
            Window(),
            inputs=shape.channels,
            outputs=output.channels,
            chosen=_stretch(begins[number], shape.channels),
        )
        if number:
            residual = Residual(
                tensor=f"{node.outputs[0]}#{number - 1}",
                own_coefficient=1,
                coefficient=1,
                scale=unit,
            )
            kernel = replace(kernel, residual=residual)
        kernels.append(kernel)
    return Legalised(kernels=tuple(kernels), temporaries=tuple(temporaries))


def lower_pad(node: Node, op: Pad, graph: Graph, config: AcceleratorConfig) -> Decision:
    """Copy with padding around rows and columns; padded channels go through the array."""
    output = TensorShape.of(graph.tensors[node.outputs[0]].shape)
    source = TensorShape.of(graph.tensors[node.inputs[0]].shape)
    before, after = _spatial(op.before), _spatial(op.after)
    if before is None or after is None or op.before[0] or op.after[0]:
        return HostReason(text="padding of an axis that is not row, column or channel")
    value = int(op.value)
    window = Window(before=before, pad_value=value)
    if not op.before[-1] and not op.after[-1]:
        size = (output.height, output.width, output.channels)
        copy = copy_kernel(
            node.name, LaneSource(tensor=node.inputs[0]), node.outputs[0], size=size, window=window
        )
        return Legalised(kernels=(copy,))
    kernel = selection_kernel(
        node.name,
        node.inputs[0],
        node.outputs[0],
        window,
        inputs=source.channels,
        outputs=output.channels,
        chosen=_stretch(op.before[-1], source.channels),
        fill=value,
    )
    return Legalised(kernels=(kernel,))


def lower_slice(node: Node, op: Slice, graph: Graph, config: AcceleratorConfig) -> Decision:
    """Copy rows and columns at a stride; channels within a block go through the array."""
    output = TensorShape.of(graph.tensors[node.outputs[0]].shape)
    source = TensorShape.of(graph.tensors[node.inputs[0]].shape)
    begin, stride = _spatial(op.begin), _spatial(op.stride, missing=1)
    if begin is None or stride is None or output.images != source.images:
        return HostReason(text="slicing of an axis that is not row, column or channel")
    if min(op.stride) < 1:
        return HostReason(text="slicing with a negative stride")
    window = Window(before=(-begin[0], -begin[1]), stride=stride)
    first, step = op.begin[-1], op.stride[-1]
    if step == 1 and first % config.layout_block == 0:
        size = (output.height, output.width, output.channels)
        block = first // config.layout_block
        copy = copy_kernel(
            node.name,
            LaneSource(tensor=node.inputs[0], block=block),
            node.outputs[0],
            size=size,
            window=window,
        )
        return Legalised(kernels=(copy,))
    kernel = selection_kernel(
        node.name,
        node.inputs[0],
        node.outputs[0],
        window,
        inputs=source.channels,
        outputs=output.channels,
        chosen=lambda channel: first + channel * step,
    )
    return Legalised(kernels=(kernel,))


def lower_upsample(node: Node, op: Upsample2d, graph: Graph) -> Decision:
    """Copy every pixel to all its places in one go, which a store then takes as whole rows."""
    source = TensorShape.of(graph.tensors[node.inputs[0]].shape)
    copy = copy_kernel(
        node.name,
        LaneSource(tensor=node.inputs[0]),
        node.outputs[0],
        size=(source.height, source.width, source.channels),
        repeat=op.factor,
    )
    return Legalised(kernels=(copy,))


def _spatial(values: tuple[int, ...], *, missing: int = 0) -> tuple[int, int] | None:
    """Return the entries for rows and columns, or None where the axes cannot be told apart."""
    match values:
        case (_, rows, columns, _):
            return rows, columns
        case (_, columns, _):
            return missing, columns
        case (_, _):
            return missing, missing
        case _:
            return None


def _stretch(begin: int, count: int) -> Callable[[int], int | None]:
    """Map output channels `begin` to ``begin + count - 1`` to the inputs from 0 on."""
    return lambda channel: channel - begin if 0 <= channel - begin < count else None


def unit_scale(bias: IntArray) -> Requantisation:
    """Return the scale that only adds a bias for each channel."""
    return Requantisation(
        bias=bias,
        multiplier=np.full(len(bias), _UNIT_MULTIPLIER),
        shift=np.full(len(bias), _UNIT_SHIFT),
        zero_point=0,
        low=-128,
        high=127,
    )


def copy_kernel(
    name: str,
    source: LaneSource,
    output: str,
    *,
    size: tuple[int, int, int],
    window: Window | None = None,
    target: tuple[int, int, int] = (0, 0, 0),
    repeat: tuple[int, int] = (1, 1),
) -> Kernel:
    """Return a copy of rows, columns and channels `size`, to the place `target` of the output,
    where `repeat` rows and columns become of each.
    """
    rows, columns, channels = size
    return LaneKernel(
        name=name,
        sources=(source,),
        output=output,
        window=window or Window(),
        operation=VectorOperation.SUM,
        rows=rows,
        columns=columns,
        channels=channels,
        target=target,
        repeat=repeat,
    )


def selection_kernel(
    name: str,
    source: str,
    output: str,
    window: Window,
    *,
    inputs: int,
    outputs: int,
    chosen: Callable[[int], int | None],
    fill: int = 0,
) -> MatrixKernel:
    """Return a 1x1 convolution that moves channels: output o is input ``chosen(o)`` or `fill`."""
    weights: IntArray = np.zeros((outputs, 1, 1, inputs), dtype=np.int8)
    bias = np.zeros(outputs, dtype=np.int64)
    for channel in range(outputs):
        origin = chosen(channel)
        if origin is None:
            bias[channel] = fill
        else:
            weights[channel, 0, 0, origin] = 1
    return MatrixKernel(
        name=name,
        source=source,
        output=output,
        window=window,
        weights=weights,
        groups=1,
        scale=unit_scale(bias),
    )
