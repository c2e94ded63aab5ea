"""A writer of small TFLite files, on the generated schema classes of the tflite package."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
import tflite

TYPES = {
    "float32": tflite.TensorType.FLOAT32,
    "float16": tflite.TensorType.FLOAT16,
    "int8": tflite.TensorType.INT8,
    "uint8": tflite.TensorType.UINT8,
    "int32": tflite.TensorType.INT32,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """A tensor; with `data` it is constant."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "int8"
    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()
    axis: int = 0
    data: npt.NDArray[Any] | None = None
    signature: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSpec:
    """An operator; `options` are integers by the name of the schema's field."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options_type: str = ""
    options: tuple[tuple[str, float], ...] = ()


def write_tflite(
    tensors: Sequence[TensorSpec],
    operators: Sequence[OperatorSpec],
    inputs: Sequence[int],
    outputs: Sequence[int],
) -> bytes:
    """Return a TFLite file of one subgraph."""
    builder = flatbuffers.Builder(1024)
    buffers = [_buffer(builder, None)]
    offsets = []
    for tensor in tensors:
        buffer = 0
        if tensor.data is not None:
            buffer = len(buffers)
            buffers.append(_buffer(builder, tensor.data))
        offsets.append(_tensor(builder, tensor, buffer))
    names = list(dict.fromkeys(operator.name for operator in operators))
    codes = [_code(builder, name) for name in names]
    operations = [_operator(builder, item, names.index(item.name)) for item in operators]
    fields = {
        "Tensors": _offsets(builder, offsets),
        "Inputs": builder.CreateNumpyVector(np.array(inputs, np.int32)),
        "Outputs": builder.CreateNumpyVector(np.array(outputs, np.int32)),
        "Operators": _offsets(builder, operations),
    }
    subgraph = _table(builder, "SubGraph", fields)
    model = _table(
        builder,
        "Model",
        {
            "Version": 3,
            "OperatorCodes": _offsets(builder, codes),
            "Subgraphs": _offsets(builder, [subgraph]),
            "Buffers": _offsets(builder, buffers),
        },
    )
    builder.Finish(model, file_identifier=b"TFL3")
    return bytes(builder.Output())


def _table(builder: Any, table: str, fields: dict[str, Any]) -> Any:
    getattr(tflite, f"{table}Start")(builder)
    for name, value in fields.items():
        _adder(table, name)(builder, value)
    return getattr(tflite, f"{table}End")(builder)


def _adder(table: str, name: str) -> Callable[[Any, Any], None]:
    adder: Callable[[Any, Any], None] = getattr(tflite, f"{table}Add{name}")
    return adder


def _offsets(builder: Any, offsets: list[Any]) -> Any:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()


def _buffer(builder: Any, data: npt.NDArray[Any] | None) -> Any:
    fields = {}
    if data is not None:
        raw = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
        fields["Data"] = builder.CreateNumpyVector(raw)
    return _table(builder, "Buffer", fields)


def _tensor(builder: Any, tensor: TensorSpec, buffer: int) -> Any:
    fields = {
        "Shape": builder.CreateNumpyVector(np.array(tensor.shape, np.int32)),
        "Type": TYPES[tensor.dtype],
        "Buffer": buffer,
        "Name": builder.CreateString(tensor.name),
    }
    if tensor.signature:
        signature = np.array(tensor.signature, np.int32)
        fields["ShapeSignature"] = builder.CreateNumpyVector(signature)
    if tensor.scale:
        quantization = {
            "Scale": builder.CreateNumpyVector(np.array(tensor.scale, np.float32)),
            "ZeroPoint": builder.CreateNumpyVector(np.array(tensor.zero_point, np.int64)),
            "QuantizedDimension": tensor.axis,
        }
        fields["Quantization"] = _table(builder, "QuantizationParameters", quantization)
    return _table(builder, "Tensor", fields)


def _code(builder: Any, name: str) -> Any:
    number = getattr(tflite.BuiltinOperator, name)
    fields = {"DeprecatedBuiltinCode": min(number, 127), "Version": 1, "BuiltinCode": number}
    return _table(builder, "OperatorCode", fields)


def _operator(builder: Any, operator: OperatorSpec, code: int) -> Any:
    fields: dict[str, Any] = {
        "OpcodeIndex": code,
        "Inputs": builder.CreateNumpyVector(np.array(operator.inputs, np.int32)),
        "Outputs": builder.CreateNumpyVector(np.array(operator.outputs, np.int32)),
    }
    if operator.options_type:
        options = _table(builder, operator.options_type, dict(operator.options))
        kind = getattr(tflite.BuiltinOptions, operator.options_type)
        fields |= {"BuiltinOptionsType": kind, "BuiltinOptions": options}
    return _table(builder, "Operator", fields)
