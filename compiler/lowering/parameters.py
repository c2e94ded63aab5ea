"""Requantisation parameters and lane coefficients as entries of scratchpads."""

import numpy as np
import numpy.typing as npt

from tilewright.compiler.lowering.bindings import ConstantEntries
from tilewright.compiler.lowering.kernels import IntArray, Requantisation
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.integers import MULTIPLIER_BITS


def scales_of_channels(scale: Requantisation, config: AcceleratorConfig) -> ConstantEntries:
    """Return entries ``[layout block, part]`` of the parameters of all channels."""
    return _lanes(_words(scale, _padded(len(scale.bias), config)), (), config)


def scales_of_all(scales: list[Requantisation], config: AcceleratorConfig) -> ConstantEntries:
    """Return entries ``[scale]``, each with the parameters of its channel 0 in every lane."""
    words = np.concatenate([_words(scale, 1) for scale in scales])
    return ConstantEntries(entries=_bytes(np.tile(words, config.block_out)))


def coefficients_of_channels(coefficients: IntArray, config: AcceleratorConfig) -> ConstantEntries:
    """Return entries ``[layout block, part, tap]`` of coefficients ``[taps, channels]``."""
    taps, used = coefficients.shape
    padded = np.zeros((_padded(used, config), taps), dtype="<i2")
    padded[:used] = coefficients.T
    return _lanes(padded, (taps,), config)


def coefficients_of_all(coefficients: IntArray, config: AcceleratorConfig) -> ConstantEntries:
    """Return entries ``[tap]`` of coefficients ``[taps, 1]``, the same in every lane."""
    return ConstantEntries(
        entries=_bytes(np.repeat(coefficients.astype("<i2"), config.block_out, axis=1))
    )


def scale_words(bias: IntArray, multiplier: IntArray, shift: IntArray) -> npt.NDArray[np.uint32]:
    """Return the words ``[..., 2]`` of parameters: bias, and multiplier with shift."""
    scale = multiplier.astype(np.uint32) | (shift.astype(np.uint32) << MULTIPLIER_BITS)
    return np.stack([bias.astype(np.int32).view(np.uint32), scale], axis=-1).astype("<u4")


def _words(scale: Requantisation, channels: int) -> npt.NDArray[np.uint32]:
    """Return the words of the first `channels` channels, 0 beyond them."""
    words = scale_words(scale.bias, scale.multiplier, scale.shift)[:channels]
    return np.pad(words, ((0, channels - len(words)), (0, 0)))


def _lanes(
    channels: npt.NDArray[np.generic], taps: tuple[int, ...], config: AcceleratorConfig
) -> ConstantEntries:
    """Cut values by channel ``[channels, ...]`` to entries ``[layout block, part, taps]``."""
    blocks, lanes = len(channels) // config.layout_block, config.block_out
    split = channels.reshape(blocks, -1, lanes, channels.shape[1])
    ordered = split.transpose(0, 1, 3, 2) if taps else split
    return ConstantEntries(entries=_bytes(ordered.reshape(*split.shape[:2], *taps, -1)))


def _bytes(values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    """Return the bytes of arrays of entries, along the last axis."""
    flat = np.ascontiguousarray(values)
    return flat.view(np.uint8)


def _padded(channels: int, config: AcceleratorConfig) -> int:
    return -(-channels // config.layout_block) * config.layout_block
