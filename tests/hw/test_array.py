"""The multiplier array against numpy, with and without two products per multiplier."""

from typing import Any

import numpy as np
import pytest

from tilewright.hw.array import MultiplierArray
from tilewright.isa.presets import TINY


def packed_int(values: np.ndarray[Any, Any]) -> int:
    return int.from_bytes(values.astype(np.int8).tobytes(), "little")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("batch", "block_in", "block_out"), [(1, 1, 1), (1, 4, 3), (1, 8, 4), (2, 4, 4)]
)
def test_sums_of_products(
    run_benches: Any,
    rng: np.random.Generator,
    packed: bool,
    batch: int,
    block_in: int,
    block_out: int,
) -> None:
    config = TINY.replace(block_in=4, block_out=4)
    object.__setattr__(config, "batch", batch)
    object.__setattr__(config, "block_in", block_in)
    object.__setattr__(config, "block_out", block_out)
    object.__setattr__(config, "packed_multipliers", packed)
    array = MultiplierArray(config)
    count = 200
    operands = rng.integers(-128, 128, (count, batch, block_in))
    weights = rng.integers(-128, 128, (count, block_out, block_in))
    corners = [-128, -1, 0, 127]
    operands[:64] = rng.choice(corners, (64, batch, block_in))
    weights[:64] = rng.choice(corners, (64, block_out, block_in))
    stages = 2 + (block_in - 1).bit_length()
    sums: list[list[int]] = []

    async def bench(ctx: Any) -> None:
        for cycle in range(count + stages):
            if cycle < count:
                ctx.set(array.operands, packed_int(operands[cycle]))
                ctx.set(array.weights, packed_int(weights[cycle]))
            if cycle >= stages:
                sums.append([ctx.get(item) for item in array.sums])
            await ctx.tick()

    run_benches(array, bench)
    products = np.einsum("sbi,soi->sbo", operands, weights).reshape(count, -1)
    assert np.array_equal(np.array(sums), products)
