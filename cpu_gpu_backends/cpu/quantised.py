"""Requantisation in floating point, exactly: what `tilewright.isa.integers` defines.

Adding 1.5 * 2**23 to a float32 number below 2**22 rounds it to a whole number, half to even; a
fused multiply-add rounds only once. So ``fma(total, factor, magic) - magic`` is the rounded product
of the integers' own definition as long as the total is exact in float32 and the product small
enough; in float64, with 1.5 * 2**52, that holds for every int32 total. The factor is the 24-bit
multiplier times ``2**-shift``, exact in both.

Values are kept *as stored*: a whole number in 0..255, the int8 value and 128.
"""

from dataclasses import dataclass

import numpy as np

from tilewright.compiler.tensor.build import call, cast, constant, maximum, minimum
from tilewright.compiler.tensor.expressions import Cast, Expr, literal
from tilewright.compiler.tensor.operations import Function
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.cpu.program import Array

FLOAT32, FLOAT64, INT32 = ScalarType.FLOAT32, ScalarType.FLOAT64, ScalarType.INT32

#: What a stored value is more than the int8 value.
STORED_OFFSET = 128
#: Whole numbers up to this magnitude are exact in float32 (24-bit significand).
EXACT_FLOAT32 = 1 << 24
_MAGIC = {FLOAT32: 1.5 * 2**23, FLOAT64: 1.5 * 2**52}
#: Products of a smaller magnitude are rounded by `_MAGIC` in float32.
_ROUNDED_FLOAT32 = 1 << 22


def rounding_type(bound: int, factors: Array) -> ScalarType:
    """Return the type in which totals up to `bound` in magnitude, times `factors`, are exact."""
    largest = float(np.max(factors, initial=0.0))
    fits = bound <= EXACT_FLOAT32 and bound * largest < _ROUNDED_FLOAT32 - 1
    return FLOAT32 if fits else FLOAT64


def scale_factors(multiplier: Array, shift: Array) -> Array:
    """Return ``multiplier * 2**-shift`` in float64, exactly."""
    factors: Array = np.ldexp(np.asarray(multiplier, np.float64), -np.asarray(shift, np.int64))
    return factors


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Zero point and limits of a result, as int8 values."""

    zero_point: int
    low: int
    high: int


def requantised(total: Expr, factor: Expr | float, result: Range, dtype: ScalarType) -> Expr:
    """Return the stored value of a total, a whole number in float32 or int32.

    Parameters
    ----------
    factor
        The scale: a number, or an expression of type `dtype`.
    dtype
        What `rounding_type` said.
    """
    magic, stored_zero = _MAGIC[dtype], result.zero_point + STORED_OFFSET
    # An even number can be added before rounding, which takes halves to the even neighbour.
    early = stored_zero if stored_zero % 2 == 0 else 0
    late = stored_zero - early
    steps = call(
        Function.FUSED_MULTIPLY_ADD,
        cast(total, dtype),
        literal(factor, dtype),
        constant(magic + early, dtype),
    )
    # Limited before the magic number is taken off: then code generation can take the low byte.
    low, high = (magic + limit + STORED_OFFSET - late for limit in (result.low, result.high))
    limited = minimum(maximum(steps, low), high)
    return cast(limited - (magic - late), FLOAT32)


def stored_value(element: Expr) -> Expr:
    """Return an element of a stored tensor as a whole number in float32."""
    return cast(element, FLOAT32)


def stored_element(value: Expr) -> Expr:
    """Return a whole number in float32 as an element of a stored tensor."""
    match value:
        case Cast(operand=operand) if operand.dtype is ScalarType.UINT8:
            return operand
    return cast(cast(value, INT32), ScalarType.UINT8)


def weighted_sum(terms: tuple[tuple[Expr, int], ...], bias: int, largest: int) -> tuple[Expr, int]:
    """Return ``sum(value * coefficient) + bias`` exactly, and a bound of its magnitude.

    Parameters
    ----------
    terms
        Whole numbers in float32, from 0 to `largest`, with coefficients.
    """
    bound = _largest_partial_sum([factor * largest for _, factor in terms], bias)
    if bound <= EXACT_FLOAT32:
        total: Expr = constant(float(bias), FLOAT32)
        for value, factor in terms:
            total = call(
                Function.FUSED_MULTIPLY_ADD, value, constant(float(factor), FLOAT32), total
            )
        return total, bound
    whole: Expr = constant(bias, INT32)
    for value, factor in terms:
        whole = whole + cast(value, INT32) * factor
    return whole, bound


def _largest_partial_sum(extremes: list[int], bias: int) -> int:
    """Return the largest magnitude of `bias` and terms added to it, each from 0 to its extreme."""
    low = high = bias
    bound = abs(bias)
    for extreme in extremes:
        low, high = low + min(0, extreme), high + max(0, extreme)
        bound = max(bound, -low, high)
    return bound
