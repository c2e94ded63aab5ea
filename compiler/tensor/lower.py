"""Lowering of a schedule to a loop nest: one pass after the other, each printable."""

from collections.abc import Callable

from tilewright.compiler.tensor.build_nest import build_nest
from tilewright.compiler.tensor.distribute import interleave_virtual_threads
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.compiler.tensor.statements import LoopNest
from tilewright.compiler.tensor.tidy import tidy

#: The passes over a loop nest, in the order in which they run.
PASSES: tuple[tuple[str, Callable[[LoopNest], LoopNest]], ...] = (
    ("tidy", tidy),
    ("interleave virtual threads", interleave_virtual_threads),
    ("tidy again", tidy),
)


def lower(schedule: Schedule) -> LoopNest:
    """Return the loop nest of a schedule.

    Raises
    ------
    ScheduleError
        If primitives that are each legal do not fit together.
    """
    return lowering_stages(schedule)[-1][1]


def lowering_stages(schedule: Schedule) -> tuple[tuple[str, LoopNest], ...]:
    """Return the loop nest after each pass, with the pass's name."""
    nest = build_nest(schedule.state)
    stages = [("loops", nest)]
    for name, apply in PASSES:
        nest = apply(nest)
        stages.append((name, nest))
    return tuple(stages)
