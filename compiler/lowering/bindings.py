"""What the inputs and outputs of a loop nest stand for: activations in DRAM, constants, weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.isa.config import AcceleratorConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DramView:
    """An activation tensor in DRAM, or the part of it from some block, row and column on."""

    name: str
    tensor: BlockedTensor
    block: int = 0
    row: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConstantEntries:
    """Entries of a constant, as the bytes of a scratchpad."""

    #: uint8 ``[..., bytes of an entry]``.
    entries: npt.NDArray[np.uint8]
    _parts: dict[tuple[int, ...], bytes] = field(default_factory=dict)

    def part(self, begins: tuple[int, ...], sizes: tuple[int, ...]) -> bytes:
        """Return the entries from `begins` on, row by row; the same bytes for the same part."""
        key = (*begins, *sizes)
        if key not in self._parts:
            where = (slice(b, b + n) for b, n in zip(begins, sizes, strict=True))
            self._parts[key] = self.entries[tuple(where)].tobytes()
        return self._parts[key]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightBlocks:
    """Weights in blocks, of which some are left out because all their values are zero."""

    #: int8 ``[..., block_out, block_in]``.
    tiles: npt.NDArray[np.int8]
    #: bool ``[...]``.
    present: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairView:
    """A tensor of int16, ``[group, block, row, column, part, lane]``, as pairs of bytes in DRAM."""

    #: Two pixels of it hold one of the int16.
    pairs: DramView


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """An activation tensor whose every element is the same; it lies nowhere in DRAM."""

    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Activation tensors along a first axis."""

    terms: tuple[DramView | Fill, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightTiles:
    """A tensor in DRAM that holds weights ``[group, row, block, part, block of inputs, part of
    inputs, block_out, block_in]``.

    Its blocks are the parts of the blocks of inputs, its columns the bytes of all tiles of outputs.
    """

    view: DramView
    config: AcceleratorConfig

    @property
    def tile_columns(self) -> int:
        """Columns that hold one tile."""
        config = self.config
        return config.block_out * config.block_in // config.layout_block


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightTerms:
    """Weights along a first axis; those of constants have axes of extent 1 for group and row."""

    terms: tuple[WeightTiles | WeightBlocks, ...]


Binding: TypeAlias = (
    DramView | ConstantEntries | WeightBlocks | PairView | Fill | Terms | WeightTiles | WeightTerms
)
Bindings: TypeAlias = Mapping[str, Binding]
