"""The load engine on an AXI port that stalls at random, against rows cut out of memory."""

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from tilewright.hw.load import LoadEngine
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import Load
from tilewright.isa.memories import Memory, memory_shape
from tilewright.isa.presets import TINY
from tilewright.isa.timing import cycles_per_entry

Bytes: TypeAlias = npt.NDArray[np.uint8]
MEMORY_BYTES = 4096
CONFIGS = {
    "two entries per beat": TINY.replace(burst_beats=4, wgt_entries=128, prm_entries=128),
    "many beats per entry": TINY.replace(
        block_in=16, block_out=16, port_bits=32, load_bursts=3, wgt_entries=128, prm_entries=128
    ),
    "many entries per beat": TINY.replace(
        block_in=2, block_out=2, port_bits=256, burst_beats=4, wgt_entries=128, prm_entries=128
    ),
}
MEMORIES = (Memory.INP, Memory.WGT, Memory.PRM)


def draw(config: AcceleratorConfig, rng: np.random.Generator) -> Load:
    memory = MEMORIES[int(rng.integers(0, len(MEMORIES)))]
    size = memory_shape(memory, config).entry_bytes
    step = min(size, config.port_bytes)
    left, right, top, bottom = (int(n) for n in rng.choice([0, 0, 1, 2], 4))
    return Load(
        memory=memory,
        dst=int(rng.integers(0, 4)),
        address=step * int(rng.integers(0, 500 // step)),
        entries=0 if left and rng.random() < 0.2 else int(rng.integers(1, 4)),
        rows=int(rng.integers(1, 3)),
        planes=int(rng.integers(1, 3)),
        row_stride=step * int(rng.integers(0, 9)),
        plane_stride=step * int(rng.integers(0, 9)),
        pad_left=left,
        pad_right=right,
        pad_top=top,
        pad_bottom=bottom,
        pad_value=int(rng.integers(-128, 128)),
        signal=int(rng.integers(0, 16)),
    )


def entries_of(load: Load, dram: Bytes, size: int) -> list[bytes]:
    """What a load writes, entry by entry."""
    padding = bytes([load.pad_value & 255]) * size
    width = load.pad_left + load.entries + load.pad_right
    result = []
    for plane in range(load.planes):
        result += [padding] * (load.pad_top * width)
        for row in range(load.rows):
            begin = load.address + plane * load.plane_stride + row * load.row_stride
            data = dram[begin : begin + load.entries * size].tobytes()
            result += [padding] * load.pad_left
            result += [data[i : i + size] for i in range(0, len(data), size)]
            result += [padding] * load.pad_right
        result += [padding] * (load.pad_bottom * width)
    return result


class ReadMemory:
    """An AXI subordinate that answers bursts, with pauses between beats."""

    def __init__(self, dram: Bytes, config: AcceleratorConfig, willing: Callable[[], bool]) -> None:
        self._dram = dram
        self._config = config
        self._willing = willing

    def bench(self, engine: LoadEngine, running: Callable[[], bool]) -> Any:
        async def serve(ctx: Any) -> None:
            port, size = engine.port, self._config.port_bytes
            beats: deque[int] = deque()
            while running():
                taken = self._willing()
                ctx.set(port.ar.ready, taken)
                sends = bool(beats) and self._willing()
                ctx.set(port.r.valid, sends)
                if sends:
                    begin = beats.popleft()
                    data = self._dram[begin : begin + size].tobytes()
                    ctx.set(port.r.payload.data, int.from_bytes(data, "little"))
                if taken and ctx.get(port.ar.valid):
                    address, length = (ctx.get(field) for field in _fields(port.ar.payload))
                    assert length < self._config.burst_beats
                    beats += range(address, address + (length + 1) * size, size)
                await ctx.tick()

        return serve


def _fields(payload: Any) -> tuple[Any, Any]:
    return payload.address, payload.length


class Written:
    """The scratchpads behind the bus of the load engine."""

    def __init__(self, config: AcceleratorConfig) -> None:
        self._config = config
        self.bytes = {memory: self._empty(memory) for memory in MEMORIES}

    def _empty(self, memory: Memory) -> Bytes:
        shape = memory_shape(memory, self._config)
        return np.zeros((shape.entries, shape.entry_bytes), np.uint8)

    def bench(self, engine: LoadEngine, running: Callable[[], bool]) -> Any:
        async def watch(ctx: Any) -> None:
            while running():
                for memory in MEMORIES:
                    if ctx.get(engine.write.select) >> memory & 1:
                        self._write(ctx, engine.write, memory)
                await ctx.tick()

        return watch

    def _write(self, ctx: Any, bus: Any, memory: Memory) -> None:
        parts, _ = cycles_per_entry(memory, self._config)
        entry = self.bytes[memory][ctx.get(bus.address)].reshape(parts, -1)
        data = ctx.get(bus.data).to_bytes(self._config.port_bytes, "little")
        part = np.frombuffer(data[: entry.shape[1]], np.uint8)
        if ctx.get(bus.all_parts):
            entry[:] = part
        else:
            entry[ctx.get(bus.part)] = part


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("stalls", [False, True])
def test_rows_reach_scratchpads(
    run_benches: Any,
    record_engine: Any,
    rng: np.random.Generator,
    config: AcceleratorConfig,
    stalls: bool,
) -> None:
    engine = LoadEngine(config)
    dram = rng.integers(0, 256, MEMORY_BYTES, dtype=np.uint8)
    loads = [draw(config, rng) for _ in range(25)]
    record = record_engine(engine, loads, config)
    memory = ReadMemory(dram, config, lambda: not stalls or bool(rng.random() < 0.5))
    written = Written(config)
    run_benches(
        engine,
        record.give,
        memory.bench(engine, record.running),
        written.bench(engine, record.running),
        record.watch,
    )
    expected = Written(config).bytes
    for load in loads:
        size = memory_shape(load.memory, config).entry_bytes
        for number, entry in enumerate(entries_of(load, dram, size)):
            expected[load.memory][load.dst + number] = np.frombuffer(entry, np.uint8)
    for item in MEMORIES:
        np.testing.assert_array_equal(written.bytes[item], expected[item], item.name)
    assert record.signals == [load.signal for load in loads]
