"""The queue against a deque, under random writes and reads."""

from collections import deque
from typing import Any

import numpy as np
import pytest

from tilewright.hw.queue import Queue


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
@pytest.mark.parametrize("write_share", [0.3, 0.7, 1.0])
def test_queue_keeps_order_and_level(
    run_benches: Any, rng: np.random.Generator, depth: int, write_share: float
) -> None:
    queue = Queue(16, depth)
    model: deque[int] = deque()

    async def bench(ctx: Any) -> None:
        for cycle in range(400):
            assert ctx.get(queue.level) == len(model)
            assert ctx.get(queue.read.valid) == bool(model)
            assert ctx.get(queue.write.ready) == (len(model) < depth)
            if model:
                assert ctx.get(queue.read.payload) == model[0]
            writes, reads = rng.random() < write_share, rng.random() < 0.6
            ctx.set(queue.write.valid, writes)
            ctx.set(queue.write.payload, cycle)
            ctx.set(queue.read.ready, reads)
            has_room = len(model) < depth
            if reads and model:
                model.popleft()
            if writes and has_room:
                model.append(cycle)
            await ctx.tick()

    run_benches(queue, bench)
