"""The store engine on an AXI port that stalls at random, and its timing on one that does not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.hw.store import StoreEngine
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import Store
from tilewright.isa.memories import Memory, memory_shape
from tilewright.isa.presets import TINY
from tilewright.isa.timing import STORE_DATA_CYCLES, STORE_START_CYCLES

MEMORY_BYTES = 16_384
CONFIGS = {
    "two entries per beat": TINY.replace(burst_beats=4),
    "one entry per beat": TINY.replace(block_in=8, block_out=8, burst_beats=4),
    "four beats per entry": TINY.replace(block_in=16, block_out=16, port_bits=32),
}


def draw(config: AcceleratorConfig, rng: np.random.Generator, count: int) -> list[Store]:
    """Stores whose bytes do not meet, as the order of their beats is not fixed."""
    size = memory_shape(Memory.OUT, config).entry_bytes
    step = min(size, config.port_bytes)
    stores = []
    for number in range(count):
        entries, rows, planes = (int(n) for n in rng.integers(1, 4, 3))
        row_stride = entries * size + step * int(rng.integers(0, 3))
        stores.append(
            Store(
                src=int(rng.integers(0, config.out_entries - entries * rows * planes)),
                address=number * 1024 + step * int(rng.integers(0, 8)),
                entries=entries,
                rows=rows,
                planes=planes,
                row_stride=row_stride,
                plane_stride=rows * row_stride,
                signal=int(rng.integers(0, 16)),
            )
        )
    return stores


def expected_memory(stores: list[Store], out: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    memory = np.zeros(MEMORY_BYTES, np.uint8)
    for store in stores:
        entry = store.src
        for plane in range(store.planes):
            for row in range(store.rows):
                at = store.address + plane * store.plane_stride + row * store.row_stride
                for _ in range(store.entries):
                    memory[at : at + out.shape[1]] = out[entry]
                    at += out.shape[1]
                    entry += 1
    return memory


class MemoryModel:
    """An AXI subordinate that takes bursts and answers, each channel when it likes to."""

    def __init__(self, port: Any, willing: Callable[[], bool], running: Callable[[], bool]) -> None:
        self.bytes = np.zeros(MEMORY_BYTES, np.uint8)
        #: Address and beats of each burst.
        self.bursts: list[tuple[int, int]] = []
        self._port = port
        self._willing = willing
        self._running = running
        self._owed = 0

    async def take_addresses(self, ctx: Any) -> None:
        channel = self._port.aw
        while self._running():
            ready = self._willing()
            ctx.set(channel.ready, ready)
            if ready and ctx.get(channel.valid):
                payload = channel.payload
                self.bursts.append((ctx.get(payload.address), ctx.get(payload.length) + 1))
            await ctx.tick()

    async def take_beats(self, ctx: Any) -> None:
        channel = self._port.w
        burst = beat = 0
        while self._running():
            ready = len(self.bursts) > burst and self._willing()
            ctx.set(channel.ready, ready)
            if ready and ctx.get(channel.valid):
                address, length = self.bursts[burst]
                self._write(ctx, channel.payload, address, beat)
                beat += 1
                assert ctx.get(channel.payload.last) == (beat == length)
                if beat == length:
                    burst, beat = burst + 1, 0
                    self._owed += 1
            await ctx.tick()

    def _write(self, ctx: Any, payload: Any, address: int, beat: int) -> None:
        size = len(payload.strobe)
        data = ctx.get(payload.data).to_bytes(size, "little")
        for i in range(size):
            if ctx.get(payload.strobe) >> i & 1:
                self.bytes[address + beat * size + i] = data[i]

    async def respond(self, ctx: Any) -> None:
        while self._running():
            answer = self._owed > 0 and self._willing()
            ctx.set(self._port.b.valid, answer)
            self._owed -= answer
            await ctx.tick()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("stalls", [False, True])
def test_rows_reach_memory(
    run_benches: Any,
    scratchpad: Any,
    record_engine: Any,
    rng: np.random.Generator,
    config: AcceleratorConfig,
    stalls: bool,
) -> None:
    engine = StoreEngine(config)
    size = memory_shape(Memory.OUT, config).entry_bytes
    out = rng.integers(0, 256, (config.out_entries, size), dtype=np.uint8)
    stores = draw(config, rng, 12)
    record = record_engine(engine, stores, config)
    memory = MemoryModel(
        engine.port, lambda: not stalls or bool(rng.random() < 0.4), record.running
    )
    run_benches(
        engine,
        record.give,
        memory.take_addresses,
        memory.take_beats,
        memory.respond,
        record.watch,
        scratchpad(out).bench(record.running, engine.out),
    )
    assert np.array_equal(memory.bytes, expected_memory(stores, out))
    assert record.signals == [store.signal for store in stores]
    assert all(length <= config.burst_beats for _, length in memory.bursts)


def test_first_beat_and_next_burst_come_in_their_cycles(run_benches: Any) -> None:
    config = TINY.replace(block_in=8, block_out=8, burst_beats=4)
    engine = StoreEngine(config)
    beats: list[int] = []

    async def bench(ctx: Any) -> None:
        ctx.set(engine.port.aw.ready, 1)
        ctx.set(engine.port.w.ready, 1)
        ctx.set(engine.instruction.payload.entries, 8)
        ctx.set(engine.instruction.payload.rows, 1)
        ctx.set(engine.instruction.payload.planes, 1)
        ctx.set(engine.instruction.valid, 1)
        for cycle in range(30):
            if ctx.get(engine.port.w.valid):
                beats.append(cycle)
            await ctx.tick()
            ctx.set(engine.instruction.valid, 0)

    run_benches(engine, bench)
    first = STORE_START_CYCLES + STORE_DATA_CYCLES
    second = first + config.burst_beats + config.dram.write_gap_cycles
    assert beats == [
        begin + beat for begin in (first, second) for beat in range(config.burst_beats)
    ]
