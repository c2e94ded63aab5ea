"""cocotb benches of single units: instructions in, bytes of memory and of scratchpads out.

What comes out must be what `tilewright.isa.semantics` says. An engine gets the instructions of a
random program that are its own; the semantics execute those between them.
"""

import logging
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import cocotb
import numpy as np
import numpy.typing as npt
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

from tilewright.hw.counters import COUNTS
from tilewright.isa.config_record import config_digest
from tilewright.isa.encoding import OPCODE_BITS, encode
from tilewright.isa.instructions import AnyInstruction, Gemm, GemmLoop
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
from tilewright.isa.semantics import MachineState, execute
from tilewright.isa.timing import cycles_per_entry
from tilewright.sim.random_programs import random_program

#: Length of a cycle; nothing depends on it.
_CYCLE_NS = 10
_RESET_CYCLES = 4
#: A million cycles: a handshake that never comes ends a test, too.
_LIMIT_MS = 10
#: Cycles in which what was written with a finish has surely arrived.
_SETTLE_CYCLES = 4
_SEED = 20_261_130
_STALLS = 0.4


def _pauses(share: float, rng: np.random.Generator) -> Iterator[bool]:
    while True:
        yield from (rng.random(1000) < share).tolist()


async def _reset(dut: Any) -> None:
    logging.getLogger("cocotb").setLevel(logging.WARNING)  # not a line per burst
    for handle in dut:
        if handle._name.endswith(("valid", "ready", "_start", "_running", "_done", "_progress")):
            if not handle._name.startswith(("m_axi", "s_axi")):
                handle.value = 0
    dut.rst.value = 1
    cocotb.start_soon(Clock(dut.clk, _CYCLE_NS, unit="ns").start())
    await ClockCycles(dut.clk, _RESET_CYCLES)
    dut.rst.value = 0
    await ClockCycles(dut.clk, _RESET_CYCLES)


class ReadModel:
    """A scratchpad behind a read port; what was not asked for is noise."""

    def __init__(self, dut: Any, port: str, contents: npt.NDArray[np.uint8]) -> None:
        self._clk = dut.clk
        self._enable = getattr(dut, f"{port}_enable")
        self._address = getattr(dut, f"{port}_address")
        self._data = getattr(dut, f"{port}_data")
        self._contents = contents

    async def serve(self) -> None:
        mask = (1 << len(self._data)) - 1
        rng = np.random.default_rng(_SEED)
        noise = int.from_bytes(rng.bytes(self._contents.shape[1]), "little") & mask
        while True:
            await RisingEdge(self._clk)
            if self._enable.value:
                entry = self._contents[int(self._address.value)]
                self._data.value = int.from_bytes(entry.tobytes(), "little") & mask
            else:
                self._data.value = noise


class WriteModel:
    """A scratchpad behind a write port."""

    def __init__(self, dut: Any, port: str, contents: npt.NDArray[np.uint8]) -> None:
        self._clk = dut.clk
        self._enable = getattr(dut, f"{port}_enable")
        self._address = getattr(dut, f"{port}_address")
        self._data = getattr(dut, f"{port}_data")
        self._contents = contents

    async def serve(self) -> None:
        size = self._contents.shape[1]
        while True:
            await RisingEdge(self._clk)
            if self._enable.value:
                data = int(self._data.value).to_bytes(size, "little")
                self._contents[int(self._address.value)] = np.frombuffer(data, np.uint8)


class LoadBusModel:
    """All scratchpads behind the bus of the load engine."""

    def __init__(self, dut: Any, state: MachineState) -> None:
        self._dut = dut
        self._state = state

    async def serve(self) -> None:
        dut = self._dut
        while True:
            await RisingEdge(dut.clk)
            selected = int(dut.load_write_select.value)
            for memory in Memory:
                if selected >> memory & 1:
                    self._write(memory)

    def _write(self, memory: Memory) -> None:
        dut, config = self._dut, self._state.config
        parts, _ = cycles_per_entry(memory, config)
        entry = self._state.bytes[memory][int(dut.load_write_address.value)].reshape(parts, -1)
        data = int(dut.load_write_data.value).to_bytes(config.port_bytes, "little")
        part = np.frombuffer(data[: entry.shape[1]], np.uint8)
        if dut.load_write_all_parts.value:
            entry[:] = part
        else:
            entry[int(dut.load_write_part.value)] = part


