"""Comparison with another implementation, layer by layer, each fed the other's own input."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.evaluate import evaluate_node
from tilewright.compiler.graph import Array, Graph
from tilewright.compiler.operators import DataType, Reshape


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDistance:
    """How far one layer is from the reference.

    Attributes
    ----------
    node
        Name of the layer's node in the graph.
    tensor
        Name of the compared tensor in the model file.
    elements, differing
        How many elements were compared, and how many of them are not equal.
    max_step
        Largest difference, in quantisation steps.
    """

    node: str
    tensor: str
    elements: int
    differing: int
    max_step: int

    @property
    def share(self) -> float:
        """Share of elements that differ."""
        return self.differing / self.elements if self.elements else 0.0


def compare_layers(
    graph: Graph, inputs: Mapping[str, Array], reference: Mapping[str, Array]
) -> tuple[LayerDistance, ...]:
    """Compare every int8 tensor that stands for one of the model file with the reference's.

    A reshape is no layer: it repeats what its input holds.

    Parameters
    ----------
    graph
        An integer graph.
    inputs
        Its inputs, at the batch of the graph.
    reference
        Values of tensors of the model file, by their name there, from another implementation run
        on the same inputs. Each layer reads these instead of what the layer before it yielded.
    """
    values = {**graph.constants, **inputs}
    differences = []
    for node in graph.nodes:
        computed = evaluate_node(graph, node, values)
        tensor = graph.tensors[node.outputs[0]]
        values[tensor.name] = computed
        source = tensor.source
        if tensor.dtype is not DataType.INT8 or source is None or source.name not in reference:
            continue
        if isinstance(node.op, Reshape):
            continue
        expected = source.view(reference[source.name], tensor)
        steps = np.abs(computed.astype(np.int32) - expected)
        differences.append(
            LayerDistance(
                node=node.name,
                tensor=source.name,
                elements=steps.size,
                differing=int(np.count_nonzero(steps)),
                max_step=int(steps.max(initial=0)),
            )
        )
        values[tensor.name] = expected
    return tuple(differences)
