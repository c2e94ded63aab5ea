"""Tiles of an output plane and the windows that they read."""

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.compiler.lowering.emitter import Padding
from tilewright.compiler.lowering.kernels import Extent, Window
from tilewright.compiler.lowering.regions import tile_region
from tilewright.compiler.lowering.tasks import DramRegion
from tilewright.compiler.lowering.tensors import BlockedTensor, TensorShape
from tilewright.isa.config import AcceleratorConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Output rows and columns, and the part of the source image that they read."""

    row: int
    rows: int
    column: int
    columns: int
    source_rows: Extent
    source_columns: Extent

    @property
    def positions(self) -> int:
        """Output pixels."""
        return self.rows * self.columns


def tiles(
    window: Window, source: TensorShape, size: tuple[int, int], tile: tuple[int, int]
) -> Iterator[Tile]:
    """Cut an output plane of `size` in tiles of at most `tile` rows and columns, in row order."""
    for row in range(0, size[0], tile[0]):
        rows = min(tile[0], size[0] - row)
        for column in range(0, size[1], tile[1]):
            columns = min(tile[1], size[1] - column)
            yield Tile(
                row=row,
                rows=rows,
                column=column,
                columns=columns,
                source_rows=window.span(0, row, rows, source.height),
                source_columns=window.span(1, column, columns, source.width),
            )


def source_of(
    tile: Tile,
    tensor: BlockedTensor,
    *,
    group: int,
    block: int,
    blocks: int,
    entry_bytes: int,
    pad_value: int,
) -> tuple[DramRegion, Padding]:
    """Return what a tile reads of some blocks of its source, and the padding around it."""
    rows, columns = tile.source_rows, tile.source_columns
    entries_per_pixel = tensor.pixel_bytes // entry_bytes
    padding = Padding(
        left=columns.pad_before * entries_per_pixel,
        right=columns.pad_after * entries_per_pixel,
        top=rows.pad_before,
        bottom=rows.pad_after,
        value=pad_value,
    )
    region = tile_region(
        tensor,
        group=group,
        block=block,
        blocks=blocks,
        row=min(rows.begin, tensor.shape.height - 1),
        rows=rows.count,
        column=min(columns.begin, tensor.shape.width - 1),
        columns=columns.count,
        entry_bytes=entry_bytes,
        merge=not padding.any,
    )
    return region, padding


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One tile of an output tensor: a group of images, some layout blocks, rows and columns."""

    group: int
    block: int
    blocks: int
    tile: Tile

    def region(
        self,
        tensor: BlockedTensor,
        config: AcceleratorConfig,
        *,
        target: tuple[int, int, int] = (0, 0, 0),
    ) -> DramRegion:
        """Describe the place in a tensor of lane entries, moved by blocks, rows and columns."""
        block, row, column = target
        return tile_region(
            tensor,
            group=self.group,
            block=block + self.block,
            blocks=self.blocks,
            row=row + self.tile.row,
            rows=self.tile.rows,
            column=column + self.tile.column,
            columns=self.tile.columns,
            entry_bytes=config.lane_entry_bytes,
            merge=True,
        )
