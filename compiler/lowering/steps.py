"""Steps of a schedule: what one tile reads and writes, by rows, and how its tasks are emitted."""

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.compiler.lowering.emitter import Emitter


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRange:
    """Rows of an activation tensor, all columns and channels."""

    tensor: str
    #: Group of images.
    group: int
    begin: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TileStep:
    """One tile of a kernel."""

    reads: tuple[RowRange, ...]
    writes: RowRange
    #: Columns times layout blocks that the tile writes in each of its rows.
    share: int
    #: Appends the tasks of the tile.
    emit: Callable[[Emitter], None]
