"""Dependency tokens by data flow: the few synchronisations that order all hazards.

Cross-engine hazards (read after write, write after read, write after write) are found exactly, on
scratchpad entries, banks of `acc`, and DRAM bytes. Vector clocks tell which of them are implied by
earlier ones: since engines finish their instructions in order, a clock is one instruction number
per engine. What remains becomes one token each. Tokens follow program order, hence the program
cannot deadlock.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tilewright.compiler.lowering.scratchpads import Span
from tilewright.compiler.lowering.tasks import DramRegion, Task
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import AnyInstruction
from tilewright.isa.memories import Engine, Memory, memory_shape

IndexArray = npt.NDArray[np.int32]
#: For each engine the number of its last instruction that is known to have finished, or -1.
Clock = tuple[int, ...]

_NEVER = -1


def assign_tokens(
    tasks: Sequence[Task], config: AcceleratorConfig, *, dram_begin: int, dram_end: int
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
    """
    hazards = _Hazards(config, dram_begin, dram_end)
    started: list[Clock] = [(_NEVER,) * len(Engine)] * len(Engine)
    clocks: list[list[Clock]] = [[] for _ in Engine]
    positions: list[list[int]] = [[] for _ in Engine]
    waits = [0] * len(tasks)
    signals = [0] * len(tasks)
    for position, task in enumerate(tasks):
        engine = _engine(task)
        number = len(clocks[engine])
        clock, givers = _synchronise(hazards.required(task, engine), started[engine], clocks)
        for giver in givers:
            waits[position] |= 1 << giver
            source = positions[giver][clock[giver]]
            signals[source] |= 1 << engine
        started[engine] = clock
        clocks[engine].append(clock)
        positions[engine].append(position)
        hazards.record(task, engine, number)
    return [
        replace(task.instruction, wait=wait, signal=signal)
        for task, wait, signal in zip(tasks, waits, signals, strict=True)
    ]


def _synchronise(
    required: Sequence[int], known: Clock, clocks: Sequence[Sequence[Clock]]
) -> tuple[Clock, list[Engine]]:
    """Merge what an instruction requires into what its engine knows; name the tokens it takes."""
    needed = [giver for giver in Engine if required[giver] > known[giver]]
    implied_by = {giver: clocks[giver][required[giver]] for giver in needed}
    givers = [
        giver
        for giver in needed
        if not any(
            implied_by[other][giver] >= required[giver] for other in needed if other is not giver
        )
    ]
    merged = list(known)
    for giver in givers:
        merged = [max(pair) for pair in zip(merged, implied_by[giver], strict=True)]
        merged[giver] = max(merged[giver], required[giver])
    return tuple(merged), givers


def _engine(task: Task) -> Engine:
    engine = task.instruction.engine
    assert engine is not None, "a task runs on an engine"
    return engine


class _Hazards:
    """The last reader and the last writer of every entry and every DRAM granule, per engine."""

    def __init__(self, config: AcceleratorConfig, dram_begin: int, dram_end: int) -> None:
        self._bank = config.acc_bank_entries
        depth = {memory: memory_shape(memory, config).entries for memory in Memory}
        depth[Memory.ACC] = memory_shape(Memory.ACC, config).banks
        self._read = {m: np.full((len(Engine), n), _NEVER, np.int32) for m, n in depth.items()}
        self._written = {m: np.full((len(Engine), n), _NEVER, np.int32) for m, n in depth.items()}
        self._granule = config.batch * min(config.block_in, config.block_out)
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
