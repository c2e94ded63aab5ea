"""Running of compiled graphs step by step, without the runtime."""

from collections.abc import Mapping

import numpy as np

from tilewright.compiler.compiled import AcceleratorStep, CompiledGraph, HostStep
from tilewright.compiler.evaluate import evaluate_node
from tilewright.isa.validator import validate
from tilewright.sim.simulator import SimulationResult, simulate


def run_compiled(
    compiled: CompiledGraph, inputs: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], list[SimulationResult]]:
    """Return all tensors that the steps leave behind, and the simulations."""
    graph = compiled.graph
    values = {**graph.constants, **inputs}
    results = []
    for step in compiled.steps:
        match step:
            case HostStep():
                for node in step.nodes:
                    values[node.outputs[0]] = evaluate_node(graph, node, values)
            case AcceleratorStep():
                validate(step.program)
                results.append(run_program(step, values, graph))
    return values, results


def run_program(step: AcceleratorStep, values: dict[str, np.ndarray], graph) -> SimulationResult:
    """Run one program; its outputs are added to `values`."""
    dram = step.program.initial_dram()
    for binding in step.inputs:
        layout, array = binding.layout, values[binding.tensor]
        packed = layout.pack(array if binding.fold is None else binding.fold.apply(array))
        dram[layout.address : layout.address + layout.size_bytes] = packed
    result = simulate(step.program, dram)
    for binding in step.outputs:
        layout = binding.layout
        data = result.dram[layout.address : layout.address + layout.size_bytes]
        shape = graph.tensors[binding.tensor].shape
        values[binding.tensor] = layout.unpack(data).reshape(shape)
    return result