def _models(dut: Any, engine: Engine, state: MachineState) -> list[Any]:
    """Scratchpads around an engine, holding those of a state."""
    held, config = state.bytes, state.config
    banks = held[Memory.ACC].reshape(2, config.acc_bank_entries, -1)
    readers: dict[str, npt.NDArray[np.uint8]] = {}
    writers: dict[str, npt.NDArray[np.uint8]] = {}
    match engine:
        case Engine.LOAD:
            return [LoadBusModel(dut, state)]
        case Engine.GEMM:
            readers = {
                f"gemm_{name}": held[Memory[name.upper()]] for name in ("guop", "inp", "wgt")
            }
        case Engine.VECTOR:
            names = ("vuop", "vec", "coef", "prm")
            readers = {f"vector_{name}": held[Memory[name.upper()]] for name in names}
            words = held[Memory.LUT].reshape(-1, config.port_bytes)
            lanes = config.batch * config.block_out
            readers.update({f"vector_lut_{lane}": words for lane in range(lanes)})
            writers = {"vector_out": held[Memory.OUT]}
        case Engine.STORE:
            readers = {"store_out": held[Memory.OUT]}
    if engine in (Engine.GEMM, Engine.VECTOR):
        name = engine.name.lower()
        readers.update({f"{name}_acc_read_{i}": banks[i] for i in range(2)})
        writers.update({f"{name}_acc_write_{i}": banks[i] for i in range(2)})
    return [
        *(ReadModel(dut, port, contents) for port, contents in readers.items()),
        *(WriteModel(dut, port, contents) for port, contents in writers.items()),
    ]


class EngineDriver:
    """Gives instructions to an engine and waits until they have finished."""

    def __init__(self, dut: Any, engine: Engine, willing: Callable[[], bool]) -> None:
        name = engine.name.lower()
        self._clk = dut.clk
        self._valid = getattr(dut, f"{name}_instruction_valid")
        self._ready = getattr(dut, f"{name}_instruction_ready")
        self._payload = getattr(dut, f"{name}_instruction_payload")
        self._finish = getattr(dut, f"{name}_finish")
        self._signal = getattr(dut, f"{name}_signal")
        self._willing = willing

    async def run(self, instructions: list[AnyInstruction]) -> None:
        """Run instructions back to back; each must give the tokens that it names."""
        giving = cocotb.start_soon(self._give(instructions))
        signals: list[int] = []
        while len(signals) < len(instructions):
            await RisingEdge(self._clk)
            if self._finish.value:
                signals.append(int(self._signal.value))
        await giving
        assert signals == [int(item.signal) for item in instructions]
        for _ in range(_SETTLE_CYCLES):
            await RisingEdge(self._clk)
            assert not self._finish.value, "more finishes than instructions"

    async def _give(self, instructions: list[AnyInstruction]) -> None:
        for instruction in instructions:
            while not self._willing():
                await RisingEdge(self._clk)
            word = int.from_bytes(encode(instruction, TINY), "little") >> OPCODE_BITS
            self._payload.value = word & (1 << len(self._payload)) - 1
            self._valid.value = 1
            await RisingEdge(self._clk)
            while not self._ready.value:
                await RisingEdge(self._clk)
            self._valid.value = 0


