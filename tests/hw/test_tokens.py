"""The token counters against numbers."""

from typing import Any

import numpy as np

from tilewright.hw.tokens import TokenCounters
from tilewright.isa.instructions import TOKEN_CHANNELS
from tilewright.isa.memories import Engine
from tilewright.isa.presets import TINY


def test_no_token_is_lost_or_invented(run_benches: Any, rng: np.random.Generator) -> None:
    tokens = TokenCounters(TINY)
    counts = dict.fromkeys(TOKEN_CHANNELS, 0)
    largest = 0

    async def bench(ctx: Any) -> None:
        nonlocal largest
        for cycle in range(1000):
            share = 0.8 if cycle % 200 < 100 else 0.2
            give, take = [0] * len(Engine), [0] * len(Engine)
            for taker in Engine:
                givers = {g for g in Engine if (g, taker) in TOKEN_CHANNELS and counts[g, taker]}
                assert ctx.get(tokens.present[taker]) == sum(1 << giver for giver in givers)
                for giver in givers:
                    if rng.random() < 0.5:
                        take[taker] |= 1 << giver
            for giver, taker in TOKEN_CHANNELS:
                taken = take[taker] >> giver & 1
                given = counts[giver, taker] < TINY.token_limit and rng.random() < share
                give[giver] |= given << taker
                counts[giver, taker] += given - taken
            largest = max(largest, *counts.values())
            for engine in Engine:
                ctx.set(tokens.give[engine], give[engine])
                ctx.set(tokens.take[engine], take[engine])
            await ctx.tick()

    run_benches(tokens, bench)
    assert largest > TINY.token_limit // 2


def test_a_token_can_be_taken_in_the_next_cycle(run_benches: Any) -> None:
    tokens = TokenCounters(TINY)
    seen = []

    async def bench(ctx: Any) -> None:
        ctx.set(tokens.give[Engine.LOAD], 1 << Engine.GEMM)
        for _ in range(3):
            seen.append(ctx.get(tokens.present[Engine.GEMM]))
            await ctx.tick()
            ctx.set(tokens.give[Engine.LOAD], 0)

    run_benches(tokens, bench)
    assert seen == [0, 1 << Engine.LOAD, 1 << Engine.LOAD]
