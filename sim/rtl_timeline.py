"""The timeline of a run on the hardware, made of the cycles in which its events were seen."""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_never

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import instruction_bytes
from tilewright.isa.instructions import AnyInstruction, Finish, Gemm, Load, Store, Vector
from tilewright.isa.memories import Engine
from tilewright.isa.program import Program
from tilewright.isa.timing import (
    LOAD_START_CYCLES,
    LOAD_WRITE_CYCLES,
    QUEUE_CYCLES,
    STORE_DATA_CYCLES,
    STORE_START_CYCLES,
    TOKEN_CYCLES,
    VECTOR_STAGES,
    gemm_stages,
)
from tilewright.sim.timeline import NO_ENGINE, Timeline
from tilewright.sim.transfers import Transfer, TransferKey, load_key, make_transfer, store_key

Cycles: TypeAlias = npt.NDArray[np.int64]

#: The engines that each mask of tokens names.
_ENGINES_OF_MASK = tuple(
    tuple(engine for engine in Engine if mask >> engine & 1) for mask in range(1 << len(Engine))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The cycles in which each instruction was dispatched, started and finished."""

    dispatch: Cycles
    start: Cycles
    finish: Cycles
    #: Last cycle of the program.
    cycles: int


class _Row(NamedTuple):
    last_step: int
    fetch_wait: int = 0
    token_wait: int = 0
    token_giver: int = NO_ENGINE
    drain: int = 0
    busy: int = 0
    memory_wait: int = 0
    dram_bytes: int = 0


def measured_timeline(program: Program, events: Events) -> Timeline:
    """Name what each engine did between the events; the simulator is not asked."""
    rows = _Reader(program, events).rows()
    instructions = program.instructions
    engines = [NO_ENGINE if item.engine is None else item.engine for item in instructions]
    columns = dict(zip(_Row._fields, np.array(rows, dtype=np.int64).T.copy(), strict=True))
    return Timeline(
        cycles=events.cycles,
        engine=np.array(engines, dtype=np.int8),
        dispatch=events.dispatch,
        start=events.start,
        finish=events.finish,
        token_giver=columns.pop("token_giver").astype(np.int8),
        fetch_bytes=len(engines) * instruction_bytes(program.config),
        **columns,
    )


class _Reader:
    """Walks over the instructions in the order in which they started."""

    def __init__(self, program: Program, events: Events) -> None:
        self._program = program
        # Lists: a number at a time comes much faster out of one than out of an array.
        self._dispatch: list[int] = events.dispatch.tolist()
        self._start: list[int] = events.start.tolist()
        self._finish: list[int] = events.finish.tolist()
        self._cycles = events.cycles
        self._tails: dict[type[AnyInstruction], int] = {}
        self._transfers: dict[TransferKey, Transfer] = {}
        self._idle_from = dict.fromkeys(Engine, 0)
        #: First cycle in which each token could be taken, by giver and taker.
        self._tokens = {(giver, taker): deque[int]() for giver in Engine for taker in Engine}

    def rows(self) -> list[_Row]:
        count = range(len(self._program.instructions))
        for position in sorted(count, key=self._finish.__getitem__):
            self._give(position)
        rows = [_Row(last_step=self._cycles)] * len(count)
        for position in sorted(count, key=self._start.__getitem__):
            engine = self._program.instructions[position].engine
            if engine is not None:
                rows[position] = self._row(position, engine)
        return rows

    def _give(self, position: int) -> None:
        instruction = self._program.instructions[position]
        if instruction.engine is None:
            return
        cycle = self._finish[position] + TOKEN_CYCLES
        for taker in _ENGINES_OF_MASK[instruction.signal]:
            self._tokens[instruction.engine, taker].append(cycle)

    def _row(self, position: int, engine: Engine) -> _Row:
        instruction = self._program.instructions[position]
        start = self._start[position]
        token, giver = 0, NO_ENGINE
        for other in _ENGINES_OF_MASK[instruction.wait]:
            cycle = self._tokens[other, engine].popleft()
            if cycle > token:
                token, giver = cycle, int(other)
        idle_from = self._idle_from[engine]
        fetched = max(idle_from, self._dispatch[position] + QUEUE_CYCLES)
        supplied = max(fetched, token)
        began = max(start, idle_from)
        last_step = self._finish[position] - self._tail(instruction)
        self._idle_from[engine] = last_step + 1
        steps, dram_bytes = self._work(instruction, start=start, began=began)
        busy = last_step + 1 - began if steps is None else steps
        return _Row(
            last_step=last_step,
            fetch_wait=fetched - idle_from,
            token_wait=supplied - fetched,
            token_giver=giver if supplied > fetched else NO_ENGINE,
            drain=max(0, start - supplied),
            busy=busy,
            memory_wait=last_step + 1 - began - busy,
            dram_bytes=dram_bytes,
        )

    def _tail(self, instruction: AnyInstruction) -> int:
        kind = type(instruction)
        if kind not in self._tails:
            self._tails[kind] = _tail(instruction, self._program.config)
        return self._tails[kind]

    def _work(
        self, instruction: AnyInstruction, *, start: int, began: int
    ) -> tuple[int | None, int]:
        """Cycles of steps and start-up, none where every cycle is one, and bytes moved.

        `began` is the cycle from which its engine has worked for it.
        """
        match instruction:
            case Load():
                transfer = self._transfer(load_key(instruction, self._program.config))
                startup = max(0, start + LOAD_START_CYCLES - began)
                return startup + transfer.steps, transfer.data_bytes
            case Store():
                transfer = self._transfer(store_key(instruction, self._program.config))
                return STORE_START_CYCLES + transfer.steps, transfer.data_bytes
            case Gemm() | Vector() | Finish():
                return None, 0
            case _:
                assert_never(instruction)

    def _transfer(self, key: TransferKey) -> Transfer:
        if key not in self._transfers:
            self._transfers[key] = make_transfer(key, self._program.config)
        return self._transfers[key]


def _tail(instruction: AnyInstruction, config: AcceleratorConfig) -> int:
    """Cycles from the last step of an instruction to its finish."""
    match instruction:
        case Load():
            return LOAD_WRITE_CYCLES
        case Gemm():
            return gemm_stages(config)
        case Vector():
            return VECTOR_STAGES
        case Store():
            return STORE_DATA_CYCLES + config.dram.write_latency_cycles
        case Finish():
            return 0
        case _:
            assert_never(instruction)
