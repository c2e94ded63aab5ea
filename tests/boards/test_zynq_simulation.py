"""The whole design at the ports of its processor: programs run from a memory that is elsewhere."""

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from amaranth.hdl import ClockSignal, Module, Signal, Value
from amaranth.sim import Simulator

from tilewright.boards.parts import Family
from tilewright.boards.zynq import BLOCKS, BoardTop
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_digest
from tilewright.isa.port_registers import PORT_REGISTERS_OFFSET, PortRegister
from tilewright.isa.presets import TINY
from tilewright.isa.program import Program
from tilewright.isa.registers import IDENTIFICATION, ISA_VERSION, Control, Register, Status
from tilewright.sim.random_programs import random_program
from tilewright.sim.simulator import simulate

#: Amaranth's simulator takes about 20 s for a program.
pytestmark = pytest.mark.slow

WINDOW = 0x43C0_0000
BASE = 0x1_2345_6000
BASES = {Family.ZYNQ_7000: BASE & 0xFFFF_FFFF, Family.ZYNQ_MP: BASE}
CONFIGS = {Family.ZYNQ_7000: TINY, Family.ZYNQ_MP: TINY.replace(port_bits=128)}
CYCLE_LIMIT = 20_000


class ExposedTop(BoardTop):
    """The design with the ports of its processor as signals."""

    def make_clock(self, m: Module, source: Value) -> dict[str, Any]:
        return {}

    def place_processor(self, m: Module, connections: dict[str, Any]) -> None:
        self.pins: dict[str, Signal] = {}
        for key, value in connections.items():
            direction, name = key.split("_", 1)
            if isinstance(value, ClockSignal):
                continue
            pin = Signal(len(Value.cast(value)), name=name)
            self.pins[name] = pin
            m.d.comb += pin.eq(value) if direction == "i" else value.eq(pin)


@dataclass
class Memory:
    """Memory behind two ports: answers in order, late and with pauses, and checks the protocol."""

    data: npt.NDArray[np.uint8]
    base: int
    beat_bytes: int
    most_beats: int
    rng: np.random.Generator
    #: Beats and responses that are refused from now on.
    refuse: bool = False

    def offset(self, address: int) -> int:
        offset = address - self.base
        assert 0 <= offset < self.data.size, f"address {address:#x} is outside the buffer"
        return offset

    def store(self, address: int, data: int, strobe: int) -> None:
        for byte in range(self.beat_bytes):
            if strobe >> byte & 1:
                self.data[self.offset(address + byte)] = data >> 8 * byte & 0xFF

    def check_burst(self, pins: Any, prefix: str) -> tuple[int, int]:
        address, beats = pins(f"{prefix}ADDR"), pins(f"{prefix}LEN") + 1
        assert 1 << pins(f"{prefix}SIZE") == self.beat_bytes
        assert pins(f"{prefix}BURST") == 1
        assert beats <= self.most_beats
        assert address // 4096 == (address + beats * self.beat_bytes - 1) // 4096
        return address, beats


async def read_port(context: Any, top: ExposedTop, memory: Memory, port: str) -> None:
    """Answer the read channels of a port for ever."""
    pins = top.pins
    waiting: deque[tuple[int, int, int]] = deque()
    cycle = 0

    def get(name: str) -> int:
        return int(context.get(pins[f"{port}{name}"]))

    while True:
        ready = bool(memory.rng.random() < 0.7)
        context.set(pins[f"{port}ARREADY"], ready)
        sending = bool(waiting) and waiting[0][2] <= cycle and memory.rng.random() < 0.8
        if sending:
            address, beats, _ = waiting[0]
            first = memory.offset(address) if address - memory.base < memory.data.size else None
            part = memory.data[first : first + memory.beat_bytes] if first is not None else b""
            context.set(pins[f"{port}RDATA"], int.from_bytes(bytes(part), "little"))
            context.set(pins[f"{port}RLAST"], beats == 1)
            context.set(pins[f"{port}RRESP"], 2 if memory.refuse else 0)
        context.set(pins[f"{port}RVALID"], sending)
        taken = ready and get("ARVALID")
        burst = memory.check_burst(get, "AR") if taken else (0, 0)
        assert get("RREADY") == 1
        await context.tick()
        cycle += 1
        if taken:
            waiting.append((*burst, cycle + int(memory.rng.integers(3, 12))))
        if sending:
            address, beats, due = waiting.popleft()
            if beats > 1:
                waiting.appendleft((address + memory.beat_bytes, beats - 1, due))


async def write_port(context: Any, top: ExposedTop, memory: Memory, port: str) -> None:
    """Answer the write channels of a port for ever."""
    pins = top.pins
    bursts: deque[tuple[int, int]] = deque()
    answers: deque[int] = deque()
    address = left = cycle = 0

    def get(name: str) -> int:
        return int(context.get(pins[f"{port}{name}"]))

    while True:
        address_ready = bool(memory.rng.random() < 0.7)
        data_ready = left > 0 and bool(memory.rng.random() < 0.8)
        answering = bool(answers) and answers[0] <= cycle
        context.set(pins[f"{port}AWREADY"], address_ready)
        context.set(pins[f"{port}WREADY"], data_ready)
        context.set(pins[f"{port}BVALID"], answering)
        context.set(pins[f"{port}BRESP"], 2 if memory.refuse else 0)
        burst = memory.check_burst(get, "AW") if address_ready and get("AWVALID") else None
        written = data_ready and get("WVALID")
        if written:
            assert get("WLAST") == (left == 1)
            memory.store(address, get("WDATA"), get("WSTRB"))
        assert get("BREADY") == 1
        await context.tick()
        cycle += 1
        if answering:
            answers.popleft()
        if burst is not None:
            bursts.append(burst)
        if written:
            address, left = address + memory.beat_bytes, left - 1
            if left == 0:
                answers.append(cycle + int(memory.rng.integers(2, 8)))
        if left == 0 and bursts:
            address, left = bursts.popleft()


