"""Numbers of bfloat16, the upper half of a float32; numpy has no such type and holds their bits."""

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

#: Bits of a significand, the hidden one included, and exponents of the least and largest numbers.
_SIGNIFICAND_BITS, _LEAST_EXPONENT = 8, -133
_LARGEST = math.ldexp(255, 120)


def nearest(value: float) -> float:
    """Return the number of bfloat16 that is nearest to `value`, of two the even one."""
    if not math.isfinite(value):
        return value
    _, exponent = math.frexp(value)
    place = max(exponent - _SIGNIFICAND_BITS, _LEAST_EXPONENT)
    rounded = math.copysign(math.ldexp(round(math.ldexp(value, -place)), place), value)
    return rounded if abs(rounded) <= _LARGEST else math.copysign(math.inf, value)


def to_bits(values: Array) -> Array:
    """Return the bits, uint16, of float32 numbers rounded to the nearest, half to even."""
    words = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (words + 0x7FFF + (words >> 16 & 1)) >> 16
    quiet = words >> 16 | 0x40
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def from_bits(bits: Array) -> Array:
    """Return the numbers, float32, whose bits are given."""
    numbers: Array = (bits.astype(np.uint32) << 16).view(np.float32)
    return numbers
