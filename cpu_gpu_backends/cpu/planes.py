"""Images of a few channels that come in planes: the convolution that reads them needs no others.

A window is then a stretch of memory for each row of each plane. The transposition that stands
before the convolution in the graph only renames its operand.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import Transpose
from tilewright.cpu_gpu_backends.cpu.builder import Activation, Layout
from tilewright.cpu_gpu_backends.cpu.context import Context
from tilewright.cpu_gpu_backends.cpu.copies import add_border
from tilewright.cpu_gpu_backends.cpu.grouping import Group, is_plain_convolution
from tilewright.cpu_gpu_backends.cpu.program import View
from tilewright.cpu_gpu_backends.cpu.winograd_tiles import winograd_transforms

_TO_CHANNELS_LAST = (0, 2, 3, 1)
#: With more channels, a stretch of all channels of a position is worth a transposition.
_MOST_PLANES = 4


def planar_tensors(
    graph: Graph, groups: tuple[Group, ...], halves: Collection[str]
) -> Mapping[str, str]:
    """Return, by their names, transposed images that can stay in planes, and what they come from.

    The source is an input of the graph or computed element by element; nobody else reads either.
    """
    consumers = graph.consumers()
    elementwise = {group.output for group in groups if not group.anchored}
    readers = {group.first.name: group for group in groups if _reads_windows(graph, group)}
    found = {}
    for group in groups:
        node = group.first
        transposed = node.op == Transpose(permutation=_TO_CHANNELS_LAST) and len(group.nodes) == 1
        if not transposed or {group.output, *node.inputs} & {*halves, *graph.outputs}:
            continue
        (source,) = node.inputs
        (reader, *others) = consumers[group.output] or (None,)
        shared = others or len(consumers[source]) > 1
        known = source in graph.inputs or source in elementwise
        if reader is not None and reader.name in readers and known and not shared:
            if readers[reader.name].inputs.count(group.output) == 1:
                found[group.output] = source
    return found


def _reads_windows(graph: Graph, group: Group) -> bool:
    """Whether a group is a convolution with windows of several columns on a few channels."""
    node = group.first
    if not is_plain_convolution(graph, node) or group.half:
        return False
    _, _, columns, channels = graph.tensors[node.inputs[1]].shape
    few = channels <= _MOST_PLANES and columns > 1
    return few and winograd_transforms(graph, group) is None


def planar_layouts(layouts: Mapping[str, Layout], planar: Mapping[str, str]) -> dict[str, Layout]:
    """Return the layouts with the border of each planar image around the planes of its source."""
    changed = dict(layouts)
    for name, source in planar.items():
        pitch = layouts[source].pitch
        changed[source] = replace(layouts[name], pitch=pitch, planar=True)
    return changed


def lower_planes(context: Context, name: str, source: str, layout: Layout) -> None:
    """Let the image `name` be the planes of `source`, and fill the border around them."""
    view = context.activations[source].view
    batch, channels, height, width = view.shape
    image, plane, row, column = view.strides
    planes = Activation(
        view=View(
            buffer=view.buffer,
            offset=view.offset,
            shape=(batch * channels, height, width, 1),
            strides=(plane, row, column, 1),
        ),
        dtype=context.stored(source),
        border=layout.border,
        fill=layout.fill,
        pitch=1,
    )
    add_border(context, name, planes)
    context.activations[name] = replace(
        planes,
        view=replace(
            view, shape=(batch, height, width, channels), strides=(image, row, column, plane)
        ),
    )
