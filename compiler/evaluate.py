"""Evaluation of a graph in numpy: the definition that every device must equal bit for bit."""

from collections.abc import Callable, Mapping

import numpy as np
from typing_extensions import assert_never

from tilewright.compiler.evaluate_convolution import (
    convolve,
    convolve_transposed,
    multiply_matrices,
)
from tilewright.compiler.evaluate_elementwise import (
    add,
    dequantize,
    dequantize_weights,
    layer_norm,
    multiply,
    quantize,
    rescale,
    softmax,
)
from tilewright.compiler.evaluate_float import evaluate_float, evaluate_logic
from tilewright.compiler.evaluate_pooling import average_pool, max_pool
from tilewright.compiler.graph import Array, Graph, Node
from tilewright.compiler.operators import (
    Add,
    AveragePool2d,
    Clip,
    Concat,
    Conv2d,
    ConversionOperator,
    ConvTranspose2d,
    Dequantize,
    DequantizeWeights,
    Expand,
    FloatOperator,
    FloatReduce,
    Gather,
    IntegerOperator,
    LayerNorm,
    LogicOperator,
    Lookup,
    MatMul,
    MaxPool2d,
    MovementOperator,
    Mul,
    Operator,
    Pad,
    Quantize,
    Reinterpret,
    Requantize,
    Reshape,
    Slice,
    Softmax,
    Transpose,
    Upsample2d,
)
from tilewright.isa.errors import InputError


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Array],
    observe: Callable[[str, Array], None] | None = None,
) -> dict[str, Array]:
    """Return the outputs of `graph` for `inputs`.

    Parameters
    ----------
    graph
        Any graph; an integer graph is evaluated exactly, a float one in float32.
    inputs
        One array per graph input. All may hold several times the batch of the graph along axis 0:
        the graph is then evaluated for all these samples at once.
    observe
        Receives name and value of each input and of each tensor as it is computed.

    Raises
    ------
    InputError
        If an input is missing, unknown, not a number, or of the wrong shape or element type.
    """
    last_use = {name: index for index, node in enumerate(graph.nodes) for name in node.inputs}
    kept = {*graph.outputs, *graph.constants}
    values = _starting_values(graph, inputs)
    samples = _samples_per_node(graph, inputs)
    if observe is not None:
        for name in graph.inputs:
            observe(name, values[name])
    for index, node in enumerate(graph.nodes):
        result = evaluate_node(graph, node, values, samples[node.name])
        values[node.outputs[0]] = result
        if observe is not None:
            observe(node.outputs[0], result)
        for name in set(node.inputs) - kept:
            if last_use[name] == index:
                del values[name]
    return {name: values[name] for name in graph.outputs}


