"""Tokens for a random program: those that its hazards require, and some that nothing requires."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tilewright.isa.accesses import Accesses, ByteRanges
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import DeadlockError
from tilewright.isa.happens_before import happens_before
from tilewright.isa.instructions import TOKEN_CHANNELS, AnyInstruction, Finish
from tilewright.isa.memories import Engine, Memory, memory_shape

#: Chance that an instruction takes a token which it does not need.
_EXTRA_TOKEN = 0.1

_Units = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One instruction without tokens, and what it touches."""

    instruction: AnyInstruction
    accesses: Accesses

    @property
    def engine(self) -> Engine:
        """The engine that executes it."""
        engine = self.instruction.engine
        assert engine is not None, "finish touches nothing"
        return engine


def synchronised(
    steps: Sequence[Step],
    config: AcceleratorConfig,
    rng: np.random.Generator,
    *,
    dram_bytes: int,
) -> tuple[AnyInstruction, ...]:
    """Add tokens and `Finish` to instructions whose order is the one that data flows in.

    Half of the programs are then dispatched in another order, in which some instructions come
    before those whose tokens they take, as far as the queues allow it.
    """
    instructions = list(_with_tokens(steps, config, rng, dram_bytes))
    finish = Finish()
    if rng.random() < 0.5:
        shuffled = _shuffled(instructions, rng)
        try:
            happens_before((*shuffled, finish), config)
        except DeadlockError:
            pass
        else:
            instructions = shuffled
    return (*instructions, finish)


class _LastUses:
    """The last use of every unit of memory by each engine, as positions in the program."""

    def __init__(self, config: AcceleratorConfig, dram_bytes: int) -> None:
        self._config = config
        sizes = {memory: memory_shape(memory, config).entries for memory in Memory}
        self._scratchpads = {
            memory: np.full((len(Engine), size), -1, np.int64) for memory, size in sizes.items()
        }
        self._dram = np.full((len(Engine), dram_bytes), -1, np.int64)

    def use(self, position: int, step: Step) -> list[int]:
        """Note a step; return per engine the last step that must have finished, or -1."""
        needed = [-1] * len(Engine)
        for table, units in self._touched(step.accesses):
            latest = table[:, units].max(axis=1)
            needed = [max(pair) for pair in zip(needed, latest.tolist(), strict=True)]
            table[step.engine, units] = position
        needed[step.engine] = -1
        return needed

    def _touched(self, found: Accesses) -> Iterator[tuple[npt.NDArray[np.int64], _Units]]:
        for access in (*found.reads, *found.writes):
            units = access.entries
            if access.memory is Memory.ACC:
                units = np.unique(units // self._config.acc_bank_entries)
            yield self._scratchpads[access.memory], units
        for ranges in (found.dram_reads, found.dram_writes):
            if ranges is not None:
                yield self._dram, _bytes_of(ranges)


def _bytes_of(ranges: ByteRanges) -> _Units:
    return np.unique(ranges.starts[:, None] + np.arange(ranges.size_bytes))


def _with_tokens(
    steps: Sequence[Step], config: AcceleratorConfig, rng: np.random.Generator, dram_bytes: int
) -> Iterator[AnyInstruction]:
    uses = _LastUses(config, dram_bytes)
    waits, signals = [0] * len(steps), [0] * len(steps)
    latest = [-1] * len(Engine)
    given = dict.fromkeys(TOKEN_CHANNELS, -1)
    for position, step in enumerate(steps):
        needed = uses.use(position, step)
        for giver in Engine:
            channel = (giver, step.engine)
            source = needed[giver]
            if channel in given and rng.random() < _EXTRA_TOKEN:
                source = latest[giver]
            if channel in given and source > given[channel]:
                given[channel] = source
                waits[position] |= 1 << giver
                signals[source] |= 1 << step.engine
        latest[step.engine] = position
    for step, wait, signal in zip(steps, waits, signals, strict=True):
        yield replace(step.instruction, wait=wait, signal=signal)


def _shuffled(
    instructions: Sequence[AnyInstruction], rng: np.random.Generator
) -> list[AnyInstruction]:
    """Exchange neighbours of different engines at random."""
    result = list(instructions)
    for position in rng.integers(0, len(result) - 1, 3 * len(result)).tolist():
        first, second = result[position : position + 2]
        if first.engine is not second.engine:
            result[position : position + 2] = second, first
    return result
