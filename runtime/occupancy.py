"""How full each scratchpad was over a run: entries that hold something still to be read."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_never

from tilewright.isa.accesses import Accesses, accesses, uop_entries
from tilewright.isa.data_rules import LoadedUops, StaticData
from tilewright.isa.instructions import Finish, Gemm, Load, Store, Vector
from tilewright.isa.memories import Memory, memory_shapes
from tilewright.isa.program import Program
from tilewright.sim.timeline import Timeline

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Occupancy:
    """Entries of one scratchpad in use.

    An entry is in use from the start of the instruction that writes it to the finish of the last
    one that reads it before it is written anew; what nobody reads does not count.
    """

    memory: Memory
    #: Entries that there are.
    depth: int
    #: Most entries in use in one cycle.
    peak: int
    #: Entries in use, averaged over all cycles.
    mean: float
    #: Cycles from which on `used` entries are in use; begins with cycle 0.
    begin: IntArray
    used: IntArray

    def highest(self, bins: int, cycles: int) -> list[int]:
        """Return the most entries in use in each of `bins` equal parts of `cycles`."""
        edges = np.linspace(0, cycles, bins + 1)[:-1].astype(np.int64)
        result = self.used[np.searchsorted(self.begin, edges, side="right") - 1].copy()
        part = np.searchsorted(edges, self.begin, side="right") - 1
        np.maximum.at(result, part, self.used)
        highest: list[int] = result.tolist()
        return highest


def occupancies(
    programs: Sequence[Program], timelines: Sequence[Timeline]
) -> tuple[Occupancy, ...]:
    """Return the use of every scratchpad in a run of programs, one behind the other in time.

    Parameters
    ----------
    programs
        At least one; all for one configuration.
    timelines
        Timing of each.
    """
    shapes = memory_shapes(programs[0].config)
    lives: dict[Memory, list[IntArray]] = {memory: [] for memory in Memory}
    begin = 0
    for program, timeline in zip(programs, timelines, strict=True):
        for memory, spans in _Lives(program, timeline).spans().items():
            lives[memory].append(spans + begin)
        begin += timeline.cycles
    return tuple(
        _occupancy(memory, shape.entries, np.concatenate(lives[memory]), begin)
        for memory, shape in shapes.items()
    )


def _occupancy(memory: Memory, depth: int, spans: IntArray, cycles: int) -> Occupancy:
    """Sum up spans of shape (n, 2): first cycle in use, first cycle no longer in use."""
    steps = np.concatenate((np.ones(len(spans), np.int64), -np.ones(len(spans), np.int64)))
    begin, position = np.unique(
        np.concatenate(([0], spans[:, 0], spans[:, 1])), return_inverse=True
    )
    change = np.bincount(position[1:], weights=steps, minlength=len(begin)).astype(np.int64)
    used = np.cumsum(change)
    lengths = np.diff(begin, append=max(cycles, int(begin[-1])))
    return Occupancy(
        memory=memory,
        depth=depth,
        peak=int(used.max()),
        mean=float((used * lengths).sum() / max(1, cycles)),
        begin=begin,
        used=used,
    )


class _Lives:
    """Follows the entries of all scratchpads through one program, in the order of time."""

    def __init__(self, program: Program, timeline: Timeline) -> None:
        self._program = program
        self._timeline = timeline
        self._static = StaticData(program)
        self._gemm_uops = LoadedUops(Memory.GUOP, program.config)
        self._vector_uops = LoadedUops(Memory.VUOP, program.config)
        shapes = memory_shapes(program.config).items()
        #: Per entry, the cycle from which on it holds what it holds ...
        self._written = {memory: np.zeros(shape.entries, np.int64) for memory, shape in shapes}
        #: ... and the cycle after its last use, 0 where there was none.
        self._read = {memory: np.zeros(shape.entries, np.int64) for memory, shape in shapes}
        self._spans: dict[Memory, list[IntArray]] = {memory: [] for memory in Memory}

    def spans(self) -> dict[Memory, IntArray]:
        """Return per memory an array of shape (n, 2): when each content was in use."""
        for position in np.argsort(self._timeline.start, kind="stable").tolist():
            found = self._accesses(position)
            start = int(self._timeline.start[position])
            self._apply(found, start, int(self._timeline.finish[position]) + 1)
        for memory, written in self._written.items():
            self._close(memory, np.arange(len(written)))
        return {
            memory: np.concatenate([np.empty((0, 2), np.int64), *spans])
            for memory, spans in self._spans.items()
        }

    def _accesses(self, position: int) -> Accesses:
        instruction, config = self._program.instructions[position], self._program.config
        match instruction:
            case Load():
                found = accesses(instruction, config)
                self._note_uops(instruction, found)
                return found
            case Gemm():
                return accesses(
                    instruction, config, self._gemm_uops.of(uop_entries(instruction, config))
                )
            case Vector():
                return accesses(
                    instruction, config, self._vector_uops.of(uop_entries(instruction, config))
                )
            case Store() | Finish():
                return accesses(instruction, config)
            case _:
                assert_never(instruction)

    def _note_uops(self, load: Load, found: Accesses) -> None:
        for memory, uops in ((Memory.GUOP, self._gemm_uops), (Memory.VUOP, self._vector_uops)):
            if load.memory is memory:
                uops.load(found.writes[0], self._static.loaded(load, found.dram_reads))

    def _apply(self, found: Accesses, start: int, end: int) -> None:
        """Note what an instruction reads and writes; what it does both with stays in use."""
        for read in found.reads:
            self._read[read.memory][read.entries] = np.maximum(
                self._read[read.memory][read.entries], end
            )
        for write in found.writes:
            kept = [read.entries for read in found.reads if read.memory is write.memory]
            fresh = np.setdiff1d(write.entries, np.concatenate(kept)) if kept else write.entries
            self._close(write.memory, fresh)
            self._written[write.memory][fresh] = start

    def _close(self, memory: Memory, entries: IntArray) -> None:
        """End the use of what some entries hold."""
        begin, end = self._written[memory][entries], self._read[memory][entries]
        used = end > begin
        self._spans[memory].append(np.stack((begin[used], end[used]), axis=1))
        self._read[memory][entries] = 0
