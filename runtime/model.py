"""A model: the integer graph of a file, and its compilation."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.compiler.compile import compile_for_host, compile_graph
from tilewright.compiler.compiled import CompiledGraph
from tilewright.compiler.graph import Graph, Tensor
from tilewright.compiler.passes.pipeline import lower_to_integer
from tilewright.compiler.readers import read_model
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import InputError, ModelError
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.configurations import DEFAULT_PRESET, choose_config
from tilewright.runtime.devices import parse_device, runs_graphs
from tilewright.runtime.files import PathLike
from tilewright.runtime.gpu_graphs import GpuGraphs
from tilewright.runtime.model_file import has_signature
from tilewright.runtime.native_graphs import NativeGraphs
from tilewright.runtime.torch_model import is_module, load_module
from tilewright.runtime.tuning import Tuning, TuningSource, tuned_choices

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Model:
    """A network: the integer graph of a quantised one, the float graph of another.

    Attributes
    ----------
    graph
        The graph that is compiled; inputs and outputs have the names, shapes and types of the file.
    path
        The file that it was read from; None for what was not read from one.
    """

    graph: Graph
    path: Path | None

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Name, shape and element type of each input."""
        return tuple(self.graph.tensors[name] for name in self.graph.inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Name, shape and element type of each output."""
        return tuple(self.graph.tensors[name] for name in self.graph.outputs)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed where the file leaves a choice, such as an open batch size."""
        return self.graph.notes

    def __repr__(self) -> str:
        inputs, outputs = (
            ", ".join(f"{tensor.name} {tensor.type}" for tensor in tensors)
            for tensors in (self.inputs, self.outputs)
        )
        return f"<Model {self.graph.name}: {inputs} -> {outputs}>"


def load(
    source: "PathLike | torch.nn.Module",
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    example: Any = None,
) -> Model:
    """Read an ``.onnx`` or ``.tflite`` file, quantised or in floating point, or a PyTorch module.

    Parameters
    ----------
    source
        The path of the file, or the module.
    shapes
        Sizes that an ``.onnx`` file leaves open, by the name of the input.
    example
        Of a module: the tensor that it takes, or a tuple of them; only the shapes count.

    Raises
    ------
    ModelError
        If the file is damaged or holds something that is not supported.
    """
    if is_module(source):
        return Model(graph=load_module(source, example), path=None)
    file = Path(source)
    if not file.exists():
        raise ModelError(f"there is no model file {file}")
    if file.is_dir():
        raise ModelError(f"{file} is a folder, not a model file")
    if has_signature(file):
        raise ModelError(
            f"{file} is a compiled model, not a model file",
            hint="CompiledModel.load reads it",
        )
    given = {name: tuple(int(size) for size in shape) for name, shape in (shapes or {}).items()}
    try:
        return Model(graph=lower_to_integer(read_model(file, given)), path=file)
    except ModelError as error:
        raise ModelError(f"{file}: {error}", hint=error.hint) from error


def open_model(model: Model | CompiledModel | PathLike) -> Model | CompiledModel:
    """Return a model, which may be given by the path of its file.

    Raises
    ------
    TilewrightError
        If it is neither a model nor a path, or if `load` refuses the file.
    """
    match model:
        case Model() | CompiledModel():
            return model
        case str() | os.PathLike():
            return load(model)
        case _:
            raise InputError(
                "a model must be a Model, a CompiledModel or the path of a model file,"
                f" not {model!r:.60}"
            )


def compile_model(
    model: Model | CompiledModel | PathLike,
    config: AcceleratorConfig | str | None = None,
    *,
    device: str | None = None,
    keep_intermediates: bool = False,
    tuning: TuningSource = Tuning.CACHED,
    progress: Callable[[str], None] | None = None,
) -> CompiledModel:
    """Compile a model for one configuration of the accelerator.

    Parameters
    ----------
    model
        A model, the path of its file, or a compiled one to compile again.
    config
        A configuration or the name of a preset; by default the one that a `CompiledModel` was made
        for, else preset ``pynq``.
    device
        ``cpu`` compiles for the processor alone, without programs for an accelerator; what any
        other device needs is always there.
    keep_intermediates
        Leave the result of every kernel in DRAM for the host, which `diff` compares.
    tuning
        Which tuned choices to use: a member of `Tuning`, or a file that ``tilewright tune``
        wrote. They change cycles and times, never results but for the order in which processors
        add up real numbers.
    progress
        Called with a few words before each phase.

    Raises
    ------
    TilewrightError
        If the model cannot be read, there is no such preset, or the model does not fit the machine.
    """
    network = open_model(model)
    if config is None:
        config = network.config if isinstance(network, CompiledModel) else DEFAULT_PRESET
    machine = choose_config(config)
    if device is not None and runs_graphs(parse_device(device)):
        return _tuned_model(compile_for_host(network.graph, machine), tuning)
    compiled = compile_graph(
        network.graph,
        machine,
        keep_intermediates=keep_intermediates,
        choices=tuned_choices(tuning, machine),
        progress=progress,
    )
    return _tuned_model(compiled, tuning)


def _tuned_model(compiled: CompiledGraph, tuning: TuningSource) -> CompiledModel:
    return CompiledModel(
        compiled=compiled,
        native=NativeGraphs(tuning=tuning),
        kernels=GpuGraphs(tuning=tuning),
    )
