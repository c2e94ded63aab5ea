"""Kernels of a transposed convolution: the phases of its stride as one convolution on the array."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.lowering.kernels import (
    Decision,
    HostReason,
    IntArray,
    Kernel,
    LaneSource,
    Legalised,
    MatrixKernel,
    Requantisation,
    Window,
)
from tilewright.compiler.lowering.movement import copy_kernel
from tilewright.compiler.lowering.tensors import TensorShape
from tilewright.compiler.operators import ConvTranspose2d
from tilewright.isa.config import AcceleratorConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """Which taps meet which elements along one axis."""

    #: First element that the results of position 0 read.
    first: int
    #: int64 ``[phase, element]``: the tap, or -1 where there is none.
    taps: npt.NDArray[np.int64]


def _phases(kernel: int, op: ConvTranspose2d, axis: int) -> _Axis:
    """Result ``s * i + phase`` is met by tap k of element ``(s * i + phase + before - k) / s``."""
    stride, before = op.stride[axis], op.pads[axis]
    meetings = [
        (phase, (phase + before - tap) // stride, tap)
        for phase in range(stride)
        for tap in range(kernel)
        if (phase + before - tap) % stride == 0
    ]
    elements = [element for _, element, _ in meetings]
    first = min(elements)
    taps = np.full((stride, max(elements) - first + 1), -1)
    for phase, element, tap in meetings:
        taps[phase, element - first] = tap
    return _Axis(first=first, taps=taps)


def _split(
    weights: IntArray, rows: _Axis, columns: _Axis
) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Return weights ``[phase row, phase column, O, kh, kw, I]`` and which taps are any."""
    taps = (rows.taps[:, None, :, None] >= 0) & (columns.taps[None, :, None, :] >= 0)
    chosen = weights[:, rows.taps[:, None, :, None], columns.taps[None, :, None, :]]
    kernels: IntArray = np.where(taps[..., None], chosen, 0)
    return kernels.transpose(1, 2, 0, 3, 4, 5), taps


def _padded(values: IntArray, config: AcceleratorConfig) -> IntArray:
    """Fill the channels, axis 2, to whole layout blocks."""
    missing = -values.shape[2] % config.layout_block
    widths = [(0, missing if axis == 2 else 0) for axis in range(values.ndim)]
    padded: IntArray = np.pad(values, widths)
    return padded


def _scale(
    node: Node, op: ConvTranspose2d, kernels: IntArray, graph: Graph, config: AcceleratorConfig
) -> Requantisation:
    """Return the scales of all phases: each takes off the zero point with the taps that it has."""
    bias, multiplier, shift = (
        np.asarray(graph.constants[name]).astype(np.int64) for name in node.inputs[2:]
    )
    moved = bias - op.input_zero_point * kernels.sum(axis=(-3, -2, -1))

    def all_phases(values: IntArray) -> IntArray:
        return _padded(np.broadcast_to(values, moved.shape), config).reshape(-1)

    return Requantisation(
        bias=all_phases(moved),
        multiplier=all_phases(multiplier),
        shift=all_phases(shift),
        zero_point=op.zero_point,
        low=op.low,
        high=op.high,
    )


def lower_transposed(
    node: Node, op: ConvTranspose2d, graph: Graph, config: AcceleratorConfig
) -> Decision:
    """Return the kernels: the convolution, and a copy where its results are more than needed."""
    if op.groups != 1 or op.dilation != (1, 1):
        return HostReason(text="transposed convolution with groups or dilation")
    weights = np.asarray(graph.constants[node.inputs[1]]).astype(np.int64)
    output = TensorShape.of(graph.tensors[node.outputs[0]].shape)
    rows, columns = (_phases(weights.shape[1 + axis], op, axis) for axis in (0, 1))
    kernels, taps = _split(weights, rows, columns)
    window = Window(
        kernel=(rows.taps.shape[1], columns.taps.shape[1]),
        before=(-rows.first, -columns.first),
        pad_value=op.input_zero_point,
    )
    whole = TensorShape(
        images=output.images,
        height=-(-output.height // op.stride[0]) * op.stride[0],
        width=-(-output.width // op.stride[1]) * op.stride[1],
        channels=output.channels,
    )
    result = node.outputs[0] if whole == output else f"{node.outputs[0]}#whole"
    convolution = MatrixKernel(
        name=node.name,
        source=node.inputs[0],
        output=result,
        window=window,
        weights=_padded(kernels, config).reshape(-1, *kernels.shape[-3:]),
        groups=1,
        scale=_scale(node, op, kernels, graph, config),
        phases=op.stride,
        taps=taps,
    )
    if whole == output:
        return Legalised(kernels=(convolution,))
    size = (output.height, output.width, output.channels)
    crop: Kernel = copy_kernel(
        f"{node.name}#crop", LaneSource(tensor=result), node.outputs[0], size=size
    )
    return Legalised(kernels=(convolution, crop), temporaries=((result, whole),))
