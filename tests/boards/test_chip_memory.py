"""The accelerator with a memory of block RAM, driven by bytes as a host sends them."""

from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.sim import Simulator

from tilewright.boards.chip_memory import SerialAccelerator
from tilewright.boards.uart import UartReceiver, UartTransmitter
from tilewright.isa.presets import TINY
from tilewright.isa.registers import IDENTIFICATION, Control, Register, Status
from tilewright.isa.serial_commands import ACKNOWLEDGE, MEMORY_BIT, READ, WRITE
from tilewright.sim.random_programs import random_program
from tilewright.sim.simulator import simulate

CONFIG = TINY.replace(
    **{
        "dram.size_bytes": 1 << 17,
        "dram.read_latency_cycles": 2,
        "dram.write_latency_cycles": 2,
        "dram.read_gap_cycles": 0,
        "dram.write_gap_cycles": 0,
    }
)


class Host:
    """Sends commands as bytes and takes the answers."""

    def __init__(self, context: Any, unit: SerialAccelerator) -> None:
        self.context, self.unit = context, unit

    async def send(self, data: bytes) -> None:
        for byte in data:
            self.context.set(self.unit.received.payload, byte)
            self.context.set(self.unit.received.valid, 1)
            await self.context.tick().until(self.unit.received.ready)
        self.context.set(self.unit.received.valid, 0)

    async def take(self, size: int) -> bytes:
        data = bytearray()
        self.context.set(self.unit.sent.ready, 1)
        while len(data) < size:
            (byte,) = (
                await self.context.tick().sample(self.unit.sent.payload).until(self.unit.sent.valid)
            )
            data.append(byte)
        self.context.set(self.unit.sent.ready, 0)
        return bytes(data)

    async def write(self, address: int, data: bytes) -> None:
        head = address.to_bytes(4, "little") + (len(data) // 4).to_bytes(2, "little")
        await self.send(bytes([WRITE]) + head + data)
        assert await self.take(1) == bytes([ACKNOWLEDGE])

    async def read(self, address: int, words: int) -> bytes:
        head = address.to_bytes(4, "little") + words.to_bytes(2, "little")
        await self.send(bytes([READ]) + head)
        return await self.take(4 * words)

    async def register(self, offset: int, value: int | None = None) -> int:
        if value is None:
            return int.from_bytes(await self.read(offset, 1), "little")
        await self.write(offset, int(value).to_bytes(4, "little"))
        return value


@pytest.mark.slow
@pytest.mark.parametrize("latency", [2, 5])
def test_a_program_runs_in_as_many_cycles_as_on_the_simulator(latency: int) -> None:
    """Without registers around the block RAM, and with them."""
    config = CONFIG.replace(**{"dram.read_latency_cycles": latency})
    program = random_program(config, 4, size=8)
    dram = program.initial_dram()
    expected = simulate(program, dram)
    unit = SerialAccelerator(config)
    places = [(item.address, item.data) for item in program.constants]
    code = dram[program.code_address : program.code_address + program.code_bytes].tobytes()
    places.append((program.code_address, code))
    # Constants need not begin at a word.
    aligned = [
        (begin & ~3, dram[begin & ~3 : -(-(begin + len(data)) // 4) * 4].tobytes())
        for begin, data in places
    ]
    changed = np.flatnonzero(expected.dram != dram)
    finished = []

    async def testbench(context: Any) -> None:
        host = Host(context, unit)
        await host.send(bytes(16))
        assert await host.register(Register.IDENTIFICATION) == IDENTIFICATION
        for begin, data in aligned:
            for part in range(0, len(data), 4096):
                await host.write(1 << MEMORY_BIT | begin + part, data[part : part + 4096])
        await host.register(Register.CODE_ADDRESS, program.code_address)
        await host.register(Register.INSTRUCTION_COUNT, len(program.instructions))
        await host.register(Register.CONTROL, Control.START)
        while await host.register(Register.STATUS) == Status.RUNNING:
            pass
        assert await host.register(Register.STATUS) == Status.DONE
        assert await host.register(Register.CYCLES_LOW) == expected.timeline.cycles
        for begin in sorted({int(place) & ~63 for place in changed})[:20]:
            data = await host.read(1 << MEMORY_BIT | begin, 16)
            assert data == expected.dram[begin : begin + 64].tobytes()
        finished.append(True)

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    assert finished
    assert changed.size


@pytest.mark.parametrize("divisor", [4, 5, 25])
def test_bytes_cross_a_serial_line(divisor: int) -> None:
    m = Module()
    m.submodules.transmitter = transmitter = UartTransmitter(divisor)
    m.submodules.receiver = receiver = UartReceiver(divisor)
    m.d.comb += receiver.line.eq(transmitter.line)
    data = [0x00, 0xFF, 0x55, 0xAA, 0x01, 0x80, 0x7E]
    got: list[int] = []

    async def send(context: Any) -> None:
        for byte in data:
            context.set(transmitter.bytes.payload, byte)
            context.set(transmitter.bytes.valid, 1)
            await context.tick().until(transmitter.bytes.ready)
            context.set(transmitter.bytes.valid, 0)

    async def take(context: Any) -> None:
        context.set(receiver.bytes.ready, 1)
        while len(got) < len(data):
            (byte,) = (
                await context.tick().sample(receiver.bytes.payload).until(receiver.bytes.valid)
            )
            got.append(byte)

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(send)
    simulator.add_testbench(take)
    simulator.run_until(1e-6 * divisor * 200)
    assert got == data


def test_a_byte_takes_ten_bits() -> None:
    unit = UartTransmitter(4)
    levels: list[int] = []

    async def testbench(context: Any) -> None:
        context.set(unit.bytes.payload, 0b0100_1101)
        context.set(unit.bytes.valid, 1)
        await context.tick()
        context.set(unit.bytes.valid, 0)
        for _ in range(11):
            levels.append(context.get(unit.line))
            await context.tick().repeat(4)

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    assert levels == [0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1]
