"""The search space of each kernel on a processor: which plans there are to choose from."""

from collections.abc import Iterator
from itertools import product

from tilewright.compiler.graph import Graph
from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
from tilewright.cpu_gpu_backends.cpu.depthwise import channel_group
from tilewright.cpu_gpu_backends.cpu.grouping import Group, is_depthwise, is_product
from tilewright.cpu_gpu_backends.cpu.layouts import is_matrix_kernel
from tilewright.cpu_gpu_backends.cpu.plans import (
    DepthwisePlan,
    MatrixPlan,
    Outside,
    Plan,
    WinogradPlan,
)
from tilewright.cpu_gpu_backends.cpu.tiles import COLUMN_STEP, lanes, tile_rows
from tilewright.cpu_gpu_backends.cpu.winograd_tiles import winograd_transforms
from tilewright.cpu_gpu_backends.winograd import LARGE_TILES, SMALL_TILES

#: Vectors of a panel.
_PANEL_VECTORS = (2, 3, 4, 1, 6, 8)
#: Shares of the most positions of a tile that the registers allow.
_POSITION_SHARES = (1.0, 0.75, 0.5)
#: Loops: what is outside, and tiles of a block.
_LOOPS = (
    (Outside.PANELS, 1),
    (Outside.POSITIONS, 1),
    (Outside.POSITIONS, 4),
    (Outside.POSITIONS, 16),
)
_UNROLLS = (4, 8, 2, 1)
#: Bytes between the kernels of Winograd's algorithm, around the size of a second-level cache.
_BLOCK_BYTES = (640 << 10, 320 << 10, 1280 << 10, 4 << 20)
#: Outputs of a row of a depthwise convolution.
_COLUMNS = (7, 4, 5, 6, 8, 10, 14, 3, 2)
#: Channels of a depthwise convolution, in vectors.
_CHANNEL_VECTORS = (1, 2, 4)


def plans_of(graph: Graph, group: Group, target: CpuTarget) -> tuple[Plan, ...]:
    """Return the plans that a group can follow; none where there is nothing to choose."""
    node = group.first
    if not group.anchored:
        return ()
    if is_depthwise(graph, node):
        return tuple(_depthwise_plans(graph, group, target))
    if not is_product(graph, node) and not is_matrix_kernel(graph, group):
        return ()
    plans: list[Plan] = []
    if winograd_transforms(graph, group) is not None:
        plans += _winograd_plans(graph, group, target)
    return (*plans, *_matrix_plans(graph, group, target))


def _matrix_plans(graph: Graph, group: Group, target: CpuTarget) -> Iterator[MatrixPlan]:
    for (panel, positions), (outside, block), unroll in product(
        _tiles(graph, group, target), _LOOPS, _UNROLLS
    ):
        yield MatrixPlan(
            panel=panel, positions=positions, outside=outside, block=block, unroll=unroll
        )


def _winograd_plans(graph: Graph, group: Group, target: CpuTarget) -> Iterator[WinogradPlan]:
    for tiles, block_bytes, (panel, positions), unroll in product(
        (LARGE_TILES, SMALL_TILES), _BLOCK_BYTES, _tiles(graph, group, target), _UNROLLS
    ):
        yield WinogradPlan(
            outputs=tiles.outputs,
            block_bytes=block_bytes,
            panel=panel,
            positions=positions,
            unroll=unroll,
        )


def _tiles(graph: Graph, group: Group, target: CpuTarget) -> tuple[tuple[int, int], ...]:
    """Return widths of panels with positions of a tile that fit into the registers."""
    channels = graph.tensors[group.output].shape[-1]
    step = lanes(target)
    widths = []
    for vectors in _PANEL_VECTORS:
        # As many panels of that width as there must be, of equal and no greater width.
        count = -(-channels // (vectors * step))
        even = -(-channels // count)
        widths += [min(vectors * step, _rounded(channels)), _rounded(even)]
    return tuple(
        dict.fromkeys(
            (width, max(1, int(tile_rows(width, target) * share)))
            for width in dict.fromkeys(widths)
            for share in _POSITION_SHARES
        )
    )


def _rounded(columns: int) -> int:
    return -(-columns // COLUMN_STEP) * COLUMN_STEP


def _depthwise_plans(graph: Graph, group: Group, target: CpuTarget) -> Iterator[DepthwisePlan]:
    *_, width, channels = graph.tensors[group.output].shape
    counts = [vectors * lanes(target) for vectors in _CHANNEL_VECTORS]
    counts = [count for count in counts if channels % count == 0]
    for columns, count, outside in product(
        _COLUMNS, counts or [channel_group(channels, target)], Outside
    ):
        if columns <= width:
            yield DepthwisePlan(columns=columns, channels=count, outside=outside)
