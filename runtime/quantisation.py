"""Post-training quantisation of a float model: one call to what the accelerator takes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilewright.compiler.graph import Graph
from tilewright.compiler.quantisation.calibration import Method
from tilewright.compiler.quantisation.quantise import (
    QuantisationOptions,
    quantise,
    samples_by_name,
)
from tilewright.compiler.quantisation.report import QuantisationReport
from tilewright.isa.errors import InputError
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.files import PathLike, write_atomically
from tilewright.runtime.model import Model, load, open_model
from tilewright.runtime.torch_model import is_module

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class QuantizedModel(Model):
    """A model that `quantize` made; it compiles as any other.

    Attributes
    ----------
    network
        The float network with quantisations and dequantisations between its operators.
    report
        The error of each layer, the outputs, and the accuracy where labels were given.
    """

    network: Graph
    report: QuantisationReport

    def save_onnx(self, path: PathLike) -> None:
        """Write the network as ONNX in QDQ form, for this and for other tools."""
        from tilewright.compiler.writers.onnx_writer import write_onnx

        write_atomically(Path(path), write_onnx(self.network))


def quantize(
    model: "Model | PathLike | torch.nn.Module",
    samples: Mapping[str, npt.ArrayLike] | npt.ArrayLike,
    *,
    labels: npt.ArrayLike | None = None,
    method: str | Method = Method.PERCENTILE,
    percentile: float = 99.99,
    bias_correction: bool = True,
    exclude: Iterable[str] = (),
    progress: Callable[[str], None] | None = None,
) -> QuantizedModel:
    """Quantise a float model to int8.

    Parameters
    ----------
    model
        A float model, the path of its file, or a PyTorch module, which is then exported as its
        first sample runs through it.
    samples
        What the network typically sees, in the model's own layout and preprocessed as for the
        float model: an array per input, samples along axis 0; or one array, where there is one
        input. 30 to 200 samples do.
    labels
        The right class of each sample; the report then holds both networks' accuracy.
    method
        How ranges of activations follow from the samples: ``"min-max"``, ``"percentile"`` or
        ``"entropy"``.
    percentile
        Share of the values, in percent, that method ``"percentile"`` covers on each side.
    bias_correction
        Let biases make up for the mean error of rounded weights.
    exclude
        Nodes of the model's graph that stay in floating point, on the host.
    progress
        Called with a few words before each phase.

    Raises
    ------
    TilewrightError
        If the model is quantised already, or the samples do not suit it.
    """
    network = load(model, example=_first(samples)) if is_module(model) else open_model(model)
    if isinstance(network, CompiledModel):
        raise InputError("a compiled model cannot be quantised")
    graph = network.graph
    options = QuantisationOptions(
        method=parse_method(method),
        percentile=percentile,
        bias_correction=bias_correction,
        exclude=frozenset(exclude),
    )
    classes = None if labels is None else np.asarray(labels)
    result = quantise(graph, samples_by_name(graph, samples), options, classes, progress)
    return QuantizedModel(
        graph=result.integer, path=network.path, network=result.network, report=result.report
    )


def _first(samples: Mapping[str, npt.ArrayLike] | npt.ArrayLike) -> tuple[npt.ArrayLike, ...]:
    """Return one sample of each input, in the order of the mapping."""
    arrays = samples.values() if isinstance(samples, Mapping) else (samples,)
    return tuple(np.asarray(array)[:1] for array in arrays)


def parse_method(text: str | Method) -> Method:
    """Return the calibration method of that name.

    Raises
    ------
    InputError
        If there is none.
    """
    if isinstance(text, Method):
        return text
    for method in Method:
        if method.value == text:
            return method
    names = ", ".join(method.value for method in Method)
    raise InputError(f"there is no calibration method {text!r}", hint=f"methods: {names}")
