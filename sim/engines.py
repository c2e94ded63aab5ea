"""The clocks of the four engines: how an instruction moves an engine on from its start."""

from typing import NamedTuple, Protocol

from typing_extensions import assert_never

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import AnyInstruction, Gemm, Load, Store, Vector, VectorTarget
from tilewright.isa.memories import Engine
from tilewright.isa.timing import (
    ISSUE_START_CYCLES,
    LOAD_START_CYCLES,
    LOAD_WRITE_CYCLES,
    LOADS_AHEAD,
    STORE_START_CYCLES,
    VECTOR_STAGES,
    gemm_stages,
    steps,
)
from tilewright.sim.ports import load_port, response_cycles, store_port
from tilewright.sim.transfers import load_key, store_key


class Execution(NamedTuple):
    """How an engine executed one instruction."""

    #: Cycle of the last step.
    last_step: int
    finish: int
    #: Cycles from the start, or from the last step of the instruction before if that was later,
    #: to the last step: making a step or starting up, and waiting for memory.
    busy: int
    memory_wait: int
    #: Bytes moved between DRAM and scratchpads.
    dram_bytes: int


class EngineClock(Protocol):
    """One engine in time. Instructions are given to it in program order."""

    #: Cycle after the last step of the latest instruction.
    idle_from: int
    #: First cycle in which the issue stage takes the next instruction.
    free_from: int

    def execute(self, instruction: AnyInstruction, start: int) -> Execution:
        """Start the next instruction in a cycle that is not before `free_from`."""


class IssueClock:
    """The gemm or the vector engine: a sequencer in front of a pipeline of fixed depth."""

    def __init__(self, stages: int) -> None:
        self.idle_from = 0
        self.free_from = 0
        self._stages = stages

    def execute(self, instruction: AnyInstruction, start: int) -> Execution:
        """Issue one step per cycle."""
        assert isinstance(instruction, (Gemm, Vector)), "gemm and vector issue steps"
        busy = ISSUE_START_CYCLES + steps(instruction)
        last_step = start + busy - 1
        finish = last_step + self._stages
        self.idle_from = last_step + 1
        writes_acc = isinstance(instruction, Vector) and instruction.target is VectorTarget.ACC
        self.free_from = finish + 1 if writes_acc else self.idle_from
        return Execution(last_step, finish, busy, 0, 0)


class LoadClock:
    """The load engine."""

    def __init__(self, config: AcceleratorConfig) -> None:
        self.idle_from = 0
        self.free_from = 0
        self._config = config
        self._port = load_port(config)
        self._state = self._port.idle
        self._start = 0
        #: Last steps of the latest instructions.
        self._written = [-1] * LOADS_AHEAD

    def execute(self, instruction: AnyInstruction, start: int) -> Execution:
        """Send the addresses of all bursts, and write what arrives."""
        assert isinstance(instruction, Load), "the load engine executes loads"
        shape = self._port.shape(load_key(instruction, self._config))
        transfer = shape.transfer
        self._state = state = self._port.run(shape, self._state, start - self._start)
        self._start = start
        last_step = start + state.step
        began = max(start, self.idle_from)
        busy = max(0, start + LOAD_START_CYCLES - began) + transfer.steps
        self.idle_from = last_step + 1
        self._written = [*self._written[1:], last_step]
        self.free_from = 1 + max(start + state.address, self._written[0])
        memory_wait = self.idle_from - began - busy
        finish = last_step + LOAD_WRITE_CYCLES
        return Execution(last_step, finish, busy, memory_wait, transfer.data_bytes)


class StoreClock:
    """The store engine."""

    def __init__(self, config: AcceleratorConfig) -> None:
        self.idle_from = 0
        self.free_from = 0
        self._config = config
        self._port = store_port(config)
        self._state = self._port.idle
        self._start = 0

    def execute(self, instruction: AnyInstruction, start: int) -> Execution:
        """Stream all bursts and wait for the last response."""
        assert isinstance(instruction, Store), "the store engine executes stores"
        shape = self._port.shape(store_key(instruction, self._config))
        transfer = shape.transfer
        self._state = state = self._port.run(shape, self._state, start - self._start)
        self._start = start
        last_step = start + state.step
        busy = STORE_START_CYCLES + transfer.steps
        self.idle_from = self.free_from = last_step + 1
        memory_wait = self.idle_from - start - busy
        finish = last_step + response_cycles(self._config)
        return Execution(last_step, finish, busy, memory_wait, transfer.data_bytes)


def make_clock(engine: Engine, config: AcceleratorConfig) -> EngineClock:
    """Make the clock of an engine at cycle 0."""
    match engine:
        case Engine.LOAD:
            return LoadClock(config)
        case Engine.GEMM:
            return IssueClock(gemm_stages(config))
        case Engine.VECTOR:
            return IssueClock(VECTOR_STAGES)
        case Engine.STORE:
            return StoreClock(config)
        case _:
            assert_never(engine)
