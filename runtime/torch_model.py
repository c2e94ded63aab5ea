"""PyTorch modules as models, by way of PyTorch's own ONNX exporters."""

import importlib.util
import io
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.compiler.graph import Graph
from tilewright.compiler.passes.pipeline import lower_to_integer
from tilewright.compiler.readers.onnx_reader import read_onnx
from tilewright.isa.errors import InputError, ModelError

if TYPE_CHECKING:
    import torch

#: What the exporter of `torch.export` needs besides PyTorch.
EXPORTER = "onnxscript"


def is_module(model: object) -> bool:
    """Tell whether an object is a PyTorch module, without importing PyTorch."""
    return any(
        (base.__module__, base.__qualname__) == ("torch.nn.modules.module", "Module")
        for base in type(model).__mro__
    )


def load_module(module: "torch.nn.Module", example: Any) -> Graph:
    """Return the graph of a module as `example` runs through it, in inference.

    Parameters
    ----------
    module
        Its weights must be in the memory of the CPU.
    example
        A tensor or an array, or a tuple of them, one per positional argument of ``forward``; their
        shapes are those of the graph's inputs, the batch included.

    Raises
    ------
    ModelError
        If PyTorch cannot export the module, or it computes what is not supported.
    """
    if example is None:
        raise InputError(
            "a PyTorch module needs example inputs",
            hint="example=torch.zeros(1, 3, 224, 224), for one",
        )
    arguments = _arguments(example)
    training = module.training
    module.eval()
    try:
        data = _exported(module, arguments)
    finally:
        module.train(training)
    name = type(module).__name__
    try:
        return lower_to_integer(read_onnx(data, name))
    except ModelError as error:
        raise ModelError(f"module {name}: {error}", hint=error.hint) from error


def _arguments(example: Any) -> tuple["torch.Tensor", ...]:
    import torch

    if isinstance(example, Mapping):
        raise InputError("example inputs of a module are a tensor or a tuple of tensors")
    items = example if isinstance(example, tuple | list) else (example,)
    return tuple(torch.as_tensor(item) for item in items)


def _exported(module: "torch.nn.Module", arguments: tuple["torch.Tensor", ...]) -> bytes:
    import torch

    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if importlib.util.find_spec(EXPORTER) is None:
                buffer = io.BytesIO()
                torch.onnx.export(module, arguments, buffer, dynamo=False)
                return buffer.getvalue()
            program = torch.onnx.export(module, arguments, dynamo=True, verbose=False)
            assert program is not None, "without a file, the exporter returns the program"
            data: bytes = program.model_proto.SerializeToString()
            return data
    # Exporters raise whatever the module's own code and every layer below raise.
    except Exception as error:
        first = str(error).strip().splitlines()
        raise ModelError(
            f"PyTorch cannot export module {type(module).__name__}:"
            f" {type(error).__name__}: {first[0] if first else ''}"[:300]
        ) from error
