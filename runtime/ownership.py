"""Which layer each cycle of a program counts for, where layers overlap.

A cycle belongs to one layer: to the one that the gemm engine works for; if it does not work, to the
vector engine's, then to the load engine's, then to the store engine's. A cycle in which nothing is
done belongs to the layer that comes next. So a layer of the array gets every cycle that the array
works for it, and a layer of another engine what is not hidden behind that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.isa.memories import Engine
from tilewright.sim.timeline import Timeline

IntArray = npt.NDArray[np.int64]

#: Engines from the one that decides last to the one that decides first.
_RISING = (Engine.STORE, Engine.LOAD, Engine.VECTOR, Engine.GEMM)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ownership:
    """Consecutive stretches of a program's cycles; together they are all of them."""

    begin: IntArray
    cycles: IntArray
    #: Number of the layer, -1 where none is known.
    layer: IntArray


def work_spans(timeline: Timeline) -> tuple[IntArray, IntArray]:
    """Return first and last cycle in which each instruction works or waits for memory.

    Spans of an engine do not overlap: a load may start while the one before it is being written,
    but its own time comes after that.
    """
    first = timeline.last_step + 1 - timeline.busy - timeline.memory_wait
    return first, timeline.last_step


def layer_ownership(timeline: Timeline, layer_of_instruction: Sequence[int]) -> Ownership:
    """Share the cycles of a program out among its layers."""
    first, last = work_spans(timeline)
    layers = np.full(timeline.engine.size, -1, dtype=np.int64)
    layers[: len(layer_of_instruction)] = layer_of_instruction
    edges = np.unique(np.concatenate(([0, timeline.cycles], first, last + 1)))
    edges = edges[(edges >= 0) & (edges <= timeline.cycles)]
    begin, cycles = edges[:-1], np.diff(edges)
    owner = np.full(begin.size, -1, dtype=np.int64)
    for engine in _RISING:
        mine = np.flatnonzero((timeline.engine == engine) & (layers >= 0) & (first <= last))
        if mine.size:
            position = np.searchsorted(first[mine], begin, side="right") - 1
            current = mine[np.maximum(position, 0)]
            works = (position >= 0) & (begin <= last[current])
            owner[works] = layers[current[works]]
    owner = _filled(owner)
    change = np.flatnonzero(np.diff(owner, prepend=-2))
    return Ownership(
        begin=begin[change],
        cycles=np.add.reduceat(cycles, change) if change.size else cycles,
        layer=owner[change],
    )


def _filled(owner: IntArray) -> IntArray:
    """Give what nobody owns to the next owner, and what is left at the end to the last one."""
    known = np.flatnonzero(owner >= 0)
    if not known.size:
        return owner
    following = np.searchsorted(known, np.arange(owner.size))
    return owner[known[np.minimum(following, known.size - 1)]]
