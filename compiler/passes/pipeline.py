"""The pipeline from a model's graph to the graph that is compiled."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from time import perf_counter
from typing import TypeAlias

from tilewright.compiler.graph import Graph
from tilewright.compiler.passes.fold_affine import fold_affine
from tilewright.compiler.passes.fold_constants import fold_constants
from tilewright.compiler.passes.fold_flatten import fold_flatten
from tilewright.compiler.passes.fuse_clips import fuse_clips
from tilewright.compiler.passes.fuse_functions import fuse_functions
from tilewright.compiler.passes.fuse_layer_norm import fuse_layer_norm
from tilewright.compiler.passes.lower_quantised import lower_quantised
from tilewright.compiler.passes.select_channels import select_channels
from tilewright.compiler.passes.simplify_movement import simplify_movement
from tilewright.compiler.passes.sink_transposes import sink_transposes


class Stage(Enum):
    """The passes, in the order in which they run."""

    SINK_TRANSPOSES = "sink_transposes"
    FOLD_CONSTANTS = "fold_constants"
    FOLD_AFFINE = "fold_affine"
    FUSE_FUNCTIONS = "fuse_functions"
    FUSE_LAYER_NORM = "fuse_layer_norm"
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
    """Return the integer form of a graph, as far as it is quantised; what is real stays real.

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
        If integers without a scale are computed with, or scales are out of range.
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
    return PASSES[stage](graph)


#: The function that each stage is.
PASSES: Mapping[Stage, Callable[[Graph], Graph]] = {
    Stage.SINK_TRANSPOSES: sink_transposes,
    Stage.FOLD_CONSTANTS: fold_constants,
    Stage.FOLD_AFFINE: fold_affine,
    Stage.FUSE_FUNCTIONS: fuse_functions,
    Stage.FUSE_LAYER_NORM: fuse_layer_norm,
    Stage.LOWER_QUANTISED: lower_quantised,
    Stage.SIMPLIFY_MOVEMENT: simplify_movement,
    Stage.FUSE_CLIPS: fuse_clips,
    Stage.SELECT_CHANNELS: select_channels,
    Stage.FOLD_FLATTEN: fold_flatten,
}
