"""Packing of convolution weights into the blocks that the array multiplies."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.compiler.lowering.kernels import IntArray
from tilewright.isa.config import AcceleratorConfig

#: Share of blocks that are not all zero above which every block is kept, for regular loops.
_DENSE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedWeights:
    """Weights of a convolution in blocks; those that are not present hold nothing but zeros.

    The axes in front of a block's are ``[output block, part, input block, part, addend, ky, kx]``,
    blocks being layout blocks.
    """

    #: int8 ``[..., block_out, block_in]``.
    tiles: npt.NDArray[np.int8]
    #: bool ``[...]``.
    present: npt.NDArray[np.bool_]
    #: Every block of output channels reads every block of input channels.
    dense: bool

    @property
    def addends(self) -> int:
        """How many int8 values add up to a weight."""
        return int(self.tiles.shape[4])

    @property
    def products(self) -> int:
        """Products per output pixel."""
        return int(self.present.sum())

    @property
    def most_products(self) -> int:
        """Most products per output pixel that a block of output channels has."""
        return int(self.present.sum(axis=(2, 3, 4, 5, 6)).max())

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """First and last layout block of input channels that each one of output channels reads."""
        reads = np.asarray(self.present.any(axis=(1, 3, 4, 5, 6)))
        first, behind = reads.argmax(axis=1), reads[:, ::-1].argmax(axis=1)
        last = reads.shape[1] - 1 - behind
        return tuple(zip(first.tolist(), last.tolist(), strict=True))


def pack_weights(
    weights: IntArray,
    groups: int,
    config: AcceleratorConfig,
    taps: npt.NDArray[np.bool_] | None = None,
) -> PackedWeights:
    """Cut weights ``[O, kh, kw, I / groups]`` in blocks of ``block_out x block_in``.

    Values outside int8 (weights that had a zero point) are split in addends, of which all but the
    first are mostly zero. Blocks that are all zero are left out where few others remain (grouped
    convolutions, selections of channels), and in the further addends. `taps` says which taps of the
    window exist, ``[phase rows, phase columns, kh, kw]``; the others are left out.
    """
    tiles = np.stack(_int8_addends(_blocked(_ungrouped(weights, groups), config)), axis=4)
    present = np.any(tiles, axis=(-2, -1))
    # Blocks that exist at all: the last layout block may not be full.
    outputs = _existing(present.shape[:2], weights.shape[0], config.block_out)
    inputs = _existing(present.shape[2:4], weights.shape[3] * groups, config.block_in)
    exist = (outputs[:, :, None, None] & inputs)[..., None, None]
    first = present[:, :, :, :, 0]
    if taps is None:
        dense = bool(first[np.broadcast_to(exist, first.shape)].mean() > _DENSE)
    else:
        dense = True
        phases = taps.reshape(-1, 1, 1, 1, *taps.shape[2:])
        exist = exist & np.repeat(phases, len(first) // len(phases), axis=0)
    if dense:
        first[...] = exist
    # Every block of output channels is written, if only with zeros.
    first[~first.any(axis=(2, 3, 4, 5)), 0, 0, 0, 0] = True
    return PackedWeights(tiles=tiles, present=present, dense=dense)


def _existing(shape: tuple[int, ...], channels: int, block: int) -> npt.NDArray[np.bool_]:
    """Tell which parts of layout blocks, ``[layout block, part]``, hold channels."""
    return np.asarray(np.arange(math.prod(shape)) < -(-channels // block)).reshape(shape)


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
    """Reorder to ``[output block, part, input block, part, kh, kw, block_out, block_in]``."""
    outputs, height, width, inputs = weights.shape
    layout = config.layout_block
    out_blocks, in_blocks = -(-outputs // layout), -(-inputs // layout)
    padded = np.zeros((out_blocks * layout, height, width, in_blocks * layout), dtype=np.int16)
    padded[:outputs, :, :, :inputs] = weights
    split = padded.reshape(
        out_blocks,
        -1,
        config.block_out,
        height,
        width,
        in_blocks,
        layout // config.block_in,
        config.block_in,
    )
    blocked: IntArray = split.transpose(0, 1, 5, 6, 3, 4, 2, 7)
    return blocked
