"""Stretches of work on the time line, merged where a picture could not tell them apart."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.compiled import AcceleratorStep
from tilewright.isa.memories import Engine
from tilewright.runtime.ownership import layer_ownership, work_spans
from tilewright.sim.timeline import Timeline

#: Gaps below this share of the run are drawn as if they were not there.
RESOLUTION = 1 / 20_000
#: In `Segment.engine`: no engine, but the layer that the cycles count for.
LAYER_ROW = -1


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
    """Return the segments of all programs, one behind the other in time.

    Those of engine `LAYER_ROW` say which layer each cycle counts for.
    """
    gap = int(sum(timeline.cycles for timeline in timelines) * RESOLUTION)
    segments: list[Segment] = []
    cycle, layer = 0, 0
    for step, timeline in zip(steps, timelines, strict=True):
        layers = step.program.layer_of_instruction or (-1,) * len(step.program.instructions)
        shift = _Shift(cycle=cycle, layer=layer)
        segments += _owner_segments(timeline, layers, gap, shift)
        for engine in Engine:
            segments += _engine_segments(timeline, layers, engine, gap, shift)
        cycle += timeline.cycles
        layer += len(step.layers)
    return segments


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shift:
    """First cycle and layer of a program within the run."""

    cycle: int
    layer: int

    def of_layer(self, layer: int) -> int:
        return layer + self.layer if layer >= 0 else -1


def _owner_segments(
    timeline: Timeline, layers: Sequence[int], gap: int, shift: _Shift
) -> list[Segment]:
    segments: list[Segment] = []
    ownership = layer_ownership(timeline, layers)
    for begin, cycles, owner in zip(
        ownership.begin.tolist(), ownership.cycles.tolist(), ownership.layer.tolist(), strict=True
    ):
        layer = shift.of_layer(owner)
        first = shift.cycle + begin
        if segments and (cycles <= gap or segments[-1].layer == layer):
            segments[-1].last = first + cycles - 1
            segments[-1].busy += cycles
        else:
            segments.append(
                Segment(
                    engine=LAYER_ROW, layer=layer, first=first, last=first + cycles - 1, busy=cycles
                )
            )
    return segments


def _engine_segments(
    timeline: Timeline, layers: Sequence[int], engine: Engine, gap: int, shift: _Shift
) -> list[Segment]:
    segments: list[Segment] = []
    first_cycles, last_cycles = work_spans(timeline)
    for position in np.flatnonzero(timeline.engine == engine).tolist():
        layer = shift.of_layer(layers[position])
        first = shift.cycle + int(first_cycles[position])
        last = shift.cycle + int(last_cycles[position])
        busy = int(timeline.busy[position])
        previous = segments[-1] if segments else None
        if previous and previous.layer == layer and first - previous.last <= gap:
            previous.last = last
            previous.busy += busy
        else:
            segments.append(Segment(engine=engine, layer=layer, first=first, last=last, busy=busy))
    return segments
