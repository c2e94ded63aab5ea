"""Input arrays of a model: the check that they fit, and random ones for a first look."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.compiler.graph import Array, Graph, Tensor
from tilewright.compiler.operators import DataType, Quantize
from tilewright.isa.errors import InputError

#: One array per input by name, or one array for a model with one input.
Inputs: TypeAlias = Mapping[str, npt.ArrayLike] | npt.ArrayLike


def check_inputs(graph: Graph, inputs: Inputs) -> dict[str, Array]:
    """Return an array per input of `graph`, in the graph's order.

    Raises
    ------
    InputError
        If an input is missing or unknown, or if an array has not exactly the declared shape and
        element type or holds values that are not finite.
    """
    if not isinstance(inputs, Mapping):
        if len(graph.inputs) != 1:
            raise InputError(
                f"model {graph.name!r} has {len(graph.inputs)} inputs: give a dictionary",
                hint=_listing(graph),
            )
        inputs = {graph.inputs[0]: inputs}
    for name in inputs:
        if name not in graph.inputs:
            raise InputError(f"model {graph.name!r} has no input {name!r}", hint=_listing(graph))
    for name in graph.inputs:
        if name not in inputs:
            raise InputError(f"input {name!r} is missing", hint=_listing(graph))
    return {name: _check_array(graph.tensors[name], inputs[name]) for name in graph.inputs}


def random_inputs(graph: Graph, seed: int) -> dict[str, Array]:
    """Make inputs that cover the range each input is quantised to, uniformly, from a seed."""
    rng = np.random.default_rng(seed)
    return {name: _random_array(graph, graph.tensors[name], rng) for name in graph.inputs}


def describe_input(tensor: Tensor) -> str:
    """Return name, element type and shape of an input, as messages show them."""
    return f"{tensor.name!r} {tensor.type}"


def _listing(graph: Graph) -> str:
    return f"inputs: {', '.join(describe_input(graph.tensors[name]) for name in graph.inputs)}"


def _check_array(tensor: Tensor, value: Any) -> Array:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"input {tensor.name!r} is not an array: {error}") from error
    if array.shape != tensor.shape:
        raise InputError(
            f"input {tensor.name!r} must have the shape {list(tensor.shape)},"
            f" not {list(array.shape)}"
        )
    if array.dtype != tensor.dtype.numpy:
        raise InputError(
            f"input {tensor.name!r} must be of type {tensor.dtype}, not {array.dtype}",
            hint=f"convert it with .astype({tensor.dtype.value!r}) if its values allow it",
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        position = [int(index) for index in np.argwhere(~np.isfinite(array))[0]]
        raise InputError(
            f"input {tensor.name!r} must hold finite values, not {array[tuple(position)]}"
            f" at {position}"
        )
    return array


def _random_array(graph: Graph, tensor: Tensor, rng: np.random.Generator) -> Array:
    if tensor.dtype in (DataType.INT64, DataType.BOOL):
        # Indices and masks: what an embedding of any length holds.
        return rng.integers(0, 2, tensor.shape).astype(tensor.dtype.numpy)
    if tensor.dtype is not DataType.FLOAT32:
        limits = tensor.dtype.limits
        return rng.integers(*limits, tensor.shape, dtype=tensor.dtype.value, endpoint=True)
    low, high = -1.0, 1.0
    for node in graph.consumers()[tensor.name]:
        if isinstance(node.op, Quantize):
            limits = node.op.dtype.limits
            low, high = (node.op.scale * (limit - node.op.zero_point) for limit in limits)
    return rng.uniform(low, high, tensor.shape).astype(np.float32)
