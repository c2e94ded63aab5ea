"""Instruction fetch on a port that stalls at random, and its order and bursts."""

from collections import deque
from typing import Any

import numpy as np
import pytest

from tilewright.hw.fetch import Fetch
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import instruction_bytes
from tilewright.isa.presets import TINY, VTA
from tilewright.isa.timing import fetch_burst_instructions

CONFIGS = {
    "four beats per instruction": TINY,
    "eight beats per instruction": VTA,
    "one beat per instruction": TINY.replace(port_bits=256, fetch_entries=3),
    "two instructions per beat": TINY.replace(port_bits=512, burst_beats=2, fetch_entries=2),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_instructions_come_in_order(
    run_benches: Any, rng: np.random.Generator, config: AcceleratorConfig, share: float
) -> None:
    fetch = Fetch(config)
    size, burst = instruction_bytes(config), fetch_burst_instructions(config)
    count, base = 23, 3 * burst * size
    dram = rng.bytes(base + (count + burst) * size + config.port_bytes)
    words: list[int] = []
    bursts: list[tuple[int, int]] = []

    def willing() -> bool:
        return bool(rng.random() < share)

    async def take(ctx: Any) -> None:
        ctx.set(fetch.address, base)
        ctx.set(fetch.count, count)
        ctx.set(fetch.start, 1)
        await ctx.tick()
        ctx.set(fetch.start, 0)
        while len(words) < count:
            ready = willing()
            ctx.set(fetch.instruction.ready, ready)
            if ready and ctx.get(fetch.instruction.valid):
                words.append(ctx.get(fetch.instruction.payload))
            await ctx.tick()

    async def answer(ctx: Any) -> None:
        beats: deque[int] = deque()
        port = fetch.port
        while len(words) < count:
            taken = willing()
            ctx.set(port.ar.ready, taken)
            sends = bool(beats) and willing()
            ctx.set(port.r.valid, sends)
            if sends:
                begin = beats.popleft()
                data = dram[begin : begin + config.port_bytes]
                ctx.set(port.r.payload.data, int.from_bytes(data, "little"))
            if taken and ctx.get(port.ar.valid):
                address, length = (ctx.get(port.ar.payload[n]) for n in ("address", "length"))
                bursts.append((address, length + 1))
                first = address // config.port_bytes * config.port_bytes
                beats += range(first, first + (length + 1) * config.port_bytes, config.port_bytes)
            await ctx.tick()

    run_benches(fetch, take, answer)
    code = dram[base:]
    assert words == [
        int.from_bytes(code[i * size : (i + 1) * size], "little") for i in range(count)
    ]
    lengths = [min(burst, count - first) for first in range(0, count, burst)]
    assert bursts == [
        (base + number * burst * size, -(-length * size // config.port_bytes))
        for number, length in enumerate(lengths)
    ]
