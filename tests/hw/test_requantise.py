"""One requantisation lane against exact fractions."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tilewright.hw.requantise import REQUANTISE_STAGES, RequantiseLane
from tilewright.isa.integers import MAX_SHIFT, MULTIPLIER_BITS

INT32 = (-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 1)


def cases(rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Run, bias, multiplier, shift, zero point, low, high."""
    corners = [
        (run, bias, multiplier, shift, 0, -128, 127)
        for run in INT32
        for bias in (-(2**31), 0, 2**31 - 1)
        for multiplier in (0, 1, 2**23, 2**24 - 1)
        for shift in (0, 1, 7, 8, 31, 32, MAX_SHIFT)
    ]
    ties = [(run, 0, 1, 1, 0, -128, 127) for run in range(-9, 10)]
    ties += [(run << 7, 0, 3, 8, 5, -128, 127) for run in range(-9, 10)]
    drawn = []
    for _ in range(400):
        shift = int(rng.integers(20, 45))
        size = min(31, max(4, shift - MULTIPLIER_BITS + 9))
        low, high = sorted(rng.integers(-128, 128, 2).tolist())
        drawn.append(
            (
                int(rng.integers(-(1 << size), 1 << size)),
                int(rng.integers(-1000, 1000)),
                int(rng.integers(1 << 23, 1 << 24)),
                shift,
                int(rng.integers(-128, 128)),
                low,
                high,
            )
        )
    return corners + ties + drawn


def expected(case: tuple[int, ...]) -> int:
    run, bias, multiplier, shift, zero_point, low, high = case
    rounded = round(Fraction((run + bias) * multiplier, 1 << shift))
    return min(max(rounded + zero_point, low), high)


@pytest.mark.parametrize("multipliers", [0, 1, 2])
def test_results_are_exact(run_benches: Any, rng: np.random.Generator, multipliers: int) -> None:
    lane = RequantiseLane(multipliers)
    drawn = cases(rng)
    results: list[int] = []
    raw: list[int] = []

    async def bench(ctx: Any) -> None:
        ctx.set(lane.valid, -1)
        for cycle in range(len(drawn) + REQUANTISE_STAGES):
            if cycle < len(drawn):
                run, bias, multiplier, shift, *_ = drawn[cycle]
                ctx.set(lane.run, run)
                parameters = {"bias": bias, "multiplier": multiplier, "shift": shift, "unused": 0}
                ctx.set(lane.parameters, parameters)
            if 0 <= cycle - 7 < len(drawn):
                ctx.set(lane.zero_point, drawn[cycle - 7][4])
            if 0 <= cycle - 8 < len(drawn):
                ctx.set(lane.low, drawn[cycle - 8][5])
                ctx.set(lane.high, drawn[cycle - 8][6])
            if cycle >= REQUANTISE_STAGES:
                results.append(ctx.get(lane.result))
                raw.append(ctx.get(lane.raw))
            await ctx.tick()

    run_benches(lane, bench)
    assert results == [expected(case) for case in drawn]
    floors = [((run + bias) * factor) >> shift for run, bias, factor, shift, *_ in drawn]
    assert [value & 0xFFFF_FFFF for value in raw] == [value & 0xFFFF_FFFF for value in floors]
