"""A model: the integer graph of a file, and its compilation."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tilewright.compiler.compile import compile_graph
from tilewright.compiler.graph import Graph, Tensor
from tilewright.compiler.passes.pipeline import lower_to_integer
from tilewright.compiler.readers import read_model
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import ModelError
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.files import PathLike
from tilewright.runtime.model_file import has_signature


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """A quantised network as its integer graph.

    Attributes
    ----------
    graph
        The integer graph; inputs and outputs have the names, shapes and types of the file.
    path
        The file that it was read from.
    """

    graph: Graph
    path: Path

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Name, shape and element type of each input."""
        return tuple(self.graph.tensors[name] for name in self.graph.inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Name, shape and element type of each output."""
        return tuple(self.graph.tensors[name] for name in self.graph.outputs)


def load(path: PathLike) -> Model:
    """Read a quantised ``.onnx`` or ``.tflite`` file.

    Raises
    ------
    ModelError
        If the file is damaged or holds something that is not supported.
    """
    file = Path(path)
    if not file.exists():
        raise ModelError(f"there is no model file {file}")
    if file.is_dir():
        raise ModelError(f"{file} is a folder, not a model file")
    if has_signature(file):
        raise ModelError(
            f"{file} is a compiled model, not a model file",
            hint="CompiledModel.load reads it",
        )
    try:
        return Model(graph=lower_to_integer(read_model(file)), path=file)
    except ModelError as error:
        raise ModelError(f"{file}: {error}", hint=error.hint) from error


def compile_model(
    model: Model | CompiledModel,
    config: AcceleratorConfig,
    *,
    keep_intermediates: bool = False,
    progress: Callable[[str], None] | None = None,
) -> CompiledModel:
    """Compile a model for one configuration of the accelerator.

    Parameters
    ----------
    model
        A model, or a compiled one to compile again.
    keep_intermediates
        Leave the result of every kernel in DRAM for the host, which `diff` compares.
    progress
        Called with a few words before each phase.

    Raises
    ------
    CompileError
        If the model does not fit the configuration.
    """
    compiled = compile_graph(
        model.graph, config, keep_intermediates=keep_intermediates, progress=progress
    )
    return CompiledModel(compiled=compiled)
