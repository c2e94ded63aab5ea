"""Loop levels of instructions: loops that advance evenly are one, and three levels remain."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tilewright.compiler.lowering.emitter import MAX_EXTENT
from tilewright.isa.instructions import LOOP_LEVELS

#: What one iteration of a loop adds to each operand of an instruction.
Steps = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A loop of an instruction."""

    count: int
    steps: Steps


def levels(loops: Iterable[Level]) -> tuple[Level, ...]:
    """Leave out loops that run once, and join each loop with the next where both advance evenly."""
    joined: list[Level] = []
    for loop in loops:
        if loop.count == 1:
            continue
        if joined and joined[-1].count * loop.count <= MAX_EXTENT:
            last = joined[-1]
            if last.steps == tuple(step * loop.count for step in loop.steps):
                joined[-1] = Level(count=last.count * loop.count, steps=loop.steps)
                continue
        joined.append(loop)
    return tuple(joined)


def instructions(loops: Sequence[Level]) -> Iterator[tuple[Steps, tuple[Level, ...]]]:
    """Return an offset and the loops of each instruction that `loops` take, outermost first."""
    cut = max(0, len(loops) - LOOP_LEVELS)
    outer, inner = loops[:cut], tuple(loops[cut:])
    for at in itertools.product(*(range(loop.count) for loop in outer)):
        added = [
            tuple(index * step for step in loop.steps)
            for index, loop in zip(at, outer, strict=True)
        ]
        yield tuple(map(sum, zip(*added, strict=True))) if added else (), inner
