"""The clock of the simulator: in which cycle each instruction is dispatched, starts and finishes.

Every rule of `docs/microarchitecture.md` says that an event happens at the latest of some earlier
events, each plus a constant; and each queue, token counter and port has one producer and one
consumer. So the times can be computed in any order in which causes come before effects, without a
clock that ticks, and the result does not depend on that order.
"""

from collections import deque
from typing import NamedTuple, NoReturn

import numpy as np

from tilewright.isa.encoding import instruction_bytes
from tilewright.isa.errors import ProgramError
from tilewright.isa.happens_before import happens_before
from tilewright.isa.memories import Engine
from tilewright.isa.program import Program
from tilewright.isa.timing import FINISH_CYCLES, QUEUE_CYCLES, TOKEN_CYCLES
from tilewright.sim.engines import Execution, make_clock
from tilewright.sim.fetch import FetchClock
from tilewright.sim.timeline import NO_ENGINE, Timeline

#: Engines of a token mask.
_ENGINES = tuple(
    tuple(engine for engine in Engine if mask >> engine & 1) for mask in range(1 << len(Engine))
)


class _Note(NamedTuple):
    """What is noted of each instruction."""

    #: Cycle after the last step of the instruction before.
    idle_from: int
    #: Cycle from which all tokens could be taken, and the giver of the last one.
    supplied: int
    token_giver: int
    start: int
    #: As in `Execution`.
    last_step: int
    finish: int
    busy: int
    memory_wait: int
    dram_bytes: int


_NOTED = len(_Note._fields)


def simulate_timing(program: Program) -> Timeline:
    """Compute the cycles of a program; data plays no part.

    Raises
    ------
    DeadlockError
        If no engine can make progress; says what each of them waits for.
    ProgramError
        If the program does not end with its only `Finish`.
    """
    return _Clockwork(program).run()


class _Clockwork:
    """All clocks of one run and the queues and tokens between them."""

    def __init__(self, program: Program) -> None:
        instructions = program.instructions
        ends = [i for i, item in enumerate(instructions) if item.engine is None]
        if ends != [len(instructions) - 1]:
            raise ProgramError("a program must end with its only finish")
        self._instructions = instructions
        self._config = program.config
        self._fetch = FetchClock(program.config, len(instructions))
        self._clocks = [make_clock(engine, program.config) for engine in Engine]
        self._queues: list[deque[int]] = [deque() for _ in Engine]
        self._starts: list[list[int]] = [[] for _ in Engine]
        self._queued = [0] * len(Engine)
        #: First cycle in which each token can be taken, by taker and giver.
        self._tokens: list[list[deque[int]]] = [[deque() for _ in Engine] for _ in Engine]
        self._dispatched: list[int] = []
        #: Notes of all instructions in one flat list, which the garbage collector need not visit.
        self._notes = [0] * (_NOTED * len(instructions))

    def run(self) -> Timeline:
        for position, instruction in enumerate(self._instructions[:-1]):
            engine = instruction.engine
            assert engine is not None, "only the last instruction is a finish"
            self._dispatch(position, engine)
            self._advance(engine)
        if any(self._queues):
            self._raise_deadlock()
        return self._timeline()

    def _dispatch(self, position: int, engine: Engine) -> None:
        cycle = self._fetch.arrival(position, self._dispatched) + 1
        if position and cycle <= self._dispatched[-1]:
            cycle = self._dispatched[-1] + 1
        blocker = self._queued[engine] - self._config.queue_entries
        if blocker >= 0:
            starts = self._starts[engine]
            if blocker >= len(starts):
                self._raise_deadlock()
            cycle = max(cycle, starts[blocker] + 1)
        self._queued[engine] += 1
        self._queues[engine].append(position)
        self._dispatched.append(cycle)

    def _advance(self, engine: Engine) -> None:
        """Start whatever can start now that `engine` has a new instruction."""
        ready = [engine]
        while ready:
            engine = ready.pop()
            queue = self._queues[engine]
            while queue and self._has_tokens(engine, queue[0]):
                position = queue.popleft()
                finish = self._start(position, engine)
                for taker in _ENGINES[self._instructions[position].signal]:
                    self._tokens[taker][engine].append(finish + TOKEN_CYCLES)
                    ready.append(taker)

    def _has_tokens(self, engine: Engine, position: int) -> bool:
        tokens = self._tokens[engine]
        for giver in _ENGINES[self._instructions[position].wait]:
            if not tokens[giver]:
                return False
        return True

    def _start(self, position: int, engine: Engine) -> int:
        """Execute the head of a queue, whose tokens are there; return its finish."""
        instruction = self._instructions[position]
        clock = self._clocks[engine]
        idle_from = clock.idle_from
        supplied, token_giver = 0, NO_ENGINE
        for giver in _ENGINES[instruction.wait]:
            cycle = self._tokens[engine][giver].popleft()
            if cycle > supplied:
                supplied, token_giver = cycle, giver
        start = max(self._dispatched[position] + QUEUE_CYCLES, supplied, clock.free_from)
        execution = clock.execute(instruction, start)
        self._starts[engine].append(start)
        self._note(position, _Note(idle_from, supplied, token_giver, start, *execution))
        return execution.finish

    def _note(self, position: int, note: _Note) -> None:
        self._notes[position * _NOTED : (position + 1) * _NOTED] = note

    def _timeline(self) -> Timeline:
        last = len(self._instructions) - 1
        arrival = self._fetch.arrival(last, self._dispatched)
        finishes = self._notes[_Note._fields.index("finish") :: _NOTED]
        cycles = max(arrival, *finishes) + FINISH_CYCLES
        end = Execution(last_step=cycles, finish=cycles, busy=0, memory_wait=0, dram_bytes=0)
        self._note(last, _Note(cycles, 0, NO_ENGINE, cycles, *end))
        table = np.array(self._notes).reshape(-1, _NOTED)
        column = dict(zip(_Note._fields, table.T, strict=True))
        dispatch = np.array([*self._dispatched, cycles])
        fetched = np.maximum(column["idle_from"], dispatch + QUEUE_CYCLES)
        fetched[-1] = cycles
        ready = np.maximum(fetched, column["supplied"])
        engines = [NO_ENGINE if item.engine is None else item.engine for item in self._instructions]
        return Timeline(
            cycles=cycles,
            engine=np.array(engines, dtype=np.int8),
            dispatch=dispatch,
            start=column["start"],
            last_step=column["last_step"],
            finish=column["finish"],
            fetch_wait=fetched - column["idle_from"],
            token_wait=ready - fetched,
            token_giver=np.where(ready > fetched, column["token_giver"], NO_ENGINE).astype(np.int8),
            drain=np.maximum(column["start"] - ready, 0),
            busy=column["busy"],
            memory_wait=column["memory_wait"],
            dram_bytes=column["dram_bytes"],
            fetch_bytes=len(engines) * instruction_bytes(self._config),
        )

    def _raise_deadlock(self) -> NoReturn:
        """Raise the error that describes a standstill: `happens_before` refuses such a program."""
        happens_before(self._instructions, self._config)
        raise AssertionError("tokens and queues decide alone whether a program deadlocks")