def evaluate_all(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return every tensor of `graph` for `inputs`, which are as for `evaluate`."""
    values = _starting_values(graph, inputs)
    samples = _samples_per_node(graph, inputs)
    for node in graph.nodes:
        values[node.outputs[0]] = evaluate_node(graph, node, values, samples[node.name])
    return values


def evaluate_node(graph: Graph, node: Node, values: Mapping[str, Array], samples: int = 1) -> Array:
    """Return the output of one node of `graph`; `samples` is how often its batch is repeated."""
    operands = tuple(values[name] for name in node.inputs)
    if samples > 1:
        return _apply(_repeat_batch(node.op, samples), operands)
    return _apply(node.op, operands)


def _starting_values(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    for name in inputs:
        if name not in graph.inputs:
            raise InputError(
                f"graph {graph.name!r} has no input {name!r}",
                hint=f"its inputs are {', '.join(graph.inputs)}",
            )
    for name in graph.inputs:
        tensor = graph.tensors[name]
        if name not in inputs:
            raise InputError(f"input {name!r} is missing")
        value = inputs[name]
        fits = value.ndim == len(tensor.shape) and value.shape[1:] == tensor.shape[1:]
        if value.dtype != tensor.dtype.numpy or not fits:
            raise InputError(
                f"input {name!r} must be {tensor.type}, not {value.dtype}{list(value.shape)}"
            )
        if value.dtype.kind == "f" and np.isnan(value).any():
            raise InputError(f"input {name!r} holds values that are not a number")
    return {**graph.constants, **inputs}


def _samples(graph: Graph, inputs: Mapping[str, Array]) -> int:
    """Return how many times the batch of the graph the inputs hold."""
    samples = set()
    for name in graph.inputs:
        shape = graph.tensors[name].shape
        if not shape or inputs[name].shape == shape:
            samples.add(1)
        elif inputs[name].shape[0] % shape[0] or not inputs[name].shape[0]:
            raise InputError(
                f"input {name!r} must hold a multiple of {shape[0]} samples, "
                f"not {inputs[name].shape[0]}"
            )
        else:
            samples.add(inputs[name].shape[0] // shape[0])
    if len(samples) > 1:
        raise InputError(f"the inputs hold different numbers of samples: {sorted(samples)}")
    return samples.pop() if samples else 1


def _samples_per_node(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, int]:
    """Return how many times its batch each node computes; what no input reaches, only once."""
    samples = _samples(graph, inputs)
    reached = set(graph.inputs)
    per_node = {}
    for node in graph.nodes:
        varies = not reached.isdisjoint(node.inputs)
        per_node[node.name] = samples if varies else 1
        if varies:
            reached.update(node.outputs)
    return per_node


def batch_is_free(graph: Graph) -> bool:
    """Tell whether a graph can be evaluated for several times its batch at once."""
    try:
        for node in graph.nodes:
            _repeat_batch(node.op, 2)
    except InputError:
        return False
    return all(graph.tensors[name].shape for name in graph.inputs)


def _repeat_batch(op: Operator, samples: int) -> Operator:
    """Return `op` for a batch `samples` times as large; most operators do not depend on it."""
    match op:
        case Reshape(shape=shape) if shape:
            return Reshape(shape=(shape[0] * samples, *shape[1:]))
        case Expand(shape=shape) if shape:
            return Expand(shape=(shape[0] * samples, *shape[1:]))
        case Slice() if op.begin and (op.begin[0], op.stride[0]) == (0, 1):
            return Slice(begin=op.begin, end=(op.end[0] * samples, *op.end[1:]), stride=op.stride)
        case Transpose(permutation=permutation) if permutation and permutation[0]:
            raise InputError("a graph that moves the batch axis takes one batch at a time")
        case Concat(axis=0) | FloatReduce(axes=(0, *_)):
            raise InputError("a graph that joins its batch takes one batch at a time")
        case _:
            return op


def _apply(op: Operator, operands: tuple[Array, ...]) -> Array:
    """Evaluate one operator."""
    match op:
        case _ if isinstance(op, IntegerOperator):
            return _apply_integer(op, operands)
        case _ if isinstance(op, MovementOperator):
            return _apply_movement(op, operands)
        case _ if isinstance(op, ConversionOperator):
            return _apply_conversion(op, operands)
        case _ if isinstance(op, FloatOperator):
            return evaluate_float(op, operands)
        case _ if isinstance(op, LogicOperator):
            return evaluate_logic(op, operands)
        case _:
            assert_never(op)


def _apply_integer(op: IntegerOperator, operands: tuple[Array, ...]) -> Array:  # noqa: C901
    """Evaluate an integer operator: one case each."""
    x = operands[0]
    match op:
        case Conv2d():
            return convolve(op, *operands)
        case ConvTranspose2d():
            return convolve_transposed(op, *operands)
        case MatMul():
            return multiply_matrices(op, *operands)
        case Add():
            return add(op, *operands)
        case Mul():
            return multiply(op, *operands)
        case AveragePool2d():
            return average_pool(op, x)
        case Requantize():
            return rescale(op, x)
        case Clip(low=low, high=high):
            return np.clip(x, low, high).astype(np.int8)
        case Lookup():
            return np.take(operands[1], x.astype(np.int32) + 128)
        case Softmax():
            return softmax(op, *operands)
        case LayerNorm():
            return layer_norm(op, *operands)
        case _:
            assert_never(op)


def _apply_movement(op: MovementOperator, operands: tuple[Array, ...]) -> Array:
    """Evaluate a movement operator: one case each."""
    x = operands[0]
    match op:
        case MaxPool2d():
            return max_pool(op, x)
        case Reshape(shape=shape):
            return x.reshape(shape)
        case Transpose(permutation=permutation):
            return np.ascontiguousarray(x.transpose(permutation))
        case Slice():
            ranges = zip(op.begin, op.end, op.stride, strict=True)
            return np.ascontiguousarray(x[tuple(slice(*bounds) for bounds in ranges)])
        case Pad(before=before, after=after, value=value):
            widths = tuple(zip(before, after, strict=True))
            return np.pad(x, widths, constant_values=x.dtype.type(value))
        case Concat(axis=axis):
            return np.concatenate(operands, axis=axis)
        case Expand(shape=shape):
            return np.ascontiguousarray(np.broadcast_to(x, shape))
        case Upsample2d(factor=(rows, columns)):
            return x.repeat(rows, axis=1).repeat(columns, axis=2)
        case Gather(axis=axis):
            return _gather(x, operands[1], axis)
        case _:
            assert_never(op)


def _gather(x: Array, indices: Array, axis: int) -> Array:
    size = x.shape[axis]
    if indices.size and not -size <= indices.min() <= indices.max() < size:
        raise InputError(
            f"an index of {indices.min()} to {indices.max()} is not within an axis of {size}"
        )
    return np.take(x, indices, axis=axis)


def _apply_conversion(op: ConversionOperator, operands: tuple[Array, ...]) -> Array:
    """Evaluate a conversion between real numbers and integers."""
    x = operands[0]
    match op:
        case Quantize():
            return quantize(op, x)
        case Dequantize():
            return dequantize(op, x)
        case DequantizeWeights():
            return dequantize_weights(op, *operands)
        case Reinterpret(dtype=dtype):
            moved: Array = (x.view(np.uint8) ^ np.uint8(0x80)).view(dtype.numpy)
            return moved
        case _:
            assert_never(op)