class Host:
    """Reads and writes registers through the processor's port."""

    def __init__(self, context: Any, top: ExposedTop) -> None:
        self.context, self.pins = context, top.pins
        self.lanes = len(self.pins["MAXIGP0WDATA"]) // 32

    def set(self, **values: int) -> None:
        for name, value in values.items():
            self.context.set(self.pins[f"MAXIGP0{name}"], value)

    async def until(self, name: str) -> int:
        for _ in range(CYCLE_LIMIT):
            if self.context.get(self.pins[name]):
                return int(self.context.get(self.pins[name]))
            await self.context.tick()
        raise AssertionError(f"{name} does not come")

    async def handshake(self, channel: str) -> None:
        self.context.set(self.pins[f"MAXIGP0{channel}VALID"], 1)
        await self.until(f"MAXIGP0{channel}READY")
        await self.context.tick()
        self.context.set(self.pins[f"MAXIGP0{channel}VALID"], 0)

    async def write(self, offset: int, value: int) -> None:
        lane = offset // 4 % self.lanes
        self.set(AWADDR=WINDOW + offset, AWLEN=0, AWID=5)
        await self.handshake("AW")
        self.set(WDATA=value << 32 * lane, WSTRB=0xF << 4 * lane, WLAST=1)
        await self.handshake("W")
        self.set(BREADY=1)
        await self.until("MAXIGP0BVALID")
        await self.context.tick()
        self.set(BREADY=0)

    async def read(self, offset: int) -> int:
        self.set(ARADDR=WINDOW + offset, ARLEN=0, ARID=9)
        await self.handshake("AR")
        self.set(RREADY=1)
        await self.until("MAXIGP0RVALID")
        word = int(self.context.get(self.pins["MAXIGP0RDATA"])) & 0xFFFF_FFFF
        await self.context.tick()
        self.set(RREADY=0)
        return word

    async def run(self, program: Program, base: int) -> None:
        """Start a program and wait for its interrupt."""
        ports = PORT_REGISTERS_OFFSET
        await self.write(ports + PortRegister.BASE_LOW, base & 0xFFFF_FFFF)
        await self.write(ports + PortRegister.BASE_HIGH, base >> 32)
        await self.write(ports + PortRegister.REFUSED, 0)
        await self.write(Register.CODE_ADDRESS, program.code_address)
        await self.write(Register.INSTRUCTION_COUNT, len(program.instructions))
        await self.write(Register.INTERRUPT_ENABLE, 1)
        await self.write(Register.WATCHDOG_CYCLES, 2000)
        await self.write(Register.CONTROL, Control.CLEAR)
        await self.write(Register.CONTROL, Control.START)
        name = "IRQF2P" if "IRQF2P" in self.pins else "PLPSIRQ0"
        assert await self.until(name) == 1


def simulate_top(family: Family, memory: Memory, config: AcceleratorConfig, host: Any) -> None:
    top = ExposedTop(config, family)
    simulator = Simulator(top)
    finished = []

    async def testbench(context: Any) -> None:
        await host(Host(context, top))
        finished.append(True)

    first, second = BLOCKS[family].memory_ports
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    for port in (first, second):
        reader = partial(read_port, top=top, memory=memory, port=port)
        simulator.add_testbench(reader, background=True)
    writer = partial(write_port, top=top, memory=memory, port=first)
    simulator.add_testbench(writer, background=True)
    simulator.run()
    assert finished


def make_memory(family: Family, program: Program, seed: int) -> Memory:
    config = program.config
    # A burst may read beyond the last byte of a row, into the rest of its beat.
    data = np.concatenate([program.initial_dram(), np.zeros(64, np.uint8)])
    return Memory(
        data=data,
        base=BASES[family],
        beat_bytes=config.port_bytes,
        most_beats=16,
        rng=np.random.default_rng(seed),
    )


@pytest.mark.parametrize("family", BLOCKS, ids=[family.value for family in BLOCKS])
def test_programs_run_from_the_memory_of_the_processor(family: Family) -> None:
    config = CONFIGS[family]
    program = random_program(config, 4, size=10)
    memory = make_memory(family, program, 8)
    expected = simulate(program, program.initial_dram())

    async def host(host: Host) -> None:
        assert await host.read(Register.IDENTIFICATION) == IDENTIFICATION
        assert await host.read(Register.ISA_VERSION) == ISA_VERSION
        words = [await host.read(Register.CONFIG_DIGEST_0 + 4 * word) for word in range(4)]
        assert "".join(f"{word:08x}" for word in words) == config_digest(config)[:32]
        for _ in range(2):
            memory.data[: program.dram_bytes] = program.initial_dram()
            await host.run(program, memory.base)
            assert await host.read(Register.STATUS) == Status.DONE
            assert await host.read(PORT_REGISTERS_OFFSET + PortRegister.REFUSED) == 0
            np.testing.assert_array_equal(memory.data[: program.dram_bytes], expected.dram)
        assert await host.read(Register.CYCLES_LOW) > 0

    simulate_top(family, memory, config, host)


def test_refused_accesses_are_counted_and_do_no_harm() -> None:
    program = random_program(TINY, 2, size=6)
    memory = make_memory(Family.ZYNQ_7000, program, 3)
    memory.refuse = True

    async def host(host: Host) -> None:
        await host.run(program, memory.base)
        assert await host.read(PORT_REGISTERS_OFFSET + PortRegister.REFUSED) > 0

    simulate_top(Family.ZYNQ_7000, memory, TINY, host)
