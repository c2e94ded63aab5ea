"""Stretches of work on the time line, merged where a picture could not tell them apart."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.compiled import AcceleratorStep
from tilewright.isa.memories import Engine
from tilewright.sim.timeline import Timeline

#: Gaps below this share of the run are drawn as if they were not there.
RESOLUTION = 1 / 20_000


@dataclass(slots=True, kw_only=True)
class Segment:
    """Consecutive instructions of one engine for one layer."""

    engine: int
    #: Number of the layer over all programs, -1 where it is not known.
    layer: int
    #: First and last cycle.
    first: int
    last: int
    #: Cycles in which a step was made.
    busy: int


def merge_segments(
    steps: Sequence[AcceleratorStep], timelines: Sequence[Timeline]
) -> list[Segment]:
    """Return the segments of all programs, one behind the other in time."""
    gap = int(sum(timeline.cycles for timeline in timelines) * RESOLUTION)
    segments: list[Segment] = []
    cycle, layer = 0, 0
    for step, timeline in zip(steps, timelines, strict=True):
        layers = step.program.layer_of_instruction or (-1,) * len(step.program.instructions)
        for engine in Engine:
            segments += _engine_segments(timeline, layers, engine, gap, cycle, layer)
        cycle += timeline.cycles
        layer += len(step.layers)
    return segments


def _engine_segments(
    timeline: Timeline,
    layers: Sequence[int],
    engine: Engine,
    gap: int,
    first_cycle: int,
    first_layer: int,
) -> list[Segment]:
    segments: list[Segment] = []
    for position in np.flatnonzero(timeline.engine == engine).tolist():
        layer = layers[position] + first_layer if layers[position] >= 0 else -1
        last = first_cycle + int(timeline.last_step[position])
        busy = int(timeline.busy[position])
        # A load may start while the one before it is being written: its own time comes after that.
        first = last + 1 - busy - int(timeline.memory_wait[position])
        previous = segments[-1] if segments else None
        if previous and previous.layer == layer and first - previous.last <= gap:
            previous.last = last
            previous.busy += busy
        else:
            segments.append(Segment(engine=engine, layer=layer, first=first, last=last, busy=busy))
    return segments
