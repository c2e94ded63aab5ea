"""ONNX nodes computed while reading: those whose inputs are all constant, and shapes."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tilewright.compiler.graph import Array
from tilewright.compiler.readers.onnx_file import ELEMENT_TYPES, OnnxNode
from tilewright.isa.errors import ModelError

Folder: TypeAlias = Callable[[OnnxNode, Sequence[Array]], Array]

#: Largest result that is larger than what it is made from; more is taken for damage.
MAX_FOLDED = 1 << 22
#: What numpy raises for operands that do not fit an operation.
MISFITS = (ValueError, IndexError, TypeError, OverflowError, ArithmeticError)


def fold(node: OnnxNode, operands: Sequence[Array]) -> Array | None:
    """Return the result of a node from its constant operands, None where it has to be translated.

    Raises
    ------
    ModelError
        If the operands do not suit the operator.
    """
    folder = FOLDERS.get(node.op_type)
    if folder is None or node.domain:
        return None
    try:
        with np.errstate(all="ignore"):
            return np.asarray(folder(node, operands))
    except MISFITS as error:
        raise ModelError(f"{node.label} has constant inputs that do not suit it") from error


def element_type(node: OnnxNode, number: int) -> str:
    """Return numpy's name of an ONNX element type; half precision is float32 here."""
    if number not in ELEMENT_TYPES:
        raise ModelError(f"{node.label} wants element type {number}, which is not supported")
    name = ELEMENT_TYPES[number][0]
    return "float32" if name in ("float16", "bfloat16") else name


def _check_size(shape: Sequence[int]) -> None:
    if any(size < 0 for size in shape) or math.prod(shape) > MAX_FOLDED:
        raise ValueError("too large")


def _binary(function: Callable[[Array, Array], Array]) -> Folder:
    def folded(node: OnnxNode, operands: Sequence[Array]) -> Array:
        a, b = operands
        shape = np.broadcast_shapes(a.shape, b.shape)
        if shape not in (a.shape, b.shape):
            _check_size(shape)
        return function(a, b)

    return folded


def _unary(function: Callable[[Array], Array]) -> Folder:
    def folded(node: OnnxNode, operands: Sequence[Array]) -> Array:
        (x,) = operands
        return function(x)

    return folded


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.divide(a, b)
    if not b.all():
        raise ZeroDivisionError
    quotient: Array = np.trunc(a / b).astype(a.dtype)
    return quotient


def _power(a: Array, b: Array) -> Array:
    result: Array = np.power(a, b.astype(a.dtype))
    return result.astype(a.dtype)


def _cast(node: OnnxNode, operands: Sequence[Array]) -> Array:
    (x,) = operands
    return x.astype(element_type(node, node.integer("to", 1)))


def _gather(node: OnnxNode, operands: Sequence[Array]) -> Array:
    data, indices = operands
    return np.take(data, indices, axis=node.integer("axis", 0))


def _concat(node: OnnxNode, operands: Sequence[Array]) -> Array:
    return np.concatenate(operands, axis=node.integer("axis", 0))


def _slice(node: OnnxNode, operands: Sequence[Array]) -> Array:
    data, *bounds = operands
    if bounds:
        starts, ends, *rest = ([int(value) for value in values.reshape(-1)] for values in bounds)
    else:
        starts, ends = list(node.integers("starts", ())), list(node.integers("ends", ()))
        rest = [list(node.integers("axes", ()))] if "axes" in node.attributes else []
    axes = rest[0] if rest and rest[0] else list(range(len(starts)))
    steps = rest[1] if len(rest) > 1 else [1] * len(starts)
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index[axis] = slice(start, end if step > 0 or end > -(2**31) else None, step)
    sliced: Array = data[tuple(index)]
    return sliced


def _axes(node: OnnxNode, operands: Sequence[Array]) -> tuple[int, ...] | None:
    if len(operands) > 1:
        return tuple(int(value) for value in operands[1].reshape(-1))
    return node.integers("axes", ()) if "axes" in node.attributes else None


def _squeeze(node: OnnxNode, operands: Sequence[Array]) -> Array:
    return np.squeeze(operands[0], axis=_axes(node, operands))


