"""Requantisation in floating point against the definition in whole numbers."""

import numpy as np
import pytest

from tilewright.compiler.tensor.build import cast
from tilewright.compiler.tensor.declare import compute, placeholder
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.cpu_gpu_backends.codegen.single_nest import compile_nest
from tilewright.cpu_gpu_backends.codegen.target import host_target
from tilewright.cpu_gpu_backends.cpu.quantised import (
    EXACT_FLOAT32,
    STORED_OFFSET,
    Range,
    requantised,
    rounding_type,
    scale_factors,
    stored_element,
)
from tilewright.isa.integers import requantize, split_scale

COUNT = 1 << 14


def check(
    totals: np.ndarray, multiplier: int, shift: int, result: Range, dtype: ScalarType
) -> None:
    """Requantise all totals in `dtype` and compare with the definition."""
    factor = float(scale_factors(np.array(multiplier), np.array(shift)))
    given = placeholder(totals.shape, ScalarType.INT32, "totals")
    out = compute(
        totals.shape,
        lambda i: stored_element(
            requantised(cast(given[i], ScalarType.INT32), factor, result, dtype)
        ),
        "out",
    )
    schedule = Schedule(out)
    schedule.vectorize("out", "i")
    (found,) = compile_nest(lower(schedule), host_target()).run({"totals": totals}).values()
    expected = requantize(
        totals.astype(np.int64),
        0,
        multiplier,
        shift,
        zero_point=result.zero_point,
        low=result.low,
        high=result.high,
    )
    np.testing.assert_array_equal(found.astype(np.int32) - STORED_OFFSET, expected)


@pytest.mark.parametrize("seed", range(6))
def test_float32_rounds_as_whole_numbers_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    multiplier, shift = (int(part) for part in split_scale(np.float32(rng.uniform(1e-5, 0.2))))
    factor = scale_factors(np.array(multiplier), np.array(shift))
    assert rounding_type(EXACT_FLOAT32, factor) is ScalarType.FLOAT32
    ends = [-EXACT_FLOAT32, -EXACT_FLOAT32 + 1, -1, 0, 1, EXACT_FLOAT32 - 1, EXACT_FLOAT32]
    totals = np.concatenate([rng.integers(-EXACT_FLOAT32, EXACT_FLOAT32, COUNT), ends])
    low, high = sorted(rng.integers(-128, 128, 2).tolist())
    result = Range(zero_point=int(rng.integers(-128, 128)), low=low, high=high)
    check(totals.astype(np.int32), multiplier, shift, result, ScalarType.FLOAT32)


@pytest.mark.parametrize("shift", [1, 4, 9])
def test_ties_go_to_even(shift: int) -> None:
    totals = np.arange(-(1 << 12), 1 << 12, dtype=np.int32)
    multiplier, places = (int(part) for part in split_scale(np.float32(2.0**-shift)))
    for zero_point in (-128, -3, 0, 64):
        result = Range(zero_point=zero_point, low=-128, high=127)
        for dtype in (ScalarType.FLOAT32, ScalarType.FLOAT64):
            check(totals, multiplier, places, result, dtype)


@pytest.mark.parametrize("seed", range(4))
def test_float64_rounds_every_total(seed: int) -> None:
    rng = np.random.default_rng(seed)
    multiplier = int(rng.integers(1 << 23, 1 << 24))
    shift = int(rng.integers(20, 56))
    totals = rng.integers(-(2**31), 2**31, COUNT).astype(np.int32)
    totals[:2] = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    result = Range(zero_point=int(rng.integers(-128, 128)), low=-128, high=127)
    check(totals, multiplier, shift, result, ScalarType.FLOAT64)


def test_large_sums_and_large_scales_take_float64() -> None:
    small = np.array([2.0**-10])
    assert rounding_type(EXACT_FLOAT32, small) is ScalarType.FLOAT32
    assert rounding_type(EXACT_FLOAT32 + 1, small) is ScalarType.FLOAT64
    assert rounding_type(EXACT_FLOAT32, np.array([0.25])) is ScalarType.FLOAT64
