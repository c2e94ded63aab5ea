"""DRAM regions of tiles of blocked tensors."""

from tilewright.compiler.lowering.emitter import MAX_EXTENT
from tilewright.compiler.lowering.tasks import DramRegion
from tilewright.compiler.lowering.tensors import BlockedTensor


def tile_region(
    tensor: BlockedTensor,
    *,
    group: int,
    block: int,
    blocks: int,
    row: int,
    rows: int,
    column: int,
    columns: int,
    entry_bytes: int,
    merge: bool,
) -> DramRegion:
    """Describe a tile: rows of `columns` pixels, `rows` of them, in `blocks` planes.

    With `merge`, rows that follow each other without a gap become one long row (a scratchpad sees
    the same entries), as far as a row count of the instruction reaches.
    """
    row_bytes = columns * tensor.pixel_bytes
    region = DramRegion(
        address=tensor.address_of(group, block, row, column),
        row_bytes=row_bytes,
        rows=rows,
        planes=blocks,
        row_stride=tensor.row_bytes,
        plane_stride=tensor.plane_bytes,
    )
    longest = MAX_EXTENT * entry_bytes
    if not merge or columns != tensor.shape.width or row_bytes * rows > longest:
        return region
    if rows == tensor.shape.height and row_bytes * rows * blocks <= longest:
        return DramRegion(address=region.address, row_bytes=row_bytes * rows * blocks)
    return DramRegion(
        address=region.address,
        row_bytes=row_bytes * rows,
        planes=blocks,
        plane_stride=tensor.plane_bytes,
    )
