"""The way from a processor's port to the registers: bursts, identifiers, lanes, stalls."""

from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator

from tilewright.boards.axi_lite import ManagerPort, WordBridge
from tilewright.boards.memory_ports import AddressStage, PortRegisters
from tilewright.boards.parts import Family
from tilewright.boards.zynq import BLOCKS
from tilewright.isa.port_registers import PORT_REGISTERS_OFFSET, PortRegister

BASE = PORT_REGISTERS_OFFSET
LOW, HIGH, REFUSED = (BASE + register for register in PortRegister)
#: A processor's address of the first register: its high bits are cut off.
WINDOW = 0x43C0_0000


class Processor:
    """Drives the port of a processor, with pauses from a seed."""

    def __init__(self, context: Any, port: Any, shape: ManagerPort, seed: int) -> None:
        self.context, self.port, self.shape = context, port, shape
        self.rng = np.random.default_rng(seed)

    async def pause(self) -> None:
        for _ in range(self.rng.integers(0, 3)):
            await self.context.tick()

    async def send(self, channel: Any, **fields: int) -> None:
        await self.pause()
        for name, value in fields.items():
            self.context.set(getattr(channel.payload, name), value)
        self.context.set(channel.valid, 1)
        await self.context.tick().until(channel.ready)
        self.context.set(channel.valid, 0)

    async def take(self, channel: Any) -> dict[str, int]:
        await self.pause()
        self.context.set(channel.ready, 1)
        names = channel.payload.shape().members
        sampled = await self.context.tick().sample(channel.payload).until(channel.valid)
        self.context.set(channel.ready, 0)
        return {name: int(sampled[0][name]) for name in names}

    async def write(self, address: int, words: list[int], *, identity: int, narrow: bool) -> None:
        fields = {"address": address, "id": identity, "length": len(words) - 1}
        await self.send(self.port.aw, **fields)
        for index, word in enumerate(words):
            lanes = self.shape.data_bits // 32
            lane = 0 if narrow else (address // 4 + index) % lanes
            noise = int.from_bytes(self.rng.bytes(self.shape.data_bits // 8), "little")
            mask = 0xFFFF_FFFF << 32 * lane
            data = noise & ~mask | word << 32 * lane
            last = index == len(words) - 1
            await self.send(self.port.w, data=data, strobe=0xF << 4 * lane, last=last)
        assert await self.take(self.port.b) == {"id": identity}

    async def read(self, address: int, count: int, *, identity: int) -> list[int]:
        fields = {"address": address, "id": identity, "length": count - 1}
        await self.send(self.port.ar, **fields)
        words = []
        for index in range(count):
            beat = await self.take(self.port.r)
            assert (beat["id"], beat["last"]) == (identity, index == count - 1)
            lanes = {beat["data"] >> shift & 0xFFFF_FFFF for shift in range(0, self.width, 32)}
            assert len(lanes) == 1, "every lane shows the word"
            words += lanes
        return words

    @property
    def width(self) -> int:
        return self.shape.data_bits


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("family", BLOCKS, ids=[family.value for family in BLOCKS])
def test_bursts_reach_the_registers(family: Family, narrow: bool) -> None:
    shape = BLOCKS[family].manager
    m = Module()
    m.submodules.bridge = bridge = WordBridge(shape)
    m.submodules.registers = registers = PortRegisters(sources=3)
    wiring.connect(m, bridge.words, registers.words)

    async def host(context: Any) -> None:
        processor = Processor(context, bridge.full, shape, seed=5)
        rng = np.random.default_rng(9)
        for _ in range(20):
            low, high = (int(word) for word in rng.integers(0, 1 << 32, 2))
            identity = int(rng.integers(0, 1 << shape.id_bits))
            await processor.write(WINDOW + LOW, [low, high], identity=identity, narrow=narrow)
            assert context.get(registers.base) == low | high << 32
            words = await processor.read(WINDOW + LOW, 3, identity=identity ^ 1)
            assert words == [low, high, 0]
            await processor.write(WINDOW + HIGH, [low], identity=identity, narrow=narrow)
            assert context.get(registers.base) == low | low << 32
        assert await processor.read(WINDOW + BASE + 0x40, 1, identity=0) == [0]

    simulate(m, host)


def test_refused_accesses_are_counted() -> None:
    shape = BLOCKS[Family.ZYNQ_7000].manager
    m = Module()
    m.submodules.bridge = bridge = WordBridge(shape)
    m.submodules.registers = registers = PortRegisters(sources=3)
    wiring.connect(m, bridge.words, registers.words)

    async def host(context: Any) -> None:
        processor = Processor(context, bridge.full, shape, seed=6)
        for refused in (0b001, 0b110, 0b000, 0b100):
            context.set(registers.refused, refused)
            await context.tick()
        context.set(registers.refused, 0)
        assert await processor.read(REFUSED, 1, identity=1) == [3]
        await processor.write(REFUSED, [1], identity=1, narrow=False)
        assert await processor.read(REFUSED, 1, identity=1) == [0]

    simulate(m, host)


def test_addresses_have_the_base_added_in_order() -> None:
    stage = AddressStage(40)
    base = 0x12_3456_7000
    rng = np.random.default_rng(11)
    requests = [(int(a), int(n)) for a, n in rng.integers(0, [1 << 32, 256], (60, 2))]
    seen: list[tuple[int, int]] = []

    async def manager(context: Any) -> None:
        context.set(stage.base, base)
        for address, length in requests:
            for _ in range(rng.integers(0, 2)):
                await context.tick()
            context.set(stage.address, address)
            context.set(stage.length, length)
            context.set(stage.valid, 1)
            await context.tick().until(stage.ready)
            context.set(stage.valid, 0)

    async def memory(context: Any) -> None:
        pauses = np.random.default_rng(12)
        while len(seen) < len(requests):
            for _ in range(pauses.integers(0, 3)):
                await context.tick()
            context.set(stage.physical_ready, 1)
            sampled = (stage.physical_address, stage.physical_length)
            values = await context.tick().sample(*sampled).until(stage.physical_valid)
            seen.append((int(values[0]), int(values[1])))
            context.set(stage.physical_ready, 0)

    simulator = Simulator(stage)
    simulator.add_clock(1e-6)
    simulator.add_testbench(manager)
    simulator.add_testbench(memory)
    simulator.run_until(1e-3)
    assert seen == [(base + address, length) for address, length in requests]


def simulate(m: Module, process: Any) -> None:
    finished = []

    async def watched(context: Any) -> None:
        await process(context)
        finished.append(True)

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(watched)
    simulator.run_until(20e-3)
    assert finished, "the processor waits for ever"
