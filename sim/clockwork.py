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


class _Record(NamedTuple):
    """One row of a `Timeline`."""

    dispatch: int
    start: int
    fetch_wait: int
    token_wait: int
    token_giver: int
    drain: int
    execution: Execution


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
        self._records: list[_Record | None] = [None] * len(instructions)

    def run(self) -> Timeline:
        for position, instruction in enumerate(self._instructions[:-1]):
            engine = instruction.engine
            assert engine is not None, "only the last instruction is a finish"
            self._dispatch(position, engine)
            self._advance(engine)
        if any(self._queues):
            self._report_deadlock()
        return self._timeline()

    def _dispatch(self, position: int, engine: Engine) -> None:
        cycle = self._fetch.arrival(position, self._dispatched) + 1
        if position:
            cycle = max(cycle, self._dispatched[-1] + 1)
        blocker = self._queued[engine] - self._config.queue_entries
        if blocker >= 0:
            starts = self._starts[engine]
            if blocker >= len(starts):
                self._report_deadlock()
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
        return all(tokens[giver] for giver in _ENGINES[self._instructions[position].wait])

    def _start(self, position: int, engine: Engine) -> int:
        """Execute the head of a queue, whose tokens are there; return its finish."""
        instruction = self._instructions[position]
        clock = self._clocks[engine]
        dispatch = self._dispatched[position]
        idle_from, queued = clock.idle_from, dispatch + QUEUE_CYCLES
        token, token_giver = 0, NO_ENGINE
        for giver in _ENGINES[instruction.wait]:
            cycle = self._tokens[engine][giver].popleft()
            if cycle > token:
                token, token_giver = cycle, giver
        start = max(queued, token, clock.free_from)
        fetched = max(idle_from, queued)
        supplied = max(fetched, token)
        execution = clock.execute(instruction, start)
        self._starts[engine].append(start)
        self._records[position] = _Record(
            dispatch=dispatch,
            start=start,
            fetch_wait=fetched - idle_from,
            token_wait=supplied - fetched,
            token_giver=token_giver if supplied > fetched else NO_ENGINE,
            drain=max(0, start - supplied),
            execution=execution,
        )
        return execution.finish

    def _timeline(self) -> Timeline:
        records = [record for record in self._records if record is not None]
        last = len(self._instructions) - 1
        arrival = self._fetch.arrival(last, self._dispatched)
        finishes = [record.execution.finish for record in records]
        cycles = max(arrival, *finishes, 0) + FINISH_CYCLES
        end = (cycles, cycles, 0, 0, NO_ENGINE, 0, cycles, cycles, 0, 0, 0)
        rows = [(*record[:-1], *record.execution) for record in records]
        table = np.array([*rows, end], dtype=np.int64).T
        engines = [NO_ENGINE if item.engine is None else item.engine for item in self._instructions]
        return Timeline(
            cycles=cycles,
            engine=np.array(engines, dtype=np.int8),
            dispatch=table[0],
            start=table[1],
            fetch_wait=table[2],
            token_wait=table[3],
            token_giver=table[4].astype(np.int8),
            drain=table[5],
            last_step=table[6],
            finish=table[7],
            busy=table[8],
            memory_wait=table[9],
            dram_bytes=table[10],
            fetch_bytes=len(engines) * instruction_bytes(self._config),
        )

    def _report_deadlock(self) -> NoReturn:
        """Raise the error that describes a standstill."""
        happens_before(self._instructions, self._config)
        raise AssertionError("tokens and queues decide alone whether a program deadlocks")
