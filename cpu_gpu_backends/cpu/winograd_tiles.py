"""Which convolutions Winograd's minimal filtering computes, in which tiles."""

from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import FloatConv2d, Padding
from tilewright.cpu_gpu_backends.cpu.grouping import Group
from tilewright.cpu_gpu_backends.cpu.plans import MatrixPlan, WinogradPlan
from tilewright.cpu_gpu_backends.winograd import (
    LARGE_TILES,
    SMALL_TILES,
    Transforms,
    suitable_tiles,
    suits_winograd,
)


def winograd_transforms(graph: Graph, group: Group) -> Transforms | None:
    """Return the tiles for a group that is computed this way; None for any other group."""
    node = group.first
    if not isinstance(node.op, FloatConv2d) or node.inputs[1] not in graph.constants:
        return None
    if group.half or group.direct:
        return None
    _, height, width, _ = graph.tensors[group.output].shape
    if not suits_winograd(node.op, graph.constants[node.inputs[1]].shape, (height, width)):
        return None
    match group.plan:
        case WinogradPlan(outputs=outputs):
            return LARGE_TILES if outputs == LARGE_TILES.outputs else SMALL_TILES
        case MatrixPlan():
            return None
    return suitable_tiles((height, width))


def winograd_pads(op: FloatConv2d, size: tuple[int, int], tiles: Transforms) -> Padding:
    """Return the padding of an image whose result of `size` is rounded up to whole tiles."""
    top, left, bottom, right = op.pads
    more = tuple(-extent % tiles.outputs for extent in size)
    return top, left, bottom + more[0], right + more[1]
