"""Compilation of an integer graph for one configuration."""

from collections.abc import Callable

from typing_extensions import assert_never

from tilewright.compiler.compiled import CompiledGraph, HostStep, Placement, Step, Target
from tilewright.compiler.graph import Graph
from tilewright.compiler.lowering.choices import NO_CHOICES, Choices
from tilewright.compiler.lowering.lower import lower_stage
from tilewright.compiler.lowering.placement import place
from tilewright.isa.config import AcceleratorConfig


def compile_graph(
    graph: Graph,
    config: AcceleratorConfig,
    *,
    keep_intermediates: bool = False,
    choices: Choices = NO_CHOICES,
    latency_hiding: bool = True,
    progress: Callable[[str], None] | None = None,
) -> CompiledGraph:
    """Compile an integer graph to programs for the accelerator and steps for the host.

    Parameters
    ----------
    graph
        The result of `tilewright.compiler.passes.pipeline.lower_to_integer`.
    config
        The machine.
    keep_intermediates
        Keep every tensor of the graph in DRAM and make it an output of its step, to compare layer
        by layer; nothing is fused then.
    choices
        What a tuner has chosen; they change cycles, never results.
    latency_hiding
        Without it, loads and computation take turns, to show what overlapping them brings.
    progress
        Called with a few words before each phase.

    Raises
    ------
    CompileError
        If a program does not fit the memory of the configuration.
    """
    report = progress or (lambda _: None)
    report("placing operators")
    placed = place(graph, config, choices)
    steps: list[Step] = []
    for number, stage in enumerate(placed.stages):
        report(f"lowering stage {number + 1} of {len(placed.stages)}")
        match stage.target:
            case Target.HOST:
                steps.append(HostStep(nodes=stage.nodes))
            case Target.ACCELERATOR:
                steps.append(
                    lower_stage(
                        stage.nodes,
                        placed.kernels,
                        graph,
                        config,
                        keep_intermediates=keep_intermediates,
                        choices=choices,
                        latency_hiding=latency_hiding,
                    )
                )
            case _:
                assert_never(stage.target)
    return CompiledGraph(graph=graph, config=config, steps=tuple(steps), placement=placed.placement)


def compile_for_host(graph: Graph, config: AcceleratorConfig) -> CompiledGraph:
    """Return a graph whose every operator runs on the host."""
    placement = tuple(
        Placement(
            node=node.name,
            operator=type(node.op).__name__,
            target=Target.HOST,
            reason="the model was compiled for the processor",
        )
        for node in graph.nodes
    )
    steps = (HostStep(nodes=graph.nodes),) if graph.nodes else ()
    return CompiledGraph(graph=graph, config=config, steps=steps, placement=placement)
