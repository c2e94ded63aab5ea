"""cocotb bench of the accelerator: programs run through its AXI ports on models of a memory.

The memory answers when it likes, so cycles are not compared: bytes in memory, and what the control
registers say, must be those of the simulator.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiRamRead,
    AxiRamWrite,
    AxiReadBus,
    AxiWriteBus,
)
from integer_graphs import GraphBuilder

import tilewright as tw
from tilewright import demo
from tilewright.compiler.compile import compile_graph
from tilewright.compiler.compiled import AcceleratorStep
from tilewright.isa.memories import Engine
from tilewright.isa.presets import TINY
from tilewright.isa.program import Program
from tilewright.isa.registers import Control, EngineRegister, Register, Status, engine_base
from tilewright.sim.random_programs import random_program
from tilewright.sim.simulator import simulate

#: Length of a cycle; nothing depends on it.
_CYCLE_NS = 10
_RESET_CYCLES = 4
#: Cycles without any progress after which a program counts as stalled; far above what stalls make.
_WATCHDOG_CYCLES = 5000
#: A million cycles: a handshake that never comes ends a test, too.
_LIMIT_MS = 10
_SEED = 20_261_130
#: The channels of the memory ports.
_CHANNELS = ("fetch ar", "fetch r", "load ar", "load r", "store aw", "store w", "store b")


class Bench:
    """The bus models around the accelerator: a manager of its registers, and its memory.

    Parameters
    ----------
    dut
        `Identified` by its handle.
    """

    def __init__(self, dut: Any) -> None:
        logging.getLogger("cocotb").setLevel(logging.WARNING)  # not a line per burst
        self._dut = dut
        self._memory = bytearray(1)
        buses = (
            AxiReadBus.from_prefix(dut, "m_axi_fetch"),
            AxiReadBus.from_prefix(dut, "m_axi_load"),
            AxiWriteBus.from_prefix(dut, "m_axi_store"),
        )
        models = (AxiRamRead, AxiRamRead, AxiRamWrite)
        self._ports = fetch, load, store = [
            model(bus, dut.clk, dut.rst, mem=self._memory)
            for model, bus in zip(models, buses, strict=True)
        ]
        control = AxiLiteBus.from_prefix(dut, "s_axi_control")
        self._control = AxiLiteMaster(control, dut.clk, dut.rst)
        read, write = self._control.read_if, self._control.write_if
        self._control_channels = (
            *(read.ar_channel, read.r_channel),
            *(write.aw_channel, write.w_channel, write.b_channel),
        )
        ports = {"fetch": fetch, "load": load, "store": store}
        self._channels = {
            name: getattr(ports[name.split()[0]], f"{name.split()[1]}_channel")
            for name in _CHANNELS
        }

    async def reset(self) -> None:
        """Start the clock, and reset accelerator and models."""
        self._dut.rst.value = 1
        cocotb.start_soon(Clock(self._dut.clk, _CYCLE_NS, unit="ns").start())
        await ClockCycles(self._dut.clk, _RESET_CYCLES)
        self._dut.rst.value = 0
        await ClockCycles(self._dut.clk, _RESET_CYCLES)

    def stall_everything(self, share: float, rng: np.random.Generator) -> None:
        """Let every channel of every port pause in a share of the cycles, at random."""
        for channel in (*self._channels.values(), *self._control_channels):
            channel.set_pause_generator(_pauses(share, rng))

    def stall_only(self, name: str, share: float, rng: np.random.Generator) -> None:
        """Let one channel of the memory pause, and no other one."""
        for other, channel in self._channels.items():
            channel.clear_pause_generator()
            channel.pause = False
            if other == name:
                channel.set_pause_generator(_pauses(share, rng))

    async def check(self, program: Program, rng: np.random.Generator) -> None:
        """Run a program on random inputs and demand what the simulator leaves behind."""
        dram = program.initial_dram()
        for buffer in program.inputs:
            end = buffer.address + buffer.size_bytes
            dram[buffer.address : end] = rng.integers(0, 256, buffer.size_bytes)
        expected = simulate(program, dram)
        self._hold(dram.tobytes())
        await self._run(program)
        after = np.frombuffer(self._memory, np.uint8)[: program.dram_bytes]
        np.testing.assert_array_equal(after, expected.dram)
        for engine in Engine:
            count = int((expected.timeline.engine == engine).sum())
            base = engine_base(engine)
            assert await self._read(base + EngineRegister.STARTED) == count, engine.name
            assert await self._read(base + EngineRegister.FINISHED) == count, engine.name
            assert await self._read(base + EngineRegister.STATE) == 0, engine.name

    def _hold(self, contents: bytes) -> None:
        """Give all ports one memory with these contents, up to the end of a burst."""
        self._memory = bytearray(contents.ljust(-(-len(contents) // 4096) * 4096, b"\0"))
        for port in self._ports:
            port.mem, port.size = self._memory, len(self._memory)

    async def _run(self, program: Program) -> None:
        await self._write(Register.WATCHDOG_CYCLES, _WATCHDOG_CYCLES)
        await self._write(Register.INTERRUPT_ENABLE, 1)
        await self._write(Register.CODE_ADDRESS, program.code_address)
        await self._write(Register.INSTRUCTION_COUNT, len(program.instructions))
        await self._write(Register.CONTROL, Control.START)
        if not self._dut.interrupt.value:
            await RisingEdge(self._dut.interrupt)
        assert Status(await self._read(Register.STATUS)) == Status.DONE
        await self._write(Register.CONTROL, Control.CLEAR)
        assert await self._read(Register.STATUS) == 0

    async def _write(self, register: int, value: int) -> None:
        await self._control.write_dword(register, value)

    async def _read(self, register: int) -> int:
        value: int = await self._control.read_dword(register)
        return value


def _pauses(share: float, rng: np.random.Generator) -> Iterator[bool]:
    while True:
        yield from (rng.random(1000) < share).tolist()


def _network() -> Program:
    """Two convolutions, one of them depthwise, around an addition and a pooling."""
    builder = GraphBuilder(7)
    image = builder.input(1, 6, 6, 4)
    left = builder.conv(image, 8, kernel=(3, 3), pads=(1, 1, 1, 1))
    right = builder.conv(left, 8, kernel=(3, 3), pads=(1, 1, 1, 1), groups=8)
    pooled = builder.max_pool(builder.add(left, right), (2, 2), (2, 2))
    compiled = compile_graph(builder.build(pooled), TINY)
    (step,) = compiled.steps
    assert isinstance(step, AcceleratorStep), "nothing of it is for the host"
    return step.program


def _demo_network() -> Program:
    (program,) = tw.compile(tw.load(Path(demo.MODEL_PATH)), config=TINY).programs
    return program


async def _run_all(dut: Any, programs: list[Program], share: float) -> None:
    rng = np.random.default_rng(_SEED)
    bench = Bench(dut)
    await bench.reset()
    if share:
        bench.stall_everything(share, rng)
    for program in programs:
        await bench.check(program, rng)


def _random_programs(*seeds: int) -> list[Program]:
    return [random_program(TINY, seed, size=20) for seed in seeds]


@cocotb.test(timeout_time=_LIMIT_MS, timeout_unit="ms")
async def random_programs(dut: Any) -> None:
    await _run_all(dut, _random_programs(1, 2, 3), 0.0)


@cocotb.test(timeout_time=_LIMIT_MS, timeout_unit="ms")
async def random_programs_with_stalls(dut: Any) -> None:
    await _run_all(dut, _random_programs(4, 5), 0.4)


@cocotb.test(timeout_time=_LIMIT_MS, timeout_unit="ms")
async def network(dut: Any) -> None:
    await _run_all(dut, [_network()], 0.0)


@cocotb.test(timeout_time=_LIMIT_MS, timeout_unit="ms")
async def network_with_stalls(dut: Any) -> None:
    await _run_all(dut, [_network()], 0.4)


@cocotb.test(timeout_time=_LIMIT_MS, timeout_unit="ms")
async def one_channel_after_the_other_hardly_moves(dut: Any) -> None:
    rng = np.random.default_rng(_SEED)
    bench = Bench(dut)
    await bench.reset()
    for number, name in enumerate(_CHANNELS):
        bench.stall_only(name, 0.8, rng)
        await bench.check(random_program(TINY, 10 + number, size=20), rng)


@cocotb.test(timeout_time=_LIMIT_MS, timeout_unit="ms")
async def demo_network(dut: Any) -> None:
    await _run_all(dut, [_demo_network()], 0.0)


@cocotb.test(timeout_time=_LIMIT_MS, timeout_unit="ms")
async def demo_network_with_stalls(dut: Any) -> None:
    await _run_all(dut, [_demo_network()], 0.4)
