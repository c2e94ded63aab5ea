"""ONNX files as plain data: decoded, checked for size and free of protocol buffers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilewright.compiler.graph import Array
from tilewright.compiler.graph_builder import MAX_ELEMENTS
from tilewright.isa.errors import ModelError

Attribute: TypeAlias = int | float | str | tuple[int, ...] | tuple[float, ...] | Array
Dimension: TypeAlias = int | str

#: TensorProto.DataType (onnx.proto3) to numpy, and the field holding the values outside raw_data.
ELEMENT_TYPES: Mapping[int, tuple[str, str]] = {
    1: ("float32", "float_data"),
    2: ("uint8", "int32_data"),
    3: ("int8", "int32_data"),
    4: ("uint16", "int32_data"),
    5: ("int16", "int32_data"),
    6: ("int32", "int32_data"),
    7: ("int64", "int64_data"),
    9: ("bool", "int32_data"),
    10: ("float16", "int32_data"),
    11: ("float64", "double_data"),
    16: ("bfloat16", "int32_data"),
}
#: Types of 16 bits, which are read as float32.
HALVES = ("float16", "bfloat16")

DAMAGED_NAME = "the ONNX model is damaged: a name is not valid UTF-8"
#: Most axes of a tensor; more is taken for damage.
MAX_AXES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxValue:
    """A graph input: element type as in `ELEMENT_TYPES`, sizes or symbolic names per axis."""

    name: str
    element_type: int
    shape: tuple[Dimension, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxNode:
    """One node; `label` names it in messages."""

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]

    @property
    def label(self) -> str:
        """The node as an error message names it."""
        return _label(self.name, self.op_type)

    def integer(self, name: str, default: int) -> int:
        """Return an integer attribute."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise ModelError(f"{self.label} needs an integer {name!r}")
        return value

    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Return an attribute that is a list of integers."""
        value = self.attributes.get(name, default)
        if not isinstance(value, tuple):
            raise ModelError(f"{self.label} needs a list of integers {name!r}")
        return tuple(int(item) for item in value)

    def real(self, name: str, default: float) -> float:
        """Return a float attribute."""
        value = self.attributes.get(name, default)
        if not isinstance(value, float) or not math.isfinite(value):
            raise ModelError(f"{self.label} needs a finite number {name!r}")
        return value

    def text(self, name: str, default: str) -> str:
        """Return a string attribute."""
        value = self.attributes.get(name, default)
        if not isinstance(value, str):
            raise ModelError(f"{self.label} needs a string {name!r}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxModel:
    """The main graph of a model file; `opset` is the version of the default domain."""

    opset: int
    nodes: tuple[OnnxNode, ...]
    initializers: Mapping[str, Array]
    inputs: tuple[OnnxValue, ...]
    outputs: tuple[str, ...]


def decode_onnx(data: bytes) -> OnnxModel:
    """Decode the bytes of an ONNX file.

    Raises
    ------
    ModelError
        If they are not an ONNX model or are damaged.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        return _model(onnx.ModelProto.FromString(data))
    except DecodeError as error:
        raise ModelError("the file is not an ONNX model, or is damaged") from error
    except UnicodeDecodeError as error:
        raise ModelError(DAMAGED_NAME) from error


def _model(model: Any) -> OnnxModel:
    graph = model.graph
    if not graph.node:
        raise ModelError("the file is not an ONNX model, or holds no nodes")
    opsets = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if not opsets:
        raise ModelError("the ONNX model does not say which operator set it uses")
    initializers = {_text(tensor.name): _array(tensor) for tensor in graph.initializer}
    if graph.sparse_initializer:
        raise ModelError("the ONNX model has sparse initializers, which are not supported")
    return OnnxModel(
        opset=max(opsets),
        nodes=tuple(_node(node, index) for index, node in enumerate(graph.node)),
        initializers=initializers,
        inputs=tuple(_value(value) for value in graph.input if value.name not in initializers),
        outputs=tuple(_text(value.name) for value in graph.output),
    )


def _label(name: str, op_type: str) -> str:
    kind = op_type if op_type.isidentifier() else repr(op_type)
    return f"node {name!r} ({kind})"