class DramModel:
    """The bus models of all memory ports, on one memory that is renewed for each program."""

    def __init__(self, dut: Any, share: float, rng: np.random.Generator) -> None:
        self._ports: list[Any] = [
            AxiRamRead(AxiReadBus.from_prefix(dut, "m_axi_fetch"), dut.clk, dut.rst, size=1),
            AxiRamRead(AxiReadBus.from_prefix(dut, "m_axi_load"), dut.clk, dut.rst, size=1),
            AxiRamWrite(AxiWriteBus.from_prefix(dut, "m_axi_store"), dut.clk, dut.rst, size=1),
        ]
        if share:
            fetch, load, store = self._ports
            for channel in (
                *(fetch.ar_channel, fetch.r_channel, load.ar_channel, load.r_channel),
                *(store.aw_channel, store.w_channel, store.b_channel),
            ):
                channel.set_pause_generator(_pauses(share, rng))

    def hold(self, contents: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Hold these bytes, up to the end of a burst, and return a view of them."""
        memory = bytearray(contents.tobytes().ljust(-(-len(contents) // 4096) * 4096, b"\0"))
        for port in self._ports:
            port.mem, port.size = memory, len(memory)
        return np.frombuffer(memory, np.uint8)[: len(contents)]


def _with_inputs(program: Program, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    dram = program.initial_dram()
    for buffer in program.inputs:
        end = buffer.address + buffer.size_bytes
        dram[buffer.address : end] = rng.integers(0, 256, buffer.size_bytes)
    return dram


async def _check_engine(dut: Any, engine: Engine, seeds: range, share: float) -> None:
    rng = np.random.default_rng(_SEED)
    memory = DramModel(dut, share, rng)
    driver = EngineDriver(dut, engine, lambda: not share or bool(rng.random() >= share))
    await _reset(dut)
    executed = 0
    for seed in seeds:
        program = random_program(TINY, seed)
        dram = _with_inputs(program, rng)
        expected = MachineState(TINY, dram.copy())
        state = MachineState(TINY, memory.hold(dram))
        tasks = [cocotb.start_soon(model.serve()) for model in _models(dut, engine, state)]
        for own, group in groupby(program.instructions, lambda item: item.engine is engine):
            instructions = list(group)
            for instruction in instructions:
                execute(instruction, expected)
            if own:
                await driver.run(instructions)
                executed += len(instructions)
                _demand_equal(state, expected)
            else:
                for item in Memory:
                    state.bytes[item][...] = expected.bytes[item]
                state.dram[...] = expected.dram
        for task in tasks:
            task.cancel()
    assert executed > len(seeds), "the programs hold instructions for this engine"


async def _check_returns(dut: Any) -> None:
    """Come back to an accumulator after two to five others, while its last sum is on its way."""
    rng = np.random.default_rng(_SEED)
    driver = EngineDriver(dut, Engine.GEMM, lambda: True)
    await _reset(dut)
    expected = MachineState(TINY, np.zeros(0, np.uint8))
    for memory in (Memory.INP, Memory.WGT, Memory.ACC):
        expected.bytes[memory][...] = rng.integers(0, 256, expected.bytes[memory].shape)
    state = MachineState(TINY, np.zeros(0, np.uint8))
    for memory in Memory:
        state.bytes[memory][...] = expected.bytes[memory]
    tasks = [cocotb.start_soon(model.serve()) for model in _models(dut, Engine.GEMM, state)]
    for apart in range(2, 6):
        loops = (GemmLoop(extent=7, src=1, wgt=1), GemmLoop(extent=apart, dst=1), GemmLoop())
        gemm = Gemm(accumulate=True, uop_count=1, loops=loops)
        execute(gemm, expected)
        await driver.run([gemm])
        _demand_equal(state, expected)
    for task in tasks:
        task.cancel()


def _demand_equal(state: MachineState, expected: MachineState) -> None:
    np.testing.assert_array_equal(state.dram, expected.dram)
    for memory in Memory:
        np.testing.assert_array_equal(state.bytes[memory], expected.bytes[memory], memory.name)


async def _check_fetch(dut: Any, seeds: range, share: float, held_back: float) -> None:
    """Stall the bus for a share of the cycles, and hold instructions back for another one."""
    rng = np.random.default_rng(_SEED)
    memory = DramModel(dut, share, rng)
    await _reset(dut)
    for seed in seeds:
        program = random_program(TINY, seed)
        memory.hold(program.initial_dram())
        dut.fetch_address.value = program.code_address
        dut.fetch_count.value = len(program.instructions)
        dut.fetch_start.value = 1
        await RisingEdge(dut.clk)
        dut.fetch_start.value = 0
        words: list[int] = []
        while len(words) < len(program.instructions):
            dut.fetch_instruction_ready.value = ready = int(rng.random() >= held_back)
            await RisingEdge(dut.clk)
            if ready and dut.fetch_instruction_valid.value:
                words.append(int(dut.fetch_instruction_payload.value))
        dut.fetch_instruction_ready.value = 1
        for _ in range(4 * _SETTLE_CYCLES):
            await RisingEdge(dut.clk)
            assert not dut.fetch_instruction_valid.value, "more than was asked for"
        assert words == [
            int.from_bytes(encode(item, TINY), "little") for item in program.instructions
        ]


class Registers:
    """The control registers behind a manager of AXI4-Lite."""

    def __init__(self, dut: Any, share: float, rng: np.random.Generator) -> None:
        bus = AxiLiteBus.from_prefix(dut, "s_axi_control")
        self._manager = AxiLiteMaster(bus, dut.clk, dut.rst)
        read, write = self._manager.read_if, self._manager.write_if
        if share:
            for channel in (
                *(read.ar_channel, read.r_channel),
                *(write.aw_channel, write.w_channel, write.b_channel),
            ):
                channel.set_pause_generator(_pauses(share, rng))

    async def write(self, register: int, value: int) -> None:
        await self._manager.write_dword(register, value)

    async def read(self, register: int) -> int:
        value: int = await self._manager.read_dword(register)
        return value


async def _pulse(dut: Any, name: str) -> None:
    handle = getattr(dut, name)
    handle.value = 1
    await RisingEdge(dut.clk)
    handle.value = 0
    await RisingEdge(dut.clk)


async def _count_pulses(dut: Any, name: str, seen: list[int]) -> None:
    handle = getattr(dut, name)
    while True:
        await RisingEdge(dut.clk)
        if handle.value:
            seen.append(int(dut.control_code_address.value))


async def _check_control(dut: Any, share: float) -> None:
    rng = np.random.default_rng(_SEED)
    registers = Registers(dut, share, rng)
    await _reset(dut)
    await _check_constants(registers)
    await _check_counters(dut, registers, rng)
    starts: list[int] = []
    counting = cocotb.start_soon(_count_pulses(dut, "control_start", starts))
    await registers.write(Register.CODE_ADDRESS, 0x1234_5000)
    await registers.write(Register.INSTRUCTION_COUNT, 77)
    await registers.write(Register.WATCHDOG_CYCLES, 0)
    await registers.write(Register.CONTROL, Control.START)
    assert starts == [0x1234_5000], "one cycle of start, with the address"
    assert int(dut.control_instruction_count.value) == 77
    dut.control_running.value = 1
    await RisingEdge(dut.clk)
    assert await registers.read(Register.STATUS) == Status.RUNNING
    await _pulse(dut, "control_done")
    dut.control_running.value = 0
    await RisingEdge(dut.clk)
    assert not dut.control_interrupt.value, "not enabled"
    await registers.write(Register.INTERRUPT_ENABLE, 1)
    assert dut.control_interrupt.value
    assert await registers.read(Register.STATUS) == Status.DONE
    await registers.write(Register.CONTROL, Control.CLEAR)
    assert await registers.read(Register.STATUS) == 0
    assert not dut.control_interrupt.value
    await _check_watchdog(dut, registers)
    counting.cancel()
    assert len(starts) == 1


async def _check_constants(registers: Registers) -> None:
    assert await registers.read(Register.IDENTIFICATION) == IDENTIFICATION
    assert await registers.read(Register.ISA_VERSION) == ISA_VERSION
    digest = bytes.fromhex(config_digest(TINY))
    for number in range(4):
        word = await registers.read(Register.CONFIG_DIGEST_0 + 4 * number)
        assert word.to_bytes(4, "big") == digest[4 * number : 4 * number + 4]
    await registers.write(Register.IDENTIFICATION, 5)
    assert await registers.read(Register.IDENTIFICATION) == IDENTIFICATION, "not writable"
    assert await registers.read(0x7C) == 0, "no register"


async def _check_counters(dut: Any, registers: Registers, rng: np.random.Generator) -> None:
    values = rng.integers(0, 1 << 32, (len(Engine), len(COUNTS)))
    for engine in Engine:
        for number in range(len(COUNTS)):
            getattr(dut, f"control_counts_{int(engine)}_{number}").value = int(
                values[engine, number]
            )
    await RisingEdge(dut.clk)
    for engine in Engine:
        for number, register in enumerate(list(EngineRegister)[1:]):
            word = await registers.read(engine_base(engine) + register)
            assert word == values[engine, number], (engine.name, register.name)


async def _check_watchdog(dut: Any, registers: Registers) -> None:
    """Quiet cycles count from the last progress, and only while a program runs."""
    limit = 200
    await registers.write(Register.WATCHDOG_CYCLES, limit)
    dut.control_running.value = 1
    for _ in range(5):
        await ClockCycles(dut.clk, limit // 2)
        await _pulse(dut, "control_progress")
    assert await registers.read(Register.STATUS) == Status.RUNNING
    await ClockCycles(dut.clk, limit + _SETTLE_CYCLES)
    assert await registers.read(Register.STATUS) == Status.RUNNING | Status.STALLED
    assert dut.control_interrupt.value
    dut.control_running.value = 0
    await registers.write(Register.CONTROL, Control.RESET)
    assert await registers.read(Register.STATUS) == 0


def _bench(check: Callable[[Any], Any], name: str) -> Any:
    async def run(dut: Any) -> None:
        await check(dut)

    run.__name__ = run.__qualname__ = name
    return cocotb.test(timeout_time=_LIMIT_MS, timeout_unit="ms")(run)


fetch = _bench(lambda dut: _check_fetch(dut, range(5), 0.0, 0.0), "fetch")
fetch_held_back = _bench(lambda dut: _check_fetch(dut, range(2), 0.0, 0.95), "fetch_held_back")
fetch_with_stalls = _bench(
    lambda dut: _check_fetch(dut, range(5), _STALLS, _STALLS), "fetch_with_stalls"
)
load = _bench(lambda dut: _check_engine(dut, Engine.LOAD, range(3), 0.0), "load")
load_with_stalls = _bench(
    lambda dut: _check_engine(dut, Engine.LOAD, range(3, 6), _STALLS), "load_with_stalls"
)
gemm = _bench(lambda dut: _check_engine(dut, Engine.GEMM, range(3), 0.0), "gemm")
gemm_returns = _bench(_check_returns, "gemm_returns")
gemm_with_stalls = _bench(
    lambda dut: _check_engine(dut, Engine.GEMM, range(3, 6), _STALLS), "gemm_with_stalls"
)
vector = _bench(lambda dut: _check_engine(dut, Engine.VECTOR, range(3), 0.0), "vector")
vector_with_stalls = _bench(
    lambda dut: _check_engine(dut, Engine.VECTOR, range(3, 6), _STALLS), "vector_with_stalls"
)
store = _bench(lambda dut: _check_engine(dut, Engine.STORE, range(3), 0.0), "store")
store_with_stalls = _bench(
    lambda dut: _check_engine(dut, Engine.STORE, range(3, 6), _STALLS), "store_with_stalls"
)
control = _bench(lambda dut: _check_control(dut, 0.0), "control")
control_with_stalls = _bench(lambda dut: _check_control(dut, _STALLS), "control_with_stalls")
load_many = _bench(lambda dut: _check_engine(dut, Engine.LOAD, range(40), _STALLS), "load_many")
gemm_many = _bench(lambda dut: _check_engine(dut, Engine.GEMM, range(40), _STALLS), "gemm_many")
vector_many = _bench(
    lambda dut: _check_engine(dut, Engine.VECTOR, range(40), _STALLS), "vector_many"
)
store_many = _bench(lambda dut: _check_engine(dut, Engine.STORE, range(40), _STALLS), "store_many")
