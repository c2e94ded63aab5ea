"""How far a quantised network is from the float one: layer by layer, and in its answers."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Array, Graph
from tilewright.compiler.operators import DataType, Reshape
from tilewright.isa.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerError:
    """The error of one int8 tensor, the errors of all layers before it included.

    Attributes
    ----------
    layer
        Node of the integer graph.
    tensor
        The float tensor that it stands for.
    scale, zero_point
        Of the integers.
    sqnr_db
        Power of the float values over the power of the difference, in decibel; infinite where they
        are equal.
    """

    layer: str
    tensor: str
    scale: float
    zero_point: int
    sqnr_db: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How many of the labelled samples each network answers right."""

    samples: int
    float_right: int
    quantised_right: int

    @property
    def float_share(self) -> float:
        """Share of right answers of the float network."""
        return self.float_right / self.samples

    @property
    def quantised_share(self) -> float:
        """Share of right answers of the quantised network."""
        return self.quantised_right / self.samples


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisationReport:
    """What quantisation costs.

    Attributes
    ----------
    layers
        In the order of the network.
    outputs
        Signal to noise of each output, in decibel, by name.
    accuracy
        None where no labels were given.
    real_nodes
        Operators that stay in floating point.
    """

    layers: tuple[LayerError, ...]
    outputs: Mapping[str, float]
    accuracy: Accuracy | None
    real_nodes: tuple[str, ...]


def layer_errors(
    float_graph: Graph, integer_graph: Graph, batch: Mapping[str, Array]
) -> tuple[tuple[LayerError, ...], dict[str, float]]:
    """Return the error of each int8 tensor and of each output on one batch."""
    wanted = {
        tensor.source.name
        for tensor in integer_graph.tensors.values()
        if tensor.dtype is DataType.INT8 and tensor.source is not None
    } | set(float_graph.outputs)
    expected: dict[str, Array] = {}

    def keep(name: str, values: Array) -> None:
        if name in wanted:
            expected[name] = values

    evaluate(float_graph, batch, keep)
    nodes = {node.outputs[0]: node for node in integer_graph.nodes}
    layers: list[LayerError] = []

    def compare(name: str, values: Array) -> None:
        tensor = integer_graph.tensors[name]
        source = tensor.source
        if tensor.dtype is not DataType.INT8 or source is None or tensor.scale is None:
            return
        if source.name not in expected or isinstance(nodes[name].op, Reshape):
            return
        assert tensor.zero_point is not None, "a scale has a zero point"
        real = (values.astype(np.float64) - tensor.zero_point) * tensor.scale
        want = np.transpose(expected[source.name], source.axes).reshape(values.shape)
        layers.append(
            LayerError(
                layer=nodes[name].name,
                tensor=source.name,
                scale=tensor.scale,
                zero_point=tensor.zero_point,
                sqnr_db=signal_to_noise(want, real),
            )
        )

    found = evaluate(integer_graph, batch, compare)
    outputs = {name: signal_to_noise(expected[name], found[name]) for name in float_graph.outputs}
    return tuple(layers), outputs


def signal_to_noise(expected: Array, found: Array) -> float:
    """Return the ratio of powers in decibel."""
    signal = float(np.square(expected.astype(np.float64)).sum())
    noise = float(np.square(expected.astype(np.float64) - found).sum())
    if not noise:
        return float("inf")
    return float(10 * np.log10(signal / noise)) if signal else float("-inf")


def accuracy(
    float_graph: Graph,
    integer_graph: Graph,
    batches: Callable[[], Iterable[Mapping[str, Array]]],
    labels: Array,
) -> Accuracy:
    """Return how often the largest entry of the first output is the label.

    Raises
    ------
    InputError
        If there is not one label per sample.
    """
    right = []
    for graph in (float_graph, integer_graph):
        answers = [
            np.argmax(result.reshape(len(result), -1), axis=1)
            for result in (evaluate(graph, batch)[graph.outputs[0]] for batch in batches())
        ]
        found = np.concatenate(answers)
        if found.shape != labels.shape:
            raise InputError(f"there are {labels.size} labels for {found.size} samples")
        right.append(int(np.count_nonzero(found == labels)))
    return Accuracy(samples=labels.size, float_right=right[0], quantised_right=right[1])
