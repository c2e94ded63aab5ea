"""Dependency tokens by data flow: the few synchronisations that order all hazards.

Cross-engine hazards (read after write, write after read, write after write) are found exactly, on
scratchpad entries, banks of `acc`, and DRAM bytes. Vector clocks tell which of them are implied by
earlier ones: since engines finish their instructions in order, a clock is one instruction number
per engine. What remains becomes one token each. Where queues are longer than `token_limit`, some
givers wait for takers, so that no counter overflows. Tokens follow program order, hence the program
cannot deadlock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tilewright.compiler.lowering.scratchpads import Span
from tilewright.compiler.lowering.tasks import DramRegion, Task
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import TOKEN_CHANNELS, AnyInstruction
from tilewright.isa.memories import Engine, Memory, memory_shape

IndexArray = npt.NDArray[np.int32]
#: For each engine the number of its last instruction that is known to have finished, or -1.
Clock = tuple[int, ...]

_NEVER = -1


def assign_tokens(
    tasks: Sequence[Task],
    config: AcceleratorConfig,
    *,
    dram_begin: int,
    dram_end: int,
    latency_hiding: bool = True,
) -> list[AnyInstruction]:
    """Return the instructions of `tasks` with the tokens that their hazards require.

    Parameters
    ----------
    tasks
        In program order.
    config
        The machine.
    dram_begin, dram_end
        The part of DRAM that the program both writes and reads; outside it there are no hazards.
    latency_hiding
        Without it, a load waits until all that was loaded before has been used.
    """
    hazards = _Hazards(config, dram_begin, dram_end)
    counters = _Counters(config)
    known: list[Clock] = [(_NEVER,) * len(Engine)] * len(Engine)
    clocks: list[list[Clock]] = [[] for _ in Engine]
    positions: list[list[int]] = [[] for _ in Engine]
    waits = [0] * len(tasks)
    signals = [0] * len(tasks)
    for position, task in enumerate(tasks):
        engine = _engine(task)
        required = hazards.required(task, engine)
        if engine is Engine.LOAD and not latency_hiding:
            for user in (Engine.GEMM, Engine.VECTOR):
                required[user] = len(clocks[user]) - 1
        counters.make_room(required, engine)
        clock = known[engine]
        sources = {
            giver: counters.source(giver, engine, required[giver])
            for giver in _givers(required, clock, clocks)
        }
        for giver, number in sources.items():
            clock = _merged(clock, clocks[giver][number], giver, number)
            waits[position] |= 1 << giver
            signals[positions[giver][number]] |= 1 << engine
        known[engine] = clock
        hazards.record(task, engine, len(clocks[engine]))
        counters.record(engine, clock, sources)
        clocks[engine].append(clock)
        positions[engine].append(position)
    return [
        replace(task.instruction, wait=wait, signal=signal)
        for task, wait, signal in zip(tasks, waits, signals, strict=True)
    ]


def _givers(
    required: Sequence[int], known: Clock, clocks: Sequence[Sequence[Clock]]
) -> list[Engine]:
    """Name the engines from which an instruction takes a token to know what it requires."""
    needed = [giver for giver in Engine if required[giver] > known[giver]]
    implied_by = {giver: clocks[giver][required[giver]] for giver in needed}
    return [
        giver
        for giver in needed
        if not any(
            implied_by[other][giver] >= required[giver] for other in needed if other is not giver
        )
    ]


def _merged(clock: Clock, other: Clock, giver: Engine, number: int) -> Clock:
    """Add to a clock that instruction `number` of `giver`, which had the clock `other`, is done."""
    merged = [max(pair) for pair in zip(clock, other, strict=True)]
    merged[giver] = max(merged[giver], number)
    return tuple(merged)


def _engine(task: Task) -> Engine:
    engine = task.instruction.engine
    assert engine is not None, "a task runs on an engine"
    return engine


class _Counters:
    """The tokens taken so far; sees to it that no counter exceeds its limit.

    Whoever gives token n of a channel must start after token n - `token_limit` was taken. Queues
    that are shorter than the limit guarantee that. With others, an instruction waits for the taker
    when it could not give a token otherwise, and a taker that exhausts the limit waits for the last
    instruction of the giver, so that it needs no other token until that engine has gone on.
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self._limit = config.token_limit
        self._queue_entries = config.queue_entries
        #: Per channel the instructions of the taker that took a token.
        self._takers: dict[tuple[Engine, Engine], list[int]] = {
            channel: [] for channel in TOKEN_CHANNELS
        }
        #: For each instruction of an engine, what has started when it starts.
        self._started: list[list[Clock]] = [[] for _ in Engine]

    def make_room(self, required: list[int], engine: Engine) -> None:
        """Let the next instruction of `engine` wait until it can give a token to any other."""
        for taker in Engine:
            takers = self._takers.get((engine, taker), ())
            if len(takers) >= self._limit and takers[-self._limit] > self._dispatched(taker):
                required[taker] = max(required[taker], takers[-self._limit])

    def source(self, giver: Engine, taker: Engine, required: int) -> int:
        """Return the first instruction, `required` or later, that can give the next token."""
        takers, started = self._takers[giver, taker], self._started[giver]
        count, limit = len(takers), self._limit
        if count + 1 >= limit and (limit == 1 or started[-1][taker] < takers[1 - limit]):
            return len(started) - 1
        while count >= limit and started[required][taker] < takers[-limit]:
            required += 1
        return required

    def record(self, engine: Engine, clock: Clock, givers: Iterable[Engine]) -> None:
        """Note the next instruction of `engine`, and from whom it takes tokens."""
        for giver in givers:
            self._takers[giver, engine].append(len(self._started[engine]))
        self._started[engine].append(
            tuple(max(clock[other], self._dispatched(other)) for other in Engine)
        )

    def _dispatched(self, engine: Engine) -> int:
        """Return the last instruction of `engine` that left its queue for the newest to enter."""
        return len(self._started[engine]) - 1 - self._queue_entries


