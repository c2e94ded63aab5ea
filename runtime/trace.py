"""Traces of a run in the Trace Event Format, which Perfetto and Chrome's tracing page open."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tilewright.compiler.compiled import AcceleratorStep, CompiledGraph
from tilewright.isa.memories import Engine
from tilewright.runtime.ownership import layer_ownership, work_spans
from tilewright.sim.timeline import Timeline
from tilewright.sim.token_pairs import token_pairs

_PROCESS = 1
#: Track of the layers; the engines' tracks come after it.
_LAYERS = 0


def render_trace(compiled: CompiledGraph, timelines: Sequence[Timeline]) -> str:
    """Return the trace: a track of layers, and one per engine with its instructions and waits.

    Times are microseconds at the clock of the configuration; the cycles stand in the arguments.
    """
    events = [_name("process_name", _LAYERS, f"{compiled.graph.name} on {compiled.config.name}")]
    events.append(_name("thread_name", _LAYERS, "layers"))
    events += [_name("thread_name", 1 + engine, engine.name.lower()) for engine in Engine]
    slices: list[_Slice] = []
    arrows: list[_Arrow] = []
    steps = [step for step in compiled.steps if isinstance(step, AcceleratorStep)]
    begin = 0
    for step, timeline in zip(steps, timelines, strict=True):
        slices += _layer_slices(step, timeline, begin)
        slices += _instruction_slices(step, timeline, begin)
        arrows += _token_arrows(step, timeline, begin)
        begin += timeline.cycles
    clock_mhz = compiled.config.clock_mhz
    events += [_event(*item, clock_mhz) for item in slices]
    for number, arrow in enumerate(arrows):
        events += _arrow_events(number, *arrow, clock_mhz)
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}, separators=(",", ":"))


#: Track, name, first cycle, cycles, arguments.
_Slice = tuple[int, str, int, int, dict[str, Any]]
#: Track and cycle of a token's giver, track and cycle of its taker.
_Arrow = tuple[int, int, int, int]


def _layer_slices(step: AcceleratorStep, timeline: Timeline, begin: int) -> Iterator[_Slice]:
    """Yield the stretches of cycles that count for each layer."""
    ownership = layer_ownership(timeline, step.program.layer_of_instruction)
    for first, cycles, owner in zip(
        ownership.begin.tolist(), ownership.cycles.tolist(), ownership.layer.tolist(), strict=True
    ):
        if owner >= 0:
            layer = step.layers[owner]
            arguments = {"operator": layer.operator, "bound": layer.ideal_cycles}
            yield _LAYERS, layer.name, begin + first, cycles, arguments


def _instruction_slices(step: AcceleratorStep, timeline: Timeline, begin: int) -> Iterator[_Slice]:
    layers = step.program.layer_of_instruction
    first, last = work_spans(timeline)
    for position, instruction in enumerate(step.program.instructions):
        if timeline.engine[position] < 0:
            continue
        track = 1 + int(timeline.engine[position])
        start = int(first[position])
        cycles = int(last[position]) + 1 - start
        drain, tokens = int(timeline.drain[position]), int(timeline.token_wait[position])
        if tokens:
            giver = Engine(int(timeline.token_giver[position])).name.lower()
            yield track, f"wait for {giver}", begin + start - drain - tokens, tokens, {}
        layer = layers[position] if layers else -1
        arguments = {
            "instruction": position,
            "layer": step.layers[layer].name if layer >= 0 else "",
            "busy": int(timeline.busy[position]),
            "memory_wait": int(timeline.memory_wait[position]),
            "dram_bytes": int(timeline.dram_bytes[position]),
            "finish": begin + int(timeline.finish[position]),
        }
        name = type(instruction).__name__.lower()
        yield track, name, begin + start, cycles, arguments


def _token_arrows(step: AcceleratorStep, timeline: Timeline, begin: int) -> Iterator[_Arrow]:
    """Yield the tokens that an instruction has waited for, from the giver's last step."""
    for giver, taker in token_pairs(step.program.instructions):
        if timeline.token_wait[taker] and timeline.token_giver[taker] == timeline.engine[giver]:
            yield (
                1 + int(timeline.engine[giver]),
                begin + int(timeline.last_step[giver]),
                1 + int(timeline.engine[taker]),
                begin + int(timeline.start[taker]),
            )


def _arrow_events(
    number: int, giver: int, given: int, taker: int, taken: int, clock_mhz: float
) -> Iterator[dict[str, Any]]:
    common = {"pid": _PROCESS, "name": "token", "cat": "token", "id": number}
    yield {"ph": "s", **common, "tid": giver, "ts": given / clock_mhz}
    yield {"ph": "f", "bp": "e", **common, "tid": taker, "ts": taken / clock_mhz}


def _name(kind: str, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": _PROCESS, "tid": track, "name": kind, "args": {"name": name}}


def _event(
    track: int, name: str, begin: int, cycles: int, arguments: dict[str, Any], clock_mhz: float
) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": _PROCESS,
        "tid": track,
        "name": name,
        "ts": begin / clock_mhz,
        "dur": cycles / clock_mhz,
        "args": {"cycle": begin, "cycles": cycles, **arguments},
    }
