"""How each tensor of the graph lies in memory: borders that convolutions read, padded channels."""

from collections.abc import Collection, Mapping
from math import prod

from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import (
    Conv2d,
    DataType,
    FloatConv2d,
    FloatDense,
    Padding,
)
from tilewright.cpu_gpu_backends.codegen.target import LINE_BYTES, CpuTarget
from tilewright.cpu_gpu_backends.cpu.builder import Layout
from tilewright.cpu_gpu_backends.cpu.grouping import (
    Group,
    has_tail,
    is_plain_convolution,
    is_product,
)
from tilewright.cpu_gpu_backends.cpu.plans import MatrixPlan, WinogradPlan
from tilewright.cpu_gpu_backends.cpu.quantised import STORED_OFFSET
from tilewright.cpu_gpu_backends.cpu.tiles import Panels, choose_panels, panels_of
from tilewright.cpu_gpu_backends.cpu.winograd_tiles import winograd_pads, winograd_transforms

_FLOAT_BYTES = 4
#: Addresses so far apart share the lines of a first-level cache: a tile's rows would evict each
#: other. Then a line more lies between them.
_ALIASING_BYTES = 4096


def is_matrix_kernel(graph: Graph, group: Group) -> bool:
    """Whether a group's first node is a product with constant weights."""
    node = group.first
    if isinstance(node.op, FloatDense):
        return node.inputs[1] in graph.constants
    return is_plain_convolution(graph, node)


def output_panels(graph: Graph, group: Group, target: CpuTarget) -> Panels:
    """Return the panels of a matrix kernel's output channels."""
    shape = graph.tensors[group.output].shape
    if isinstance(group.plan, MatrixPlan | WinogradPlan):
        return panels_of(shape[-1], group.plan.panel)
    rows = shape[-2] if is_product(graph, group.first) else prod(shape[:-1])
    return choose_panels(shape[-1], rows, target)


def matrix_plan(group: Group) -> MatrixPlan | None:
    """Return the plan of a group that is one product, where a tuner has chosen one."""
    return group.plan if isinstance(group.plan, MatrixPlan) else None


def plan_layouts(
    graph: Graph, groups: tuple[Group, ...], target: CpuTarget, halves: Collection[str] = ()
) -> Mapping[str, Layout]:
    """Return the layout of every tensor between groups, those in `halves` in bfloat16."""
    pitches = {}
    for group in groups:
        if is_matrix_kernel(graph, group):
            pitches[group.output] = output_panels(graph, group, target).channels
    products = set()
    for group in groups:
        if is_product(graph, group.first):
            products.add(group.output)
            pitches[group.output] = output_panels(graph, group, target).channels
    borders: dict[str, list[tuple[tuple[int, int, int, int], float]]] = {}
    for group in groups:
        match group.first.op:
            case Conv2d() | FloatConv2d() as op if has_tail(graph, group.first):
                pads = read_border(graph, group, op)
                if any(pads):
                    readers = borders.setdefault(group.first.inputs[0], [])
                    readers.append((pads, border_fill(op)))
    layouts = {}
    for name in {*graph.inputs, *(group.output for group in groups)}:
        shape = graph.tensors[name].shape
        pitch = pitches.get(name, (shape or (1,))[-1])
        layout = Layout(pitch=_spread_pitch(graph, name, pitch, halved=name in halves))
        wanted = [] if name in products else borders.get(name, [])
        if len({fill for _, fill in wanted}) == 1:
            border = tuple(max(pads[side] for pads, _ in wanted) for side in range(4))
            top, left, bottom, right = border
            layout = Layout(
                pitch=layout.pitch, border=(top, left, bottom, right), fill=wanted[0][1]
            )
        layouts[name] = layout
    return layouts


def _spread_pitch(graph: Graph, name: str, pitch: int, *, halved: bool) -> int:
    """Return a pitch that keeps rows of a float matrix out of each other's cache lines."""
    tensor = graph.tensors[name]
    if tensor.dtype is not DataType.FLOAT32 or prod(tensor.shape[:-1]) == 1:
        return pitch
    return spread_pitch(pitch, _FLOAT_BYTES // 2 if halved else _FLOAT_BYTES)


def spread_pitch(pitch: int, size_bytes: int) -> int:
    """Return a distance of numbers that are used together: in cache lines of their own."""
    aliases = pitch * size_bytes % _ALIASING_BYTES == 0
    return pitch + LINE_BYTES // size_bytes if aliases else pitch


def read_border(graph: Graph, group: Group, op: Conv2d | FloatConv2d) -> Padding:
    """Return the border of its image that a convolution reads."""
    tiles = winograd_transforms(graph, group)
    if group.half:
        # An odd stretch of numbers is read with the one behind it.
        top, left, bottom, right = op.pads
        channels = graph.tensors[group.first.inputs[0]].shape[-1]
        return top, left, bottom, right + channels % 2
    if tiles is None or not isinstance(op, FloatConv2d):
        return op.pads
    _, height, width, _ = graph.tensors[group.output].shape
    return winograd_pads(op, (height, width), tiles)


def border_fill(op: Conv2d | FloatConv2d) -> float:
    """Return what the padding of a convolution holds, as stored."""
    match op:
        case Conv2d():
            return float(op.input_zero_point + STORED_OFFSET)
        case FloatConv2d():
            return 0.0
