"""The accelerator driven through its AXI ports alone, on a memory that stalls at random."""

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from tilewright.hw.accelerator import Accelerator
from tilewright.isa.config_record import config_digest
from tilewright.isa.instructions import Finish, Load
from tilewright.isa.memories import Engine, Memory
from tilewright.isa.presets import TINY
from tilewright.isa.program import Program
from tilewright.isa.registers import (
    IDENTIFICATION,
    ISA_VERSION,
    Control,
    EngineRegister,
    Register,
    Status,
    engine_base,
)
from tilewright.sim.random_programs import random_program
from tilewright.sim.simulator import simulate

Bytes: TypeAlias = npt.NDArray[np.uint8]
BEAT = TINY.port_bytes


class Bus:
    """Manager of the control port, and subordinates of the three memory ports.

    Parameters
    ----------
    willing
        Whether a channel moves in a cycle, asked anew every time.
    """

    def __init__(self, unit: Accelerator, dram: Bytes, willing: Callable[[], bool]) -> None:
        self.dram = dram
        self.ended = False
        self.unit = unit
        self._willing = willing

    def _get(self, ctx: Any, name: str) -> int:
        value: int = ctx.get(getattr(self.unit, name))
        return value

    def _set(self, ctx: Any, name: str, value: int) -> None:
        ctx.set(getattr(self.unit, name), value)

    async def write(self, ctx: Any, register: int, value: int) -> None:
        port = "s_axi_control"
        self._set(ctx, f"{port}_awaddr", register)
        self._set(ctx, f"{port}_wdata", value)
        self._set(ctx, f"{port}_wstrb", 15)
        self._set(ctx, f"{port}_awvalid", 1)
        self._set(ctx, f"{port}_wvalid", 1)
        await ctx.tick().until(self.unit.s_axi_control_awready)
        self._set(ctx, f"{port}_awvalid", 0)
        self._set(ctx, f"{port}_wvalid", 0)
        self._set(ctx, f"{port}_bready", 1)
        await ctx.tick().until(self.unit.s_axi_control_bvalid)
        self._set(ctx, f"{port}_bready", 0)

    async def read(self, ctx: Any, register: int) -> int:
        port = "s_axi_control"
        self._set(ctx, f"{port}_araddr", register)
        self._set(ctx, f"{port}_arvalid", 1)
        await ctx.tick().until(self.unit.s_axi_control_arready)
        self._set(ctx, f"{port}_arvalid", 0)
        self._set(ctx, f"{port}_rready", 1)
        unit = self.unit
        (value,) = (
            await ctx.tick().sample(unit.s_axi_control_rdata).until(unit.s_axi_control_rvalid)
        )
        self._set(ctx, f"{port}_rready", 0)
        return int(value)

    def reader(self, port: str) -> Any:
        """Make the subordinate of a read port."""

        async def serve(ctx: Any) -> None:
            beats: deque[tuple[int, bool]] = deque()
            while not self.ended:
                taken = self._willing()
                self._set(ctx, f"{port}_arready", taken)
                sends = bool(beats) and self._willing()
                self._set(ctx, f"{port}_rvalid", sends)
                if sends:
                    address, last = beats.popleft()
                    data = self.dram[address : address + BEAT].tobytes()
                    self._set(ctx, f"{port}_rdata", int.from_bytes(data, "little"))
                    self._set(ctx, f"{port}_rlast", last)
                if taken and self._get(ctx, f"{port}_arvalid"):
                    beats += self._burst(ctx, f"{port}_ar")
                await ctx.tick()

        return serve

    def _burst(self, ctx: Any, channel: str) -> list[tuple[int, bool]]:
        """Take a burst and check that it keeps the rules of AXI4."""
        address, beats = self._get(ctx, f"{channel}addr"), self._get(ctx, f"{channel}len") + 1
        assert self._get(ctx, f"{channel}burst") == 1
        assert 1 << self._get(ctx, f"{channel}size") == BEAT
        first = address // BEAT * BEAT
        end = first + beats * BEAT
        assert beats <= TINY.burst_beats
        assert first // 4096 == (end - 1) // 4096
        return [(first + beat * BEAT, beat == beats - 1) for beat in range(beats)]

    async def write_memory(self, ctx: Any) -> None:
        """Serve the write port: data may be taken once its address is there."""
        port = "m_axi_store"
        beats: deque[tuple[int, bool]] = deque()
        owed = 0
        while not self.ended:
            answers = owed > 0 and self._willing()
            self._set(ctx, f"{port}_bvalid", answers)
            owed -= answers
            takes = bool(beats) and self._willing()
            self._set(ctx, f"{port}_wready", takes)
            if takes and self._get(ctx, f"{port}_wvalid"):
                address, last = beats.popleft()
                assert self._get(ctx, f"{port}_wlast") == last
                self._write_beat(ctx, address)
                owed += last
            taken = self._willing()
            self._set(ctx, f"{port}_awready", taken)
            if taken and self._get(ctx, f"{port}_awvalid"):
                beats += self._burst(ctx, f"{port}_aw")
            await ctx.tick()

    def _write_beat(self, ctx: Any, address: int) -> None:
        data = self._get(ctx, "m_axi_store_wdata").to_bytes(BEAT, "little")
        strobe = self._get(ctx, "m_axi_store_wstrb")
        for i in range(BEAT):
            if strobe >> i & 1:
                self.dram[address + i] = data[i]

    async def wait_for_interrupt(self, ctx: Any) -> None:
        await ctx.tick().until(self.unit.interrupt)


