"""Packing of convolution weights into the blocks that the array multiplies."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.compiler.lowering.kernels import IntArray
from tilewright.isa.config import AcceleratorConfig

#: Share of blocks that are not all zero above which every block is kept, for regular loops.
_DENSE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockProducts:
    """The products that one block of output channels needs."""

    #: int64 ``[n, 3]``: input block of `block_in` channels, kernel row, kernel column.
    positions: npt.NDArray[np.int64]
    #: int8 ``[n, block_out, block_in]``.
    tiles: npt.NDArray[np.int8]

    def within(self, begin: int, end: int) -> "BlockProducts":
        """Keep the products of input blocks `begin` to `end - 1`."""
        chosen = (self.positions[:, 0] >= begin) & (self.positions[:, 0] < end)
        return BlockProducts(positions=self.positions[chosen], tiles=self.tiles[chosen])

    def part(self, begin: int, end: int) -> "BlockProducts":
        """Keep products `begin` to `end - 1`."""
        return BlockProducts(positions=self.positions[begin:end], tiles=self.tiles[begin:end])


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeights:
    """All products of a convolution, by block of output channels."""

    blocks: tuple[BlockProducts, ...]
    #: Every block of output channels reads every block of input channels.
    dense: bool

    @property
    def products(self) -> int:
        """Products per output pixel."""
        return sum(len(block.positions) for block in self.blocks)


def pack_weights(weights: IntArray, groups: int, config: AcceleratorConfig) -> PackedWeights:
    """Cut weights ``[O, kh, kw, I / groups]`` in blocks of ``block_out x block_in``.

    Values outside int8 (weights that had a zero point) are split in addends, of which all but the
    first are mostly zero. Blocks that are all zero are left out where few others remain (grouped
    convolutions, selections of channels), and in the further addends.
    """
    blocked = _blocked(_ungrouped(weights, groups), config)
    addends = _int8_addends(blocked)
    present = _nonzero(addends[0])
    dense = bool(present.mean() > _DENSE)
    if dense:
        present = np.ones_like(present)
    else:
        present[~np.any(present, axis=(1, 2, 3)), 0, 0, 0] = True
    chosen = [present, *(_nonzero(addend) for addend in addends[1:])]
    blocks = []
    for number in range(blocked.shape[0]):
        positions = [np.argwhere(mask[number]) for mask in chosen]
        tiles = np.concatenate(
            [
                addend[number][tuple(where.T)]
                for addend, where in zip(addends, positions, strict=True)
            ]
        )
        merged = np.concatenate(positions)
        order = np.argsort(merged[:, 0], kind="stable")
        blocks.append(BlockProducts(positions=merged[order], tiles=tiles[order]))
    return PackedWeights(blocks=tuple(blocks), dense=dense)


def _nonzero(blocked: npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
    """Tell which blocks hold anything but zeros."""
    return np.asarray(np.any(blocked, axis=(-2, -1)))


def _int8_addends(weights: IntArray) -> list[npt.NDArray[np.int8]]:
    """Split integers in int8 addends, as few as the largest needs."""
    addends: list[npt.NDArray[np.int8]] = []
    rest = weights
    while not addends or rest.any():
        addend = np.clip(rest, -128, 127)
        addends.append(addend.astype(np.int8))
        rest = rest - addend
    return addends


def _ungrouped(weights: IntArray, groups: int) -> IntArray:
    """Spread grouped weights over all input channels, zero elsewhere."""
    if groups == 1:
        return weights.astype(np.int16)
    outputs, height, width, per_group = weights.shape
    whole = np.zeros((outputs, height, width, per_group * groups), dtype=np.int16)
    per_output = outputs // groups
    for group in range(groups):
        rows = slice(group * per_output, (group + 1) * per_output)
        whole[rows, :, :, group * per_group : (group + 1) * per_group] = weights[rows]
    return whole


def _blocked(weights: IntArray, config: AcceleratorConfig) -> IntArray:
    """Reorder to ``[output block, input block, kh, kw, block_out, block_in]``, zero-padded."""
    outputs, height, width, inputs = weights.shape
    block_out, block_in = config.block_out, config.block_in
    out_channels = -(-outputs // config.layout_block) * config.layout_block
    in_channels = -(-inputs // block_in) * block_in
    padded = np.zeros((out_channels, height, width, in_channels), dtype=np.int16)
    padded[:outputs, :, :, :inputs] = weights
    split = padded.reshape(
        out_channels // block_out, block_out, height, width, in_channels // block_in, block_in
    )
    blocked: IntArray = split.transpose(0, 4, 2, 3, 1, 5)
    return blocked
