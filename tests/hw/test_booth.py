"""Products of look-up tables against exact integers."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Const, Module, Signal, signed

from tilewright.hw.booth import booth_rows, sum_staged, sum_tree
from tilewright.hw.component import Unit


class Product(Unit):
    """One product, at once and a cycle later."""

    def __init__(self, bits: tuple[int, int]) -> None:
        super().__init__({})
        self.factors = tuple(Signal(signed(width)) for width in bits)
        self.at_once = Signal(signed(sum(bits)))
        self.later = Signal(signed(sum(bits)))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rows = booth_rows(*self.factors)
        m.d.comb += [
            self.at_once.eq(sum_tree(m, rows, name="sum")),
            self.later.eq(sum_staged(m, Const(1), rows, name="product")),
        ]
        return m


@pytest.mark.parametrize("bits", [(3, 1), (4, 5), (16, 9), (25, 16), (25, 18)])
def test_products_are_exact(
    run_benches: Any, rng: np.random.Generator, bits: tuple[int, int]
) -> None:
    unit = Product(bits)
    limits = [1 << width - 1 for width in bits]
    corners = product(*({-n, -n + 1, -1, 0, max(0, n - 1)} for n in limits))
    drawn = [tuple(int(rng.integers(-n, n)) for n in limits) for _ in range(300)]
    cases = [*corners, *drawn]
    results: list[tuple[int, int]] = []

    async def bench(ctx: Any) -> None:
        for case in cases:
            for signal, value in zip(unit.factors, case, strict=True):
                ctx.set(signal, value)
            at_once = ctx.get(unit.at_once)
            await ctx.tick()
            results.append((at_once, ctx.get(unit.later)))

    run_benches(unit, bench)
    assert results == [(a * b, a * b) for a, b in cases]