def _unsqueeze(node: OnnxNode, operands: Sequence[Array]) -> Array:
    return np.expand_dims(operands[0], axis=_axes(node, operands) or ())


def _reshape(node: OnnxNode, operands: Sequence[Array]) -> Array:
    data, shape = operands
    target = [
        data.shape[axis] if size == 0 and not node.integer("allowzero", 0) else int(size)
        for axis, size in enumerate(shape.reshape(-1).tolist())
    ]
    return data.reshape(target)


def _transpose(node: OnnxNode, operands: Sequence[Array]) -> Array:
    (x,) = operands
    return np.transpose(x, node.integers("perm", tuple(reversed(range(x.ndim)))))


def _range(node: OnnxNode, operands: Sequence[Array]) -> Array:
    start, limit, step = (values.reshape(()) for values in operands)
    count = max(math.ceil((float(limit) - float(start)) / float(step)), 0)
    _check_size([count])
    values: Array = start + np.arange(count).astype(start.dtype) * step
    return values.astype(start.dtype)


def _constant_of_shape(node: OnnxNode, operands: Sequence[Array]) -> Array:
    shape = [int(size) for size in operands[0].reshape(-1)]
    _check_size(shape)
    value = node.attributes.get("value", np.zeros(1, np.float32))
    if not isinstance(value, np.ndarray):
        raise TypeError
    return np.full(shape, value.reshape(-1)[0], dtype=value.dtype)


def _expand(node: OnnxNode, operands: Sequence[Array]) -> Array:
    data, shape = operands
    target = np.broadcast_shapes(data.shape, tuple(int(size) for size in shape.reshape(-1)))
    _check_size(target)
    return np.ascontiguousarray(np.broadcast_to(data, target))


def _tile(node: OnnxNode, operands: Sequence[Array]) -> Array:
    data, repeats = operands
    counts = [int(count) for count in repeats.reshape(-1)]
    _check_size([size * count for size, count in zip(data.shape, counts, strict=True)])
    return np.tile(data, counts)


def _where(node: OnnxNode, operands: Sequence[Array]) -> Array:
    condition, a, b = operands
    _check_size(np.broadcast_shapes(condition.shape, a.shape, b.shape))
    return np.where(condition, a, b)


def _reduce(function: Callable[..., Array]) -> Folder:
    def folded(node: OnnxNode, operands: Sequence[Array]) -> Array:
        keep = bool(node.integer("keepdims", 1))
        return function(operands[0], axis=_axes(node, operands), keepdims=keep)

    return folded


def _trilu(node: OnnxNode, operands: Sequence[Array]) -> Array:
    data, *diagonal = operands
    offset = int(diagonal[0].reshape(())) if diagonal else 0
    return np.triu(data, offset) if node.integer("upper", 1) else np.tril(data, offset)


def _size(node: OnnxNode, operands: Sequence[Array]) -> Array:
    return np.array(operands[0].size, dtype=np.int64)


#: Who computes which operator of the default domain.
FOLDERS: Mapping[str, Folder] = {
    "Abs": _unary(np.abs),
    "Add": _binary(np.add),
    "And": _binary(np.logical_and),
    "Cast": _cast,
    "Ceil": _unary(np.ceil),
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Cos": _unary(np.cos),
    "Div": _binary(_divide),
    "Equal": _binary(np.equal),
    "Exp": _unary(np.exp),
    "Expand": _expand,
    "Floor": _unary(np.floor),
    "Gather": _gather,
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "Identity": _unary(np.asarray),
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "Log": _unary(np.log),
    "Mod": _binary(np.mod),
    "Mul": _binary(np.multiply),
    "Neg": _unary(np.negative),
    "Not": _unary(np.logical_not),
    "Or": _binary(np.logical_or),
    "Pow": _binary(_power),
    "Range": _range,
    "Reciprocal": _unary(np.reciprocal),
    "ReduceMax": _reduce(np.max),
    "ReduceMean": _reduce(np.mean),
    "ReduceMin": _reduce(np.min),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "Reshape": _reshape,
    "Sin": _unary(np.sin),
    "Size": _size,
    "Slice": _slice,
    "Sqrt": _unary(np.sqrt),
    "Squeeze": _squeeze,
    "Sub": _binary(np.subtract),
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
