"""Every layer of a model on one device: its result beside the graph's, and its time."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.compiler.compiled import AcceleratorStep, CompiledGraph
from tilewright.compiler.evaluate import evaluate_node
from tilewright.compiler.graph import Array, Graph
from tilewright.runtime.board_devices import open_machine
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.devices import AnyDevice, Device
from tilewright.runtime.difference import LayerDifference, compare_tensors, kept_tensors
from tilewright.runtime.execution import execute_steps
from tilewright.runtime.model import compile_model
from tilewright.runtime.result import RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRun:
    """What one layer yielded on a device.

    `milliseconds` is its time there, that of what it is computed together with included; None where
    the device does not tell it.
    """

    difference: LayerDifference
    milliseconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Tensors that a device left, and times, by the tensor's name."""

    values: Mapping[str, Array]
    milliseconds: Mapping[str, float]


def evaluate_layers(graph: Graph, arrays: Mapping[str, Array]) -> Layers:
    """Evaluate a graph in numpy and time each node."""
    values: dict[str, Array] = {**graph.constants, **arrays}
    milliseconds = {}
    for node in graph.nodes:
        start = time.perf_counter()
        values[node.outputs[0]] = evaluate_node(graph, node, values)
        milliseconds[node.outputs[0]] = (time.perf_counter() - start) * 1e3
    return Layers(values=values, milliseconds=milliseconds)


def layer_runs(
    compiled: CompiledModel, arrays: Mapping[str, Array], device: AnyDevice, expected: Layers
) -> tuple[LayerRun, ...]:
    """Run a model on a device so that it leaves the result of every layer, and compare them.

    Processors and GPUs compute the same groups of operators as ever, and their results are kept.
    For the accelerator the model is compiled as `diff` does, nothing fused.
    """
    found = _layers(compiled, arrays, device, expected)
    differences = compare_tensors(compiled.graph, found.values, expected.values)
    return tuple(
        LayerRun(difference=one, milliseconds=found.milliseconds.get(one.tensor))
        for one in differences
    )


def _layers(
    compiled: CompiledModel, arrays: Mapping[str, Array], device: AnyDevice, expected: Layers
) -> Layers:
    graph = compiled.graph
    match device:
        case Device.REFERENCE:
            return expected
        case Device.CPU:
            values, milliseconds = compiled.native.run_layers(graph, arrays)
            return Layers(values=values, milliseconds=milliseconds)
        case Device.OPENCL | Device.CUDA:
            values = compiled.kernels.run_layers(graph, arrays, device)
            return Layers(values=values, milliseconds={})
        case _:
            return _on_machine(compiled, arrays, device)


def _on_machine(compiled: CompiledModel, arrays: Mapping[str, Array], device: AnyDevice) -> Layers:
    unfused = compile_model(compiled, keep_intermediates=True).compiled
    with open_machine(device) as machine:
        execution = execute_steps(unfused, arrays, machine)
    kept = kept_tensors(unfused)
    values = {name: array for name, array in execution.values.items() if name in kept}
    if not execution.timelines:
        return Layers(values=values, milliseconds={})
    result = RunResult(
        compiled=unfused, device=device, outputs={}, timelines=execution.timelines, wall_seconds=0
    )
    cycles = {layer.name: layer.cycles for layer in result.stats.layers}
    clock_khz = unfused.config.clock_mhz * 1e3
    milliseconds = {
        tensor: cycles[name] / clock_khz for name, tensor in _layer_tensors(unfused).items()
    }
    return Layers(values=values, milliseconds=milliseconds)


def _layer_tensors(compiled: CompiledGraph) -> dict[str, str]:
    """Return the tensor that each layer of the accelerator computes."""
    outputs = {node.name: node.outputs[0] for node in compiled.graph.nodes}
    return {
        layer.name: outputs[layer.nodes[-1]]
        for step in compiled.steps
        if isinstance(step, AcceleratorStep)
        for layer in step.layers
        if layer.nodes
    }
