"""Tensors in scratchpads while code is generated: where they lie, or how they get there."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.compiler.lowering.bindings import (
    ConstantEntries,
    DramView,
    WeightBlocks,
    WeightTiles,
)
from tilewright.compiler.lowering.emitter import Emitter, Padding
from tilewright.compiler.lowering.regions import tile_region
from tilewright.compiler.lowering.scratchpads import Span
from tilewright.compiler.lowering.tasks import DramRegion
from tilewright.isa.memories import Memory, memory_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A tensor on chip: its entries lie row by row, the first one at index `origins`."""

    span: Span
    #: Extents of the axes in front of those of an entry.
    sizes: tuple[int, ...]
    origins: tuple[int, ...]

    @property
    def strides(self) -> tuple[int, ...]:
        """Entries from one index along each axis to the next."""
        return _strides(self.sizes)

    def entry(self, at: Sequence[int]) -> int:
        """Return the index of an entry in the scratchpad."""
        places = zip(at, self.origins, self.strides, strict=True)
        return self.span.begin + sum((index - first) * step for index, first, step in places)


def _strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(sizes[axis + 1 :]) for axis in range(len(sizes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TileLoad:
    """A tile of activations that is loaded when something reads it, unless it is still there.

    A tile is known by what it holds: every tensor is written once, before anything reads it.
    """

    memory: Memory
    view: DramView
    group: int
    block: int
    blocks: int
    row: int
    rows: int
    column: int
    columns: int
    padding: Padding
    #: Extents of the axes of the tensor in the scratchpad, and the index of its first entry;
    #: `plane_axis` is the axis of the blocks.
    sizes: tuple[int, ...]
    origins: tuple[int, ...]
    plane_axis: int

    @property
    def strides(self) -> tuple[int, ...]:
        """Entries from one index along each axis to the next."""
        return _strides(self.sizes)

    def bring(
        self, emitter: Emitter, pinned: tuple[Span, ...] = (), planes: range | None = None
    ) -> Placed:
        """Load the tile, or some of its planes, away from the `pinned` spans."""
        chosen = range(self.blocks) if planes is None else planes
        tensor = self.view.tensor
        region = tile_region(
            tensor,
            group=self.group,
            block=self.view.block + self.block + chosen.start,
            blocks=len(chosen),
            row=min(self.row, tensor.shape.height - 1),
            rows=self.rows,
            column=min(self.column, tensor.shape.width - 1),
            columns=self.columns,
            entry_bytes=memory_shape(self.memory, emitter.config).entry_bytes,
            merge=not self.padding.any,
        )
        span = emitter.load_tile(
            self.memory, (self.view.name, region, self.padding), region, self.padding, pinned
        )
        sizes, origins = list(self.sizes), list(self.origins)
        sizes[self.plane_axis], origins[self.plane_axis] = len(chosen), chosen.start
        return Placed(span=span, sizes=tuple(sizes), origins=tuple(origins))


@dataclass(frozen=True, slots=True, kw_only=True)
class FillLoad:
    """Entries that all hold one value, made when something reads them, unless they are there."""

    memory: Memory
    value: int
    sizes: tuple[int, ...]
    origins: tuple[int, ...]
    #: The axis of the blocks.
    plane_axis: int

    @property
    def strides(self) -> tuple[int, ...]:
        """Entries from one index along each axis to the next."""
        return _strides(self.sizes)

    def bring(
        self, emitter: Emitter, pinned: tuple[Span, ...] = (), planes: range | None = None
    ) -> Placed:
        """Fill the entries, of all planes, away from the `pinned` spans."""
        span = emitter.load_fill(self.memory, self.value, math.prod(self.sizes), pinned)
        return Placed(span=span, sizes=self.sizes, origins=self.origins)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantLoad:
    """A part of a constant that is loaded when something reads it, unless it is still there."""

    memory: Memory
    constant: ConstantEntries
    begins: tuple[int, ...]
    sizes: tuple[int, ...]
    #: Extents of the axes of the tensor in the scratchpad, and the index of its first entry.
    layout: tuple[int, ...]
    origins: tuple[int, ...]

    def bring(self, emitter: Emitter, pinned: tuple[Span, ...] = ()) -> Placed:
        """Load the part, away from the `pinned` spans."""
        data = self.constant.part(self.begins, self.sizes)
        span = emitter.load_constant(self.memory, data, pinned)
        return Placed(span=span, sizes=self.layout, origins=self.origins)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightLoad:
    """A part of the weights; the products that read it say in which order it is loaded."""

    weights: WeightBlocks
    begins: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightTileLoad:
    """Weights that a tensor holds, loaded in the order in which products read them."""

    weights: WeightTiles
    begins: tuple[int, ...]

    def bring(self, emitter: Emitter, outputs: Sequence[int], inputs: range) -> Span:
        """Load the tiles of some blocks of outputs, one after the other, each with all `inputs`.

        Blocks are numbered with their parts, the outputs of equal parts follow each other evenly.
        """
        weights, config = self.weights, emitter.config
        tensor, group, row = weights.view.tensor, self.begins[1], self.begins[2]
        entry_bytes = memory_shape(Memory.WGT, config).entry_bytes
        parts = config.layout_block // config.block_out
        count = len(outputs) // parts if len(outputs) > parts else len(outputs)
        regions = []
        for first in range(0, len(outputs), count):
            numbers = outputs[first : first + count]
            column = numbers[0] * weights.tile_columns
            regions.append(
                DramRegion(
                    address=tensor.address_of(group, inputs.start, row, column),
                    row_bytes=entry_bytes,
                    rows=len(inputs),
                    planes=count,
                    row_stride=tensor.plane_bytes,
                    plane_stride=(numbers[-1] - numbers[0]) // max(count - 1, 1) * entry_bytes,
                )
            )
        return emitter.load_regions(Memory.WGT, weights.view.name, tuple(regions))


Buffer: TypeAlias = Placed | TileLoad | FillLoad | ConstantLoad | WeightLoad | WeightTileLoad
