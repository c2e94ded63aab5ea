"""Encoding of requantisation parameters and lane coefficients as scratchpad entries."""

import numpy as np

from tilewright.compiler.lowering.kernels import IntArray, Requantisation
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.integers import MULTIPLIER_BITS
from tilewright.isa.memories import Memory, memory_shapes


def prm_entries(scale: Requantisation, config: AcceleratorConfig) -> bytes:
    """Encode the parameters of all channels, `block_out` per entry, whole layout blocks."""
    channels = _padded(len(scale.bias), config)
    words = np.zeros((channels, 2), dtype="<u4")
    used = len(scale.bias)
    words[:used, 0] = scale.bias.astype(np.int32).view(np.uint32)
    words[:used, 1] = scale.multiplier.astype(np.uint32) | (
        scale.shift.astype(np.uint32) << MULTIPLIER_BITS
    )
    return words.tobytes()


def splat_prm(scale: Requantisation, config: AcceleratorConfig) -> bytes:
    """Encode one entry with the parameters of channel 0 in every lane."""
    lanes = np.zeros(config.block_out, dtype=np.int64)
    return prm_entries(
        Requantisation(
            bias=lanes + scale.bias[0],
            multiplier=lanes + scale.multiplier[0],
            shift=lanes + scale.shift[0],
            zero_point=scale.zero_point,
            low=scale.low,
            high=scale.high,
        ),
        config,
    )[: memory_shapes(config)[Memory.PRM].entry_bytes]


def coefficient_entries(coefficients: IntArray, config: AcceleratorConfig) -> bytes:
    """Encode ``[taps, channels]`` as entries ``[block of block_out channels][tap]``."""
    taps, used = coefficients.shape
    channels = _padded(used, config)
    padded = np.zeros((taps, channels), dtype="<i2")
    padded[:, :used] = coefficients
    blocks = padded.reshape(taps, channels // config.block_out, config.block_out)
    return np.ascontiguousarray(blocks.transpose(1, 0, 2)).tobytes()


def splat(coefficients: IntArray, config: AcceleratorConfig) -> IntArray:
    """Repeat ``[taps, 1]`` for every lane; leave ``[taps, channels]`` as it is."""
    if coefficients.shape[1] > 1:
        return coefficients
    return np.repeat(coefficients, config.block_out, axis=1)


def _padded(channels: int, config: AcceleratorConfig) -> int:
    return -(-channels // config.layout_block) * config.layout_block