def _text(value: str | bytes) -> str:
    """Return a string field; protocol buffers hand out as bytes what is not UTF-8."""
    if isinstance(value, bytes):
        raise ModelError(DAMAGED_NAME)
    return value


def _value(value: Any) -> OnnxValue:
    name = _text(value.name)
    if not value.type.HasField("tensor_type"):
        raise ModelError(f"input {name!r} is not a tensor")
    tensor = value.type.tensor_type
    shape: tuple[Dimension, ...] | None = None
    if tensor.HasField("shape"):
        shape = tuple(
            axis.dim_value if axis.HasField("dim_value") else _text(axis.dim_param) or "?"
            for axis in tensor.shape.dim
        )
    return OnnxValue(name=name, element_type=tensor.elem_type, shape=shape)


def _node(node: Any, index: int) -> OnnxNode:
    op_type, domain = _text(node.op_type), _text(node.domain)
    name = _text(node.name) or f"{op_type}_{index}"
    return OnnxNode(
        name=name,
        op_type=op_type,
        domain="" if domain == "ai.onnx" else domain,
        inputs=tuple(_text(value) for value in node.input),
        outputs=tuple(_text(value) for value in node.output),
        attributes={
            _text(item.name): _attribute(item, _label(name, op_type)) for item in node.attribute
        },
    )


def _attribute(item: Any, where: str) -> Attribute:
    kinds = type(item)
    if item.type == kinds.INT:
        return int(item.i)
    if item.type == kinds.FLOAT:
        return float(item.f)
    if item.type == kinds.STRING:
        return bytes(item.s).decode()
    if item.type == kinds.INTS:
        return tuple(item.ints)
    if item.type == kinds.FLOATS:
        return tuple(item.floats)
    if item.type == kinds.TENSOR:
        return _array(item.t)
    raise ModelError(f"{where} has attribute {_text(item.name)!r} of a type not supported")


def _array(tensor: Any) -> Array:
    where = f"tensor {_text(tensor.name)!r}"
    if tensor.data_type not in ELEMENT_TYPES:
        raise ModelError(f"{where} has element type {tensor.data_type}, which is not supported")
    if tensor.data_location == type(tensor).EXTERNAL:
        raise ModelError(f"{where} lies in another file, which is not supported")
    name, field = ELEMENT_TYPES[tensor.data_type]
    if name in HALVES:
        return _halves(tensor, name, where)
    dtype = np.dtype(name)
    shape = _dimensions(tensor, where)
    if tensor.HasField("raw_data"):
        elements, rest = divmod(len(tensor.raw_data), dtype.itemsize)
        values = np.frombuffer(tensor.raw_data, dtype.newbyteorder("<")) if not rest else None
    else:
        values = np.array(getattr(tensor, field))
        elements = values.size
    if values is None or elements != math.prod(shape):
        raise ModelError(f"{where} of shape {list(shape)} does not have as many values")
    converted = values.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(converted, values):
        raise ModelError(f"{where} holds values that are not {name}")
    return converted.reshape(shape)


def _dimensions(tensor: Any, where: str) -> tuple[int, ...]:
    shape = tuple(tensor.dims)
    if len(shape) > MAX_AXES or any(not 0 <= size <= MAX_ELEMENTS for size in shape):
        raise ModelError(f"{where} has an impossible shape: {list(shape)}")
    return shape


def _halves(tensor: Any, name: str, where: str) -> Array:
    """Return numbers of 16 bits as float32; outside raw_data they lie in integers, bit by bit."""
    shape = _dimensions(tensor, where)
    if tensor.HasField("raw_data"):
        whole = len(tensor.raw_data) % 2 == 0
        bits = np.frombuffer(tensor.raw_data if whole else b"", "<u2")
    else:
        bits = np.array(tensor.int32_data, dtype=np.int64).astype(np.uint16)
    if bits.size != math.prod(shape):
        raise ModelError(f"{where} of shape {list(shape)} does not have as many values")
    if name == "float16":
        return bits.view(np.float16).astype(np.float32).reshape(shape)
    return (bits.astype(np.uint32) << 16).view(np.float32).reshape(shape)
