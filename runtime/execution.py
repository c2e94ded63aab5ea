"""Execution of the steps of a compiled graph: host nodes in numpy, programs on the simulator."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from typing_extensions import assert_never

from tilewright.compiler.compiled import AcceleratorStep, Binding, CompiledGraph, HostStep
from tilewright.compiler.evaluate import evaluate_node
from tilewright.compiler.graph import Array, Tensor
from tilewright.sim.simulator import Progress, simulate
from tilewright.sim.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Execution:
    """Every tensor that a run left, and the timing of each program."""

    values: Mapping[str, Array]
    timelines: tuple[Timeline, ...]


def execute_steps(
    compiled: CompiledGraph, inputs: Mapping[str, Array], progress: Progress | None = None
) -> Execution:
    """Run every step of `compiled` for inputs that fit its graph."""
    graph = compiled.graph
    values: dict[str, Array] = {**graph.constants, **inputs}
    timelines = []
    for step in compiled.steps:
        match step:
            case HostStep(nodes=nodes):
                for node in nodes:
                    values[node.outputs[0]] = evaluate_node(graph, node, values)
            case AcceleratorStep():
                timelines.append(_run_program(compiled, step, values, progress))
            case _:
                assert_never(step)
    return Execution(values=values, timelines=tuple(timelines))


def _run_program(
    compiled: CompiledGraph,
    step: AcceleratorStep,
    values: dict[str, Array],
    progress: Progress | None,
) -> Timeline:
    dram = step.program.initial_dram()
    for binding in step.inputs:
        begin = binding.layout.address
        dram[begin : begin + binding.layout.size_bytes] = _pack(binding, values[binding.tensor])
    result = simulate(step.program, dram, config=compiled.config, progress=progress)
    for binding in step.outputs:
        tensor = compiled.graph.tensors[binding.tensor]
        values[binding.tensor] = _unpack(binding, result.dram, tensor)
    return result.timeline


def _pack(binding: Binding, values: Array) -> Array:
    return binding.layout.pack(values if binding.fold is None else binding.fold.apply(values))


def _unpack(binding: Binding, dram: Array, tensor: Tensor) -> Array:
    begin = binding.layout.address
    data = np.ascontiguousarray(dram[begin : begin + binding.layout.size_bytes])
    return binding.layout.unpack(data).reshape(tensor.shape)
