"""Integer arithmetic of quantised tensors: the one definition of requantisation.

The scale of a requantisation is the float32 number ``x_scale * w_scale / y_scale``. It is held as
its 24-bit mantissa and an exponent, so the product with an int32 accumulator is exact and only the
final rounding (half to even, as IEEE 754 and ONNX QuantizeLinear round) remains.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

IntArray: TypeAlias = npt.NDArray[np.signedinteger[Any]]

#: Width of the multiplier: a float32 significand, hidden bit included (IEEE 754-2019, binary32).
MULTIPLIER_BITS = 24
#: Width of the right shift.
SHIFT_BITS = 6
#: Largest right shift.
MAX_SHIFT = (1 << SHIFT_BITS) - 1


def split_scale(scale: npt.ArrayLike) -> tuple[IntArray, IntArray]:
    """Split float32 scales into multiplier and shift, ``scale == multiplier * 2.0**-shift``.

    Parameters
    ----------
    scale
        Finite scales, zero or positive, any shape; rounded to float32 first.

    Returns
    -------
    multiplier, shift
        int64 arrays of the same shape; ``2**23 <= multiplier < 2**24`` (0 for a scale too small
        to move any int32 accumulator off zero) and ``0 <= shift <= 63``.

    Raises
    ------
    ValueError
        If a scale is negative, not finite, or 2**24 or more.
    """
    scales = np.asarray(scale, dtype=np.float32)
    if not np.all(np.isfinite(scales)) or np.any(scales < 0) or np.any(scales >= 2.0**24):
        raise ValueError(f"scale must be finite, at least 0 and below 2**24, not {scale!r}")
    mantissa, exponent = np.frexp(scales.astype(np.float64))
    multiplier = (mantissa * 2.0**MULTIPLIER_BITS).astype(np.int64)
    shift = MULTIPLIER_BITS - exponent.astype(np.int64)
    tiny = (shift > MAX_SHIFT) | (multiplier == 0)
    return np.where(tiny, 0, multiplier), np.where(tiny, 0, shift)


def round_shift(value: IntArray, shift: IntArray | int) -> IntArray:
    """Divide int64 values by ``2**shift``, rounding half to even."""
    shifts = np.asarray(shift, dtype=np.int64)
    below_half = np.where(shifts > 0, (np.int64(1) << np.maximum(shifts - 1, 0)) - 1, 0)
    odd = np.where(shifts > 0, (value >> shifts) & 1, 0)
    rounded: IntArray = (value + below_half + odd) >> shifts
    return rounded


def requantize(
    accumulator: IntArray,
    bias: IntArray | int,
    multiplier: IntArray | int,
    shift: IntArray | int,
    *,
    zero_point: int,
    low: int,
    high: int,
) -> npt.NDArray[np.int8]:
    """Scale int32 accumulators to int8.

    ``clip(round_half_even((accumulator + bias) * multiplier * 2**-shift) + zero_point, low, high)``

    Parameters
    ----------
    accumulator
        int32 values, channels last.
    bias, multiplier, shift
        Scalars or one value per channel: int32, ``0 <= multiplier < 2**24``, ``0 <= shift < 64``.
    zero_point, low, high
        int8 values of the result.
    """
    total = np.asarray(accumulator, dtype=np.int64) + np.asarray(bias, dtype=np.int64)
    scaled = round_shift(total * np.asarray(multiplier, dtype=np.int64), shift)
    return np.clip(scaled + zero_point, low, high).astype(np.int8)
