"""Post-training quantisation from end to end."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.compiler.evaluate import batch_is_free
from tilewright.compiler.graph import Array, Graph
from tilewright.compiler.operators import (
    DataType,
    FloatOperator,
    FloatSoftmax,
    FloatUnary,
    Function,
    Quantize,
)
from tilewright.compiler.passes.pipeline import lower_to_integer
from tilewright.compiler.quantisation.calibration import Method, Range, calibrate
from tilewright.compiler.quantisation.choice import WEIGHTED, Choice, choose
from tilewright.compiler.quantisation.insert import insert_quantisation
from tilewright.compiler.quantisation.report import QuantisationReport, accuracy, layer_errors
from tilewright.compiler.quantisation.scales import Scale
from tilewright.isa.errors import InputError, ModelError

#: Samples that are evaluated at once, and those that the report compares layer by layer.
BATCH, COMPARED = 4, 8
#: What a function can yield at all, in whole steps of 1 / 256.
FIXED_RANGES: Mapping[Function, Range] = {
    Function.SIGMOID: Range(0.0, 255 / 256),
    Function.HARD_SIGMOID: Range(0.0, 255 / 256),
    Function.TANH: Range(-1.0, 127 / 128),
    Function.ERF: Range(-1.0, 127 / 128),
}
SHARES = Range(0.0, 255 / 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisationOptions:
    """How to quantise.

    Attributes
    ----------
    method
        How ranges of activations follow from the samples.
    percentile
        Share of the values, in percent, that `Method.PERCENTILE` covers on each side.
    bias_correction
        Whether biases make up for the mean error of rounded weights.
    exclude
        Nodes of the float graph that stay real.
    """

    method: Method = Method.PERCENTILE
    percentile: float = 99.99
    bias_correction: bool = True
    exclude: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not 50.0 < self.percentile <= 100.0:
            raise InputError(f"percentile must be above 50 and at most 100, not {self.percentile}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedGraph:
    """The results: real operators between quantised tensors, the integer graph, what it costs."""

    network: Graph
    integer: Graph
    report: QuantisationReport


def quantise(
    graph: Graph,
    samples: Mapping[str, Array],
    options: QuantisationOptions,
    labels: Array | None = None,
    progress: Callable[[str], None] | None = None,
) -> QuantisedGraph:
    """Quantise a float graph.

    Parameters
    ----------
    graph
        The result of `tilewright.compiler.passes.pipeline.lower_to_integer` for a float network.
    samples
        One array per input, the samples along axis 0; a multiple of the graph's batch.
    options
        How to quantise.
    labels
        The right class of each sample, int, for the report.
    progress
        Called with a few words before each phase.

    Raises
    ------
    ModelError
        If the graph is quantised already, or nothing in it can be.
    InputError
        If the samples do not suit the graph, or `options` names a node that there is not.
    """
    report = progress or (lambda _: None)
    _check_graph(graph, options)
    batches = Batches(graph, samples)
    choice = choose(graph, options.exclude)
    if not choice.computed:
        raise ModelError("the network holds no operator that can be quantised")
    report("calibrating")
    means = _weighted_inputs(graph, choice) if options.bias_correction else frozenset()
    calibration = calibrate(
        graph, batches, choice.tensors, means, options.method, options.percentile
    )
    scales = {
        name: Scale.of(_fixed_range(graph, name) or span)
        for name, span in calibration.ranges.items()
    }
    report("quantising")
    corrected = calibration.means if options.bias_correction else None
    network = insert_quantisation(graph, choice, scales, corrected)
    integer = lower_to_integer(network)
    report("comparing")
    layers, outputs = layer_errors(graph, integer, batches.first(COMPARED))
    counted = None
    if labels is not None:
        counted = accuracy(graph, integer, batches, np.asarray(labels).reshape(-1))
    real = tuple(n.label for n in integer.nodes if isinstance(n.op, FloatOperator))
    return QuantisedGraph(
        network=network,
        integer=integer,
        report=QuantisationReport(
            layers=layers, outputs=outputs, accuracy=counted, real_nodes=real
        ),
    )


class Batches:
    """The samples, some at a time; calling it hands them all out once more."""

    def __init__(self, graph: Graph, samples: Mapping[str, Array]) -> None:
        self._samples = dict(samples)
        self._sizes = {name: graph.tensors[name].shape[:1] for name in graph.inputs}
        counts = {_count(graph, name, self._samples) for name in graph.inputs}
        for name in samples:
            if name not in graph.inputs:
                raise InputError(f"there is no input {name!r} for the samples given")
        if len(counts) != 1:
            raise InputError(f"the inputs have different numbers of samples: {sorted(counts)}")
        (self._count,) = counts
        self._together = BATCH if batch_is_free(graph) else 1

    def __call__(self) -> Iterator[Mapping[str, Array]]:
        """Hand out all samples."""
        for start in range(0, self._count, self._together):
            yield self._part(start, min(start + self._together, self._count))

    def first(self, count: int) -> Mapping[str, Array]:
        """Return the first samples, at most `count`."""
        return self._part(0, min(count if self._together > 1 else 1, self._count))

    def _part(self, start: int, stop: int) -> dict[str, Array]:
        return {
            name: self._samples[name][start * size : stop * size]
            for name, (size,) in self._sizes.items()
        }


def _count(graph: Graph, name: str, samples: Mapping[str, Array]) -> int:
    """Return how many times its batch the samples of an input are."""
    tensor = graph.tensors[name]
    if name not in samples:
        raise InputError(f"samples for input {name!r} are missing")
    array = samples[name]
    if not array.ndim or array.shape[1:] != tensor.shape[1:]:
        raise InputError(
            f"samples of input {name!r} must be {list(tensor.shape)} with any number in front,"
            f" not {list(array.shape)}"
        )
    if array.dtype != tensor.dtype.numpy:
        raise InputError(f"samples of input {name!r} must be {tensor.dtype}, not {array.dtype}")
    batch = tensor.shape[0]
    if not len(array) or len(array) % batch:
        raise InputError(f"input {name!r} needs a multiple of {batch} samples, not {len(array)}")
    return len(array) // batch


def _check_graph(graph: Graph, options: QuantisationOptions) -> None:
    for node in graph.nodes:
        if isinstance(node.op, Quantize):
            raise ModelError("the network is quantised already")
    unknown = options.exclude - {node.name for node in graph.nodes}
    if unknown:
        raise InputError(f"there is no node {min(unknown)!r} to leave out")
    for name in graph.inputs:
        if graph.tensors[name].dtype in (DataType.INT8, DataType.UINT8):
            raise ModelError("the network is quantised already")


def _weighted_inputs(graph: Graph, choice: Choice) -> frozenset[str]:
    """Return the tensors that quantised layers with weights read."""
    return frozenset(
        node.inputs[0]
        for node in graph.nodes
        if node.name in choice.computed and isinstance(node.op, WEIGHTED)
    )


def _fixed_range(graph: Graph, name: str) -> Range | None:
    """Return the range of a tensor that follows from what computes it."""
    for node in graph.nodes:
        if node.outputs[0] == name:
            match node.op:
                case FloatSoftmax(logarithm=False):
                    return SHARES
                case FloatUnary(function=function):
                    return FIXED_RANGES.get(function)
                case _:
                    return None
    return None


def samples_by_name(
    graph: Graph, samples: Mapping[str, npt.ArrayLike] | npt.ArrayLike
) -> dict[str, Array]:
    """Return samples per input from an array, where the graph has one input, or a mapping."""
    if isinstance(samples, Mapping):
        return {str(name): np.asarray(values) for name, values in samples.items()}
    if len(graph.inputs) != 1:
        raise InputError(
            f"the network has {len(graph.inputs)} inputs: give a dictionary of samples",
            hint=f"its inputs are {', '.join(graph.inputs)}",
        )
    return {graph.inputs[0]: np.asarray(samples)}
