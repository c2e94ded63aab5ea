"""Requantisation against exact rational arithmetic and against the float32 scale."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.isa.integers import (
    MAX_SHIFT,
    MULTIPLIER_BITS,
    requantize,
    round_shift,
    split_scale,
)

int32 = st.integers(-(2**31), 2**31 - 1)
multipliers = st.integers(0, 2**MULTIPLIER_BITS - 1)
shifts = st.integers(0, MAX_SHIFT)
int8 = st.integers(-128, 127)


@given(int32, int32, multipliers, shifts, int8, int8, int8)
def test_requantize_is_exact(
    acc: int, bias: int, multiplier: int, shift: int, zero: int, low: int, high: int
) -> None:
    exact = round(Fraction((acc + bias) * multiplier, 1 << shift))  # half to even
    low, high = min(low, high), max(low, high)
    result = requantize(
        np.array([acc]), bias, multiplier, shift, zero_point=zero, low=low, high=high
    )
    assert result.dtype == np.int8
    assert result[0] == min(max(exact + zero, low), high)


@pytest.mark.parametrize(
    ("value", "rounded"), [(1, 0), (3, 2), (5, 2), (7, 4), (-1, 0), (-3, -2), (-5, -2), (2, 1)]
)
def test_halves_go_to_the_even_neighbour(value: int, rounded: int) -> None:
    assert round_shift(np.array([value]), 1)[0] == rounded


@given(st.floats(2.0**-39, 2.0**23, width=32))
def test_a_scale_is_its_multiplier_and_shift(scale: float) -> None:
    multiplier, shift = split_scale(scale)
    assert Fraction(int(multiplier), 1 << int(shift)) == Fraction(scale)
    assert 2 ** (MULTIPLIER_BITS - 1) <= multiplier < 2**MULTIPLIER_BITS


def test_scales_that_move_nothing_become_zero() -> None:
    multiplier, shift = split_scale(np.array([0.0, 1e-30, 2.0**-41]))
    assert multiplier.tolist() == [0, 0, 0]
    assert shift.tolist() == [0, 0, 0]


@pytest.mark.parametrize("scale", [-1.0, np.nan, np.inf, 2.0**24])
def test_scales_without_meaning_are_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="scale must be finite, at least 0 and below"):
        split_scale(scale)
