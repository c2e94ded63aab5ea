"""Which instructions have finished before which start, under any timing; deadlocks; token counts.

A program may rely on this order, and not on what pipelines and memory ports guarantee beyond it:

- an engine starts its instructions in program order, and finishes them in program order;
- an instruction starts before it finishes;
- the n-th instruction that takes a token from a channel starts after the n-th instruction that
  gives one to it has finished;
- instructions are dispatched in program order, and instruction n of an engine is dispatched after
  instruction n - `queue_entries` of that engine has started.

Engines, counters and queues are deterministic, so whether a program deadlocks does not depend on
how long anything takes, and one execution decides it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import DeadlockError, ProgramError
from tilewright.isa.instructions import TOKEN_CHANNELS, AnyInstruction, instruction_name
from tilewright.isa.memories import Engine

#: For each engine, how many of its instructions have started, then how many have finished.
Clock = list[int]

_ENGINES = len(Engine)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HappensBefore:
    """The order in which a program without deadlock executes, whatever the timing."""

    #: The program.
    instructions: tuple[AnyInstruction, ...]
    #: Program positions of the instructions of each engine.
    of_engine: tuple[tuple[int, ...], ...]
    #: Position of each instruction among those of its engine.
    engine_position: tuple[int, ...]
    #: Program positions in an order that agrees with the guaranteed one, program order if that
    #: does; without `Finish`.
    sequence: tuple[int, ...]
    #: Per program position: what has certainly started and finished when it starts; empty for
    #: `Finish`.
    clocks: tuple[Sequence[int], ...]

    def finished(self, position: int, engine: Engine) -> int:
        """Instructions of an engine that have finished before the one at `position` starts."""
        return self.clocks[position][_ENGINES + engine]

    def started(self, position: int, engine: Engine) -> int:
        """Instructions of an engine that have started before the one at `position` starts."""
        return self.clocks[position][engine]

    def name(self, position: int) -> str:
        """Name an instruction in messages."""
        opcode = self.instructions[position].opcode
        return instruction_name(opcode, position, self.engine_position[position])


def engine_positions(instructions: Sequence[AnyInstruction]) -> tuple[int, ...]:
    """Number the instructions of each engine, and those of none, from 0."""
    counts: dict[Engine | None, int] = dict.fromkeys((*Engine, None), 0)
    result = []
    for instruction in instructions:
        result.append(counts[instruction.engine])
        counts[instruction.engine] += 1
    return tuple(result)


def happens_before(
    instructions: Sequence[AnyInstruction], config: AcceleratorConfig
) -> HappensBefore:
    """Execute the tokens and queues of a program.

    `instructions` wait and signal on existing channels only.

    Raises
    ------
    DeadlockError
        If not every instruction can start; says what each engine waits for.
    """
    return _Execution(instructions, config).run()


def check_tokens(order: HappensBefore, config: AcceleratorConfig) -> None:
    """Check that every counter is zero in the end and never exceeds its limit, under any timing.

    When its n-th token is given, a counter holds at most n less the tokens that have certainly
    been taken before; in the execution in which nothing else is taken early it holds just that.
    """
    for giver, taker in sorted(TOKEN_CHANNELS):
        gives = [i for i in order.of_engine[giver] if order.instructions[i].signal >> taker & 1]
        taken = [0]
        for i in order.of_engine[taker]:
            taken.append(taken[-1] + (order.instructions[i].wait >> giver & 1))
        channel = f"the tokens from {giver.name.lower()} to {taker.name.lower()}"
        for count, position in enumerate(gives, 1):
            held = count - taken[order.started(position, taker)]
            if held > config.token_limit:
                raise ProgramError(
                    f"{order.name(position)}: {channel} may come to {held}, more than"
                    f" token_limit ({config.token_limit})"
                )
        if len(gives) != taken[-1]:
            raise ProgramError(
                f"{channel} do not balance: {len(gives)} are given and {taken[-1]} are taken"
            )


class _Execution:
    """One execution, in which everything happens as early as it can."""

    def __init__(self, instructions: Sequence[AnyInstruction], config: AcceleratorConfig) -> None:
        self._instructions = instructions
        self._queue_entries = config.queue_entries
        self._engine_position = engine_positions(instructions)
        self._of_engine = [
            [i for i, item in enumerate(instructions) if item.engine is engine] for engine in Engine
        ]
        self._dispatched = 0
        self._queued = [0] * _ENGINES
        self._started = [0] * _ENGINES
        self._dispatch_clock: Clock = [0] * (2 * _ENGINES)
        self._clocks: list[Clock] = [[] for _ in instructions]
        #: Per channel the clocks of the tokens given and the number taken.
        self._given: dict[tuple[Engine, Engine], list[Clock]] = {
            channel: [] for channel in TOKEN_CHANNELS
        }
        self._taken = dict.fromkeys(TOKEN_CHANNELS, 0)
        self._sequence: list[int] = []

    def run(self) -> HappensBefore:
        while self._dispatch() or any(self._start(engine) for engine in self._by_position()):
            pass
        if self._dispatched < len(self._instructions) or self._started != self._queued:
            raise DeadlockError(f"deadlock: {', '.join(self._waits())}")
        return HappensBefore(
            instructions=tuple(self._instructions),
            of_engine=tuple(tuple(item) for item in self._of_engine),
            engine_position=self._engine_position,
            sequence=tuple(self._sequence),
            clocks=tuple(self._clocks),
        )

    def _by_position(self) -> list[Engine]:
        """List the engines that have an instruction, the earliest in the program first."""
        heads = [
            (self._of_engine[engine][self._started[engine]], engine)
            for engine in Engine
            if self._started[engine] < self._queued[engine]
        ]
        return [engine for _, engine in sorted(heads)]

    def _dispatch(self) -> bool:
        """Fill the queues; the clock of a start first holds that of its dispatch."""
        before = self._dispatched
        while self._dispatched < len(self._instructions):
            engine = self._instructions[self._dispatched].engine
            if engine is not None:
                leaver = self._queued[engine] - self._queue_entries
                if leaver >= self._started[engine]:
                    break
                if leaver >= 0:
                    clock = self._clocks[self._of_engine[engine][leaver]]
                    self._dispatch_clock = _latest(self._dispatch_clock, clock)
                    self._dispatch_clock[engine] = max(self._dispatch_clock[engine], leaver + 1)
                self._queued[engine] += 1
                self._clocks[self._dispatched] = self._dispatch_clock.copy()
            self._dispatched += 1
        return self._dispatched > before

    def _start(self, engine: Engine) -> bool:
        """Start and finish the next instruction of an engine if its tokens are there."""
        index = self._started[engine]
        position = self._of_engine[engine][index]
        instruction = self._instructions[position]
        channels = [(giver, engine) for giver in Engine if instruction.wait >> giver & 1]
        if any(self._taken[item] == len(self._given[item]) for item in channels):
            return False
        clock = self._clocks[position]
        if index:
            clock = _latest(clock, self._clocks[self._of_engine[engine][index - 1]])
            clock[engine] = index
        for channel in channels:
            clock = _latest(clock, self._given[channel][self._taken[channel]])
            self._taken[channel] += 1
        self._clocks[position] = clock
        self._give(engine, instruction, clock, index + 1)
        self._started[engine] = index + 1
        self._sequence.append(position)
        return True

    def _give(
        self, engine: Engine, instruction: AnyInstruction, clock: Clock, finished: int
    ) -> None:
        if instruction.signal:
            clock = clock.copy()
            clock[engine] = clock[_ENGINES + engine] = finished
            for taker in Engine:
                if instruction.signal >> taker & 1:
                    self._given[engine, taker].append(clock)

    def _waits(self) -> list[str]:
        """Say for each engine, and for the dispatcher, what it waits for."""
        result = [self._wait_of(engine) for engine in Engine]
        if self._dispatched < len(self._instructions):
            name = self._describe(self._dispatched)
            engine = self._instructions[self._dispatched].engine
            assert engine is not None, "Finish needs no room in a queue"
            result.append(f"dispatch waits for room in the queue of {_name(engine)} at {name}")
        return result

    def _wait_of(self, engine: Engine) -> str:
        index = self._started[engine]
        if index == len(self._of_engine[engine]):
            return f"{_name(engine)} is done"
        position = self._of_engine[engine][index]
        if index == self._queued[engine]:
            return f"{_name(engine)} waits for the dispatch of {self._describe(position)}"
        wait = self._instructions[position].wait
        missing = [
            _name(giver)
            for giver in Engine
            if wait >> giver & 1 and self._taken[giver, engine] == len(self._given[giver, engine])
        ]
        return (
            f"{_name(engine)} waits for a token from {' and '.join(missing)}"
            f" at {self._describe(position)}"
        )

    def _describe(self, position: int) -> str:
        opcode = self._instructions[position].opcode
        return instruction_name(opcode, position, self._engine_position[position])


def _latest(first: Clock, second: Clock) -> Clock:
    return list(map(max, first, second))


def _name(engine: Engine) -> str:
    return engine.name.lower()
