"""Execution of the steps of a compiled graph: nodes on the host, programs on a machine."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from typing_extensions import assert_never

from tilewright.compiler.compiled import AcceleratorStep, Binding, CompiledGraph, HostStep
from tilewright.compiler.evaluate import evaluate_node
from tilewright.compiler.graph import Array, Graph, Node
from tilewright.compiler.subgraph import subgraph
from tilewright.cpu_gpu_backends.cpu.exact import exact_runs
from tilewright.isa.program import check_config
from tilewright.runtime.board_machine import Counters, Machine, MachineRun, Patch, Region
from tilewright.runtime.host_code import HostLibraries
from tilewright.runtime.native_graphs import NativeGraphs, is_heavy
from tilewright.sim.simulator import Progress
from tilewright.sim.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Execution:
    """Every tensor that a run left, and the timing of each program as its machine tells it."""

    values: Mapping[str, Array]
    timelines: tuple[Timeline, ...] = ()
    counters: tuple[Counters, ...] = ()


def execute_steps(
    compiled: CompiledGraph,
    inputs: Mapping[str, Array],
    machine: Machine,
    progress: Progress | None = None,
    native: NativeGraphs | None = None,
    libraries: HostLibraries | None = None,
) -> Execution:
    """Run every step of `compiled` for inputs that fit its graph.

    Parameters
    ----------
    native, libraries
        Machine code of host steps: made here where it pays, and made ahead of time.
    """
    graph = compiled.graph
    values: dict[str, Array] = {**graph.constants, **inputs}
    runs: list[MachineRun] = []
    for step in compiled.steps:
        match step:
            case HostStep():
                for exact, nodes in exact_runs(step.nodes):
                    _run_host(graph, nodes, values, native if exact else None, libraries)
            case AcceleratorStep():
                check_config(step.program, compiled.config)
                runs.append(_run_program(compiled, step, values, machine, progress))
            case _:
                assert_never(step)
    return Execution(
        values=values,
        timelines=tuple(run.timeline for run in runs if run.timeline is not None),
        counters=tuple(run.counters for run in runs if run.counters is not None),
    )


def _run_host(
    graph: Graph,
    nodes: tuple[Node, ...],
    values: dict[str, Array],
    native: NativeGraphs | None,
    libraries: HostLibraries | None,
) -> None:
    """Compute nodes: in machine code that is there, or pays, else in numpy."""
    ready = None if libraries is None else libraries.compute(graph, nodes, values)
    if ready is not None:
        values.update(ready)
        return
    if native is not None and is_heavy(graph, nodes) and native.is_available:
        part = subgraph(graph, nodes)
        values.update(native.run(part, {name: values[name] for name in part.inputs}, 1))
        return
    for node in nodes:
        values[node.outputs[0]] = evaluate_node(graph, node, values)


def _run_program(
    compiled: CompiledGraph,
    step: AcceleratorStep,
    values: dict[str, Array],
    machine: Machine,
    progress: Progress | None,
) -> MachineRun:
    patches = [
        Patch(
            address=binding.layout.address,
            data=np.ascontiguousarray(_pack(binding, values[binding.tensor])),
        )
        for binding in step.inputs
    ]
    regions = [
        Region(address=binding.layout.address, size_bytes=binding.layout.size_bytes)
        for binding in step.outputs
    ]
    run = machine.run(step.program, patches, regions, progress)
    for binding, data in zip(step.outputs, run.regions, strict=True):
        tensor = compiled.graph.tensors[binding.tensor]
        values[binding.tensor] = binding.layout.unpack(data).reshape(tensor.shape)
    return run


def _pack(binding: Binding, values: Array) -> Array:
    return binding.layout.pack(values if binding.fold is None else binding.fold.apply(values))