def run(run_benches: Any, bus: Bus, bench: Any) -> None:
    async def until_end(ctx: Any) -> None:
        await bench(ctx)
        bus.ended = True

    ports = (bus.reader("m_axi_fetch"), bus.reader("m_axi_load"), bus.write_memory)
    run_benches(bus.unit, until_end, *ports)


@pytest.mark.parametrize("share", [1.0, 0.6, 0.3])
def test_programs_run_through_the_ports(
    run_benches: Any, rng: np.random.Generator, share: float
) -> None:
    programs = [random_program(TINY, seed, size=12) for seed in (1, 2)]
    bus = Bus(Accelerator(TINY), programs[0].initial_dram(), lambda: bool(rng.random() < share))

    async def bench(ctx: Any) -> None:
        await bus.write(ctx, Register.INTERRUPT_ENABLE, 1)
        for program in programs:
            bus.dram = program.initial_dram()
            await bus.write(ctx, Register.CODE_ADDRESS, program.code_address)
            await bus.write(ctx, Register.INSTRUCTION_COUNT, len(program.instructions))
            await bus.write(ctx, Register.CONTROL, Control.START)
            await bus.wait_for_interrupt(ctx)
            assert await bus.read(ctx, Register.STATUS) == Status.DONE
            expected = simulate(program, program.initial_dram())
            assert np.array_equal(bus.dram, expected.dram)
            for engine in Engine:
                count = int((expected.timeline.engine == engine).sum())
                base = engine_base(engine)
                assert await bus.read(ctx, base + EngineRegister.STARTED) == count
                assert await bus.read(ctx, base + EngineRegister.FINISHED) == count
                assert await bus.read(ctx, base + EngineRegister.STATE) == 0
            busy = max(expected.timeline.account(engine).busy for engine in Engine)
            assert await bus.read(ctx, Register.CYCLES_LOW) > busy

    run(run_benches, bus, bench)


def deadlock() -> Program:
    """A program whose load waits for a token that nothing gives."""
    return Program(
        config=TINY,
        instructions=(
            Load(memory=Memory.INP, dst=0, entries=1, wait=1 << Engine.GEMM),
            Finish(),
        ),
        code_address=4096,
        dram_bytes=8192,
    )


def test_the_watchdog_stops_a_deadlock_and_reset_recovers(run_benches: Any) -> None:
    bus = Bus(Accelerator(TINY), deadlock().initial_dram(), lambda: True)
    good = random_program(TINY, 3, size=3)

    async def start(ctx: Any, program: Program) -> None:
        bus.dram = program.initial_dram()
        await bus.write(ctx, Register.CODE_ADDRESS, program.code_address)
        await bus.write(ctx, Register.INSTRUCTION_COUNT, len(program.instructions))
        await bus.write(ctx, Register.CONTROL, Control.START)

    async def bench(ctx: Any) -> None:
        await bus.write(ctx, Register.WATCHDOG_CYCLES, 200)
        await bus.write(ctx, Register.INTERRUPT_ENABLE, 1)
        await start(ctx, deadlock())
        assert await bus.read(ctx, Register.STATUS) == Status.RUNNING
        await bus.wait_for_interrupt(ctx)
        assert await bus.read(ctx, Register.STATUS) == Status.RUNNING | Status.STALLED
        state = await bus.read(ctx, engine_base(Engine.LOAD) + EngineRegister.STATE)
        assert state == 1 << Engine.GEMM | 1 << 4
        await bus.write(ctx, Register.CONTROL, Control.RESET)
        assert await bus.read(ctx, Register.STATUS) == 0
        await start(ctx, good)
        await bus.wait_for_interrupt(ctx)
        assert await bus.read(ctx, Register.STATUS) == Status.DONE
        assert np.array_equal(bus.dram, simulate(good, good.initial_dram()).dram)
        await bus.write(ctx, Register.CONTROL, Control.CLEAR)
        assert await bus.read(ctx, Register.STATUS) == 0

    run(run_benches, bus, bench)


def test_identification(run_benches: Any) -> None:
    bus = Bus(Accelerator(TINY), np.zeros(64, np.uint8), lambda: True)
    values = []

    async def bench(ctx: Any) -> None:
        registers = (Register.IDENTIFICATION, Register.ISA_VERSION)
        digest = [Register.CONFIG_DIGEST_0 + 4 * number for number in range(4)]
        for register in (*registers, *digest, 0xFFC):
            values.append(await bus.read(ctx, register))

    run(run_benches, bus, bench)
    digest = bytes.fromhex(config_digest(TINY))[:16]
    words = [int.from_bytes(digest[i : i + 4], "big") for i in range(0, 16, 4)]
    assert values == [IDENTIFICATION, ISA_VERSION, *words, 0]
