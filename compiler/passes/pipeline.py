"""The pipeline from a model's graph to the integer graph."""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from time import perf_counter
from typing import TypeAlias

from typing_extensions import assert_never

from tilewright.compiler.graph import Graph
from tilewright.compiler.passes.fold_constants import fold_constants
from tilewright.compiler.passes.fold_flatten import fold_flatten
from tilewright.compiler.passes.fuse_clips import fuse_clips
from tilewright.compiler.passes.lower_quantised import lower_quantised
from tilewright.compiler.passes.select_channels import select_channels
from tilewright.compiler.passes.simplify_movement import simplify_movement
from tilewright.compiler.passes.sink_transposes import sink_transposes


class Stage(Enum):
    """The passes, in the order in which they run."""

    SINK_TRANSPOSES = "sink_transposes"
    FOLD_CONSTANTS = "fold_constants"
    LOWER_QUANTISED = "lower_quantised"
    SIMPLIFY_MOVEMENT = "simplify_movement"
    FUSE_CLIPS = "fuse_clips"
    SELECT_CHANNELS = "select_channels"
    FOLD_FLATTEN = "fold_flatten"


#: Called after each pass with the pass, its result and its time in seconds.
Observer: TypeAlias = Callable[[Stage, Graph, float], None]


def lower_to_integer(
    graph: Graph, *, stop_after: Stage | None = None, observe: Observer | None = None
) -> Graph:
    """Return the integer form of a quantised graph.

    Parameters
    ----------
    graph
        As a reader yields it.
    stop_after
        The last pass to run; None runs all.
    observe
        Receives each stage, for dumps and timing.

    Raises
    ------
    ModelError
        If part of the graph is not quantised or has no integer form.
    """
    notes = graph.notes
    for stage in Stage:
        start = perf_counter()
        graph = run_stage(stage, graph)
        if observe is not None:
            observe(stage, graph, perf_counter() - start)
        if stage is stop_after:
            break
    return replace(graph, notes=notes)


def run_stage(stage: Stage, graph: Graph) -> Graph:
    """Return the result of one pass."""
    match stage:
        case Stage.SINK_TRANSPOSES:
            return sink_transposes(graph)
        case Stage.FOLD_CONSTANTS:
            return fold_constants(graph)
        case Stage.LOWER_QUANTISED:
            return lower_quantised(graph)
        case Stage.SIMPLIFY_MOVEMENT:
            return simplify_movement(graph)
        case Stage.FUSE_CLIPS:
            return fuse_clips(graph)
        case Stage.SELECT_CHANNELS:
            return select_channels(graph)
        case Stage.FOLD_FLATTEN:
            return fold_flatten(graph)
        case _:
            assert_never(stage)
