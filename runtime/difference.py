"""Differences between arrays, and layer by layer between the simulator and the integer graph."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.compiled import AcceleratorStep, CompiledGraph
from tilewright.compiler.evaluate import evaluate_all
from tilewright.compiler.graph import Array, Graph
from tilewright.isa.config import AcceleratorConfig
from tilewright.runtime.board_machine import SimulatorMachine
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.execution import execute_steps
from tilewright.runtime.files import PathLike
from tilewright.runtime.inputs import Inputs, check_inputs
from tilewright.runtime.model import Model, compile_model, open_model
from tilewright.sim.simulator import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How far two arrays of one shape are apart."""

    #: Largest distance of two elements; for integers in steps.
    maximum: float
    #: Number of elements that differ.
    differing: int
    elements: int
    #: Largest magnitude of the second array.
    largest: float = 0.0

    @property
    def share(self) -> float:
        """Share of the elements that differ."""
        return self.differing / self.elements if self.elements else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDifference:
    """Difference of one tensor of the network."""

    #: Name of the tensor's node.
    layer: str
    op: str
    tensor: str
    difference: Difference


def difference(first: Array, second: Array) -> Difference:
    """Compare two arrays of one shape."""
    unequal = first != second
    apart = np.abs(first.astype(np.float64) - second.astype(np.float64))
    return Difference(
        maximum=float(apart[unequal].max(initial=0.0)),
        differing=int(np.count_nonzero(unequal)),
        elements=int(unequal.size),
        largest=float(np.abs(second.astype(np.float64)).max(initial=0.0)),
    )


def diff(
    model: Model | CompiledModel | PathLike,
    inputs: Inputs,
    *,
    config: AcceleratorConfig | str | None = None,
    progress: Progress | None = None,
) -> tuple[LayerDifference, ...]:
    """Compare the simulator with the integer graph on every tensor that the accelerator yields.

    The model is compiled so that nothing is fused and each result stays in DRAM. Both sides start
    from the same inputs, so the first layer that differs is where they part.

    Parameters
    ----------
    config
        As `compile_model` takes it.

    Raises
    ------
    TilewrightError
        If the inputs do not fit the model, or the model does not fit the machine.
    """
    network = open_model(model)
    arrays = check_inputs(network.graph, inputs)
    return layer_differences(
        compile_model(network, config, keep_intermediates=True), arrays, progress=progress
    )


def layer_differences(
    compiled: CompiledModel, arrays: Mapping[str, Array], *, progress: Progress | None = None
) -> tuple[LayerDifference, ...]:
    """Do what `diff` does for checked inputs and for the tensors that `compiled` keeps."""
    values = execute_steps(compiled.compiled, arrays, SimulatorMachine(), progress).values
    kept = kept_tensors(compiled.compiled)
    found = {name: array for name, array in values.items() if name in kept}
    return compare_tensors(compiled.graph, found, evaluate_all(compiled.graph, arrays))


def kept_tensors(compiled: CompiledGraph) -> frozenset[str]:
    """Return the tensors that the accelerator leaves to the host, and the outputs."""
    return frozenset(compiled.graph.outputs) | {
        binding.tensor
        for step in compiled.steps
        if isinstance(step, AcceleratorStep)
        for binding in step.outputs
    }


def compare_tensors(
    graph: Graph, found: Mapping[str, Array], expected: Mapping[str, Array]
) -> tuple[LayerDifference, ...]:
    """Compare the results of nodes that were found with those expected, in the graph's order."""
    return tuple(
        LayerDifference(
            layer=node.name,
            op=type(node.op).__name__,
            tensor=name,
            difference=difference(found[name], expected[name]),
        )
        for node in graph.nodes
        for name in node.outputs
        if name in found
    )
