"""Which convolutions Winograd's minimal filtering computes, in which tiles."""

from dataclasses import dataclass
from typing import TypeAlias

from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import FloatConv2d, Padding
from tilewright.cpu_gpu_backends.cpu.grouping import Group
from tilewright.cpu_gpu_backends.cpu.plans import MatrixPlan, WinogradPlan

Matrix: TypeAlias = tuple[tuple[float, ...], ...]

#: Fewer channels do not fill the lanes, smaller images not the tiles.
_FEWEST_CHANNELS, _SMALLEST_IMAGE = 16, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Transforms:
    """The matrices of one tile size: of the image, of the weights, of the result."""

    outputs: int
    image: Matrix
    weights: Matrix
    result: Matrix

    @property
    def inputs(self) -> int:
        """Rows and columns of the image that a tile reads."""
        return self.outputs + 2


#: F(4 x 4, 3 x 3), interpolated at 0, 1, -1, 2, -2 and infinity, and F(2 x 2, 3 x 3), at 0, 1, -1
#: and infinity.
LARGE_TILES = Transforms(
    outputs=4,
    image=(
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
    weights=(
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
    result=((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
)
SMALL_TILES = Transforms(
    outputs=2,
    image=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1)),
    weights=((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    result=((1, 1, 1, 0), (0, 1, -1, 1)),
)


def winograd_transforms(graph: Graph, group: Group) -> Transforms | None:
    """Return the tiles for a group that is computed this way; None for any other group."""
    node = group.first
    if not isinstance(node.op, FloatConv2d) or node.inputs[1] not in graph.constants:
        return None
    if group.half or group.direct:
        return None
    op, weights = node.op, graph.constants[node.inputs[1]]
    outputs, rows, columns, channels = weights.shape
    _, height, width, _ = graph.tensors[group.output].shape
    plain = op.groups == 1 and op.stride == op.dilation == (1, 1) and (rows, columns) == (3, 3)
    large = min(outputs, channels) >= _FEWEST_CHANNELS and min(height, width) >= _SMALLEST_IMAGE
    if not plain or not large:
        return None
    match group.plan:
        case WinogradPlan(outputs=outputs):
            return LARGE_TILES if outputs == LARGE_TILES.outputs else SMALL_TILES
        case MatrixPlan():
            return None
    # Where half of each large tile would lie outside, small ones compute less.
    return LARGE_TILES if min(height, width) > 8 else SMALL_TILES


def winograd_pads(op: FloatConv2d, size: tuple[int, int], tiles: Transforms) -> Padding:
    """Return the padding of an image whose result of `size` is rounded up to whole tiles."""
    top, left, bottom, right = op.pads
    more = tuple(-extent % tiles.outputs for extent in size)
    return top, left, bottom + more[0], right + more[1]