class _Hazards:
    """The last reader and the last writer of every entry and every DRAM granule, per engine."""

    def __init__(self, config: AcceleratorConfig, dram_begin: int, dram_end: int) -> None:
        self._bank = config.acc_bank_entries
        depth = {memory: memory_shape(memory, config).entries for memory in Memory}
        depth[Memory.ACC] = memory_shape(Memory.ACC, config).banks
        self._read = {m: np.full((len(Engine), n), _NEVER, np.int32) for m, n in depth.items()}
        self._written = {m: np.full((len(Engine), n), _NEVER, np.int32) for m, n in depth.items()}
        self._granule = min(config.inp_entry_bytes, config.lane_entry_bytes)
        self._dram_begin = dram_begin
        self._dram_end = dram_end
        granules = -(-(dram_end - dram_begin) // self._granule)
        self._loaded: IndexArray = np.full(granules, _NEVER, np.int32)
        self._stored: IndexArray = np.full(granules, _NEVER, np.int32)

    def required(self, task: Task, engine: Engine) -> list[int]:
        """Per engine, the number of the instruction that must have finished before `task`."""
        needed = [_NEVER] * len(Engine)
        for span in task.reads:
            self._raise(needed, self._written, span)
            if span.memory is Memory.ACC:
                self._raise(needed, self._read, span)
        for span in task.writes:
            self._raise(needed, self._written, span)
            self._raise(needed, self._read, span)
        if task.dram is not None:
            other, table = (
                (Engine.STORE, self._stored)
                if engine is Engine.LOAD
                else (Engine.LOAD, self._loaded)
            )
            view = self._granules(table, task.dram)
            if view is not None:
                needed[other] = max(needed[other], int(view.max()))
        needed[engine] = _NEVER
        return needed

    def record(self, task: Task, engine: Engine, number: int) -> None:
        """Remember what instruction `number` of `engine` touched."""
        for span in task.reads:
            self._read[span.memory][engine, self._slice(span)] = number
        for span in task.writes:
            self._written[span.memory][engine, self._slice(span)] = number
        if task.dram is not None:
            table = self._loaded if engine is Engine.LOAD else self._stored
            view = self._granules(table, task.dram)
            if view is not None:
                view[...] = number

    def _raise(self, needed: list[int], table: dict[Memory, IndexArray], span: Span) -> None:
        latest = table[span.memory][:, self._slice(span)].max(axis=1)
        for engine in Engine:
            needed[engine] = max(needed[engine], int(latest[engine]))

    def _slice(self, span: Span) -> slice:
        if span.memory is Memory.ACC:
            return slice(span.begin // self._bank, -(-span.end // self._bank))
        return slice(span.begin, span.end)

    def _granules(self, table: IndexArray, region: DramRegion) -> IndexArray | None:
        """View of the granules of a region, or None outside the tracked part of DRAM."""
        if not self._dram_begin <= region.address < self._dram_end:
            return None
        unit = self._granule
        first = (region.address - self._dram_begin) // unit
        return np.lib.stride_tricks.as_strided(
            table[first:],
            shape=(region.planes, region.rows, region.row_bytes // unit),
            strides=(4 * (region.plane_stride // unit), 4 * (region.row_stride // unit), 4),
        )
