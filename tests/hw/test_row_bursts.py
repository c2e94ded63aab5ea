"""Rows cut into bursts, against a model that walks over bytes."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tilewright.hw.row_bursts import RowBursts
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.presets import PYNQ, TINY

CONFIGS = (TINY.replace(burst_beats=4), TINY.replace(burst_beats=1, port_bits=256), PYNQ)


def bursts_of(transfer: dict[str, int], config: AcceleratorConfig) -> list[tuple[int, ...]]:
    """Address, beats less one, offset, ends_row, ends_transfer of every burst."""
    result = []
    for plane in range(transfer["planes"]):
        for row in range(transfer["rows"]):
            begin = transfer["address"]
            begin += plane * transfer["plane_stride"] + row * transfer["row_stride"]
            begin %= 1 << 32
            touched = range(begin, begin + transfer["row_bytes"])
            blocks = sorted({byte // config.burst_bytes for byte in touched})
            for block in blocks:
                mine = [byte for byte in touched if byte // config.burst_bytes == block]
                beats = sorted({byte // config.port_bytes for byte in mine})
                offset = mine[0] % config.port_bytes
                address = beats[0] * config.port_bytes % (1 << 32)
                result.append([address, len(beats) - 1, offset, block == blocks[-1], False])
    if result:
        result[-1][-1] = True
    return [tuple(item) for item in result]


@pytest.mark.parametrize("config", CONFIGS, ids=["short bursts", "single beats", "pynq"])
@pytest.mark.parametrize("stalls", [False, True])
def test_bursts_of_random_transfers(
    run_benches: Any, rng: np.random.Generator, config: AcceleratorConfig, stalls: bool
) -> None:
    unit = RowBursts(config, row_bytes_bits=20)
    size = 1 << 32
    transfers = [
        {
            "address": int(rng.choice([0, size - 4096, 4 * int(rng.integers(1000))])),
            "row_bytes": 4 * int(rng.choice([0, 1, 2, 3, 50])),
            "rows": int(rng.choice([0, 1, 1, 2, 3])),
            "planes": int(rng.choice([1, 1, 2, 3])),
            "row_stride": 4 * int(rng.integers(200)),
            "plane_stride": 4 * int(rng.integers(size // 4)),
        }
        for _ in range(60)
    ]
    taken: list[int] = []
    seen: list[tuple[int, tuple[int, ...]]] = []
    ended = False

    async def give(ctx: Any) -> None:
        nonlocal ended
        cycle = 0
        for transfer in transfers:
            ctx.set(unit.transfer.payload, transfer)
            ctx.set(unit.transfer.valid, 1)
            while not ctx.get(unit.transfer.ready):
                await ctx.tick()
                cycle += 1
            taken.append(cycle)
            await ctx.tick()
            cycle += 1
        ctx.set(unit.transfer.valid, 0)
        while not ctx.get(unit.transfer.ready):
            await ctx.tick()
        ended = True

    async def take(ctx: Any) -> None:
        cycle = 0
        while not ended:
            ready = not stalls or rng.random() < 0.5
            ctx.set(unit.burst.ready, ready)
            if ready and ctx.get(unit.burst.valid):
                burst = unit.burst.payload
                names = ("address", "length", "offset", "ends_row", "ends_transfer")
                seen.append((cycle, tuple(ctx.get(burst[name]) for name in names)))
            await ctx.tick()
            cycle += 1

    run_benches(unit, give, take)
    expected = [bursts_of(transfer, config) for transfer in transfers]
    assert [burst for _, burst in seen] == [burst for bursts in expected for burst in bursts]
    if not stalls:
        cycles = [
            start + 2 + number
            for start, bursts in zip(taken, expected, strict=True)
            for number in range(len(bursts))
        ]
        assert [cycle for cycle, _ in seen] == cycles
        pauses = [after - before for before, after in pairwise(taken)]
        assert pauses == [2 + len(bursts) for bursts in expected[:-1]]
