"""The memory model's ports: each answer comes in its cycle, not one earlier."""

from typing import Any

import pytest

from tilewright.hw.dram import DramReadPort, DramWritePort
from tilewright.isa.presets import TINY

LATENCIES = [2, 3, 12]
GAPS = [0, 1, 5]


@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize("gap", GAPS)
def test_read_beats_come_in_their_cycles(run_benches: Any, latency: int, gap: int) -> None:
    config = TINY.replace(**{"dram.read_latency_cycles": latency, "dram.read_gap_cycles": gap})
    unit = DramReadPort(config, bursts=4)
    requests = {0: (68, 3), 1: (512, 1), 2: (256, 2), 40: (8, 1)}
    seen: list[tuple[int, int, int]] = []

    async def bench(ctx: Any) -> None:
        asked = 0
        for cycle in range(80):
            ctx.set(unit.data, asked)
            address, beats = requests.get(cycle, (0, 0))
            ctx.set(unit.port.ar.valid, beats > 0)
            ctx.set(unit.port.ar.payload, {"address": address, "length": max(beats - 1, 0)})
            assert ctx.get(unit.port.ar.ready)
            if ctx.get(unit.port.r.valid):
                payload = unit.port.r.payload
                seen.append((cycle, ctx.get(payload.data), ctx.get(payload.last)))
            asked = ctx.get(unit.address) if ctx.get(unit.enable) else 0
            await ctx.tick()

    run_benches(unit, bench)
    expected = []
    before = -1 - gap
    for cycle, (address, beats) in requests.items():
        first = max(cycle + latency, before + gap + 1)
        for beat in range(beats):
            expected.append((first + beat, address // 8 * 8 + 8 * beat, int(beat == beats - 1)))
        before = first + beats - 1
    assert seen == expected


@pytest.mark.parametrize("latency", LATENCIES)
def test_write_responses_come_in_their_cycles(run_benches: Any, latency: int) -> None:
    unit = DramWritePort(TINY.replace(**{"dram.write_latency_cycles": latency, "store_bursts": 8}))
    beats = {3: (1, 0), 4: (2, 1), 5: (3, 1), 9: (4, 1)}
    responses: list[int] = []
    writes: list[tuple[int, int, int]] = []

    async def bench(ctx: Any) -> None:
        for cycle in range(40):
            ctx.set(unit.port.aw.valid, cycle < 3)
            ctx.set(unit.port.aw.payload, {"address": 64 * (cycle + 1), "length": 0})
            data, last = beats.get(cycle, (0, 0))
            ctx.set(unit.port.w.valid, cycle in beats)
            ctx.set(unit.port.w.payload, {"data": data, "strobe": 0xF0, "last": last})
            if ctx.get(unit.enable):
                assert ctx.get(unit.enable) == 0xF0
                writes.append((cycle, ctx.get(unit.address), ctx.get(unit.data)))
            if ctx.get(unit.port.b.valid):
                responses.append(cycle)
            await ctx.tick()

    run_benches(unit, bench)
    assert writes == [(3, 64, 1), (4, 72, 2), (5, 128, 3), (9, 192, 4)]
    assert responses == [cycle + latency for cycle in (4, 5, 9)]
