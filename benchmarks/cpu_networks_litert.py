"""The networks of `cpu_networks` as TFLite models, from their ONNX files: float32 and int8.

Images are NHWC. Windows that move by two begin one place later than in ONNX, since padding "SAME"
is what LiteRT computes without a copy; the work is the same. A layer normalisation is written out,
as LiteRT has none.
"""

import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from support.tflite_writer import OperatorSpec, TensorSpec, write_tflite

_SAME, _RELU, _RELU6 = 0, 1, 3  # of the schema's enumerations
_EPSILON = 1e-5
#: What a uint8 value is more than the int8 value that LiteRT keeps.
_UNSIGNED_OFFSET = 128
_RENAMED = {"Add": "ADD", "Mul": "MUL", "Softmax": "SOFTMAX", "Gelu": "GELU"}
_OPTIONS: dict[str, tuple[str, tuple[tuple[str, float], ...]]] = {
    "SOFTMAX": ("SoftmaxOptions", (("Beta", 1.0),)),
    "GELU": ("GeluOptions", (("Approximate", 0),)),
    "ADD": ("AddOptions", ()),
    "MUL": ("MulOptions", ()),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    values: tuple[float, ...]
    zero_points: tuple[int, ...]


class _Translation:
    """One ONNX graph on its way to TFLite, each node in the order of the file."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._constants = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
        self._tensors: list[TensorSpec] = []
        self._operators: list[OperatorSpec] = []
        #: Tensors of TFLite by the name of an ONNX tensor; what is quantised has two names.
        self._places: dict[str, int] = {}
        self._graph = graph
        self._readers = Counter(name for node in graph.node for name in node.input)
        self._scales = self._quantised_tensors()

    def translate(self) -> bytes:
        """Return the TFLite file."""
        (given,), (taken,) = self._graph.input, self._graph.output
        shape = tuple(one.dim_value for one in given.type.tensor_type.shape.dim)
        start = self._add(given.name, _channels_last(shape))
        if given.name in self._scales:
            self._quantise(given.name, start)
        for node in self._graph.node:
            self._node(node)
        end = self._places[taken.name]
        if self._tensors[end].scale:
            real = self._add(f"{taken.name}.real", self._tensors[end].shape)
            self._emit("DEQUANTIZE", (end,), real)
            end = real
        return write_tflite(self._tensors, self._operators, [start], [end])

    def _quantised_tensors(self) -> dict[str, _Scale]:
        """Return the scale of each ONNX tensor that is quantised as soon as it is computed."""
        return {
            node.input[0]: self._scale(node)
            for node in self._graph.node
            if node.op_type == "QuantizeLinear"
        }

    def _scale(self, node: onnx.NodeProto) -> _Scale:
        scale, zero = (self._constants[name] for name in node.input[1:])
        offset = _UNSIGNED_OFFSET if zero.dtype == np.uint8 else 0
        zeros = zero.reshape(-1).astype(int) - offset
        return _Scale(
            values=tuple(map(float, scale.reshape(-1))), zero_points=tuple(map(int, zeros))
        )

    def _add(self, name: str, shape: tuple[int, ...], scale: _Scale | None = None) -> int:
        spec = TensorSpec(name=name, shape=shape, dtype="float32")
        if scale is not None:
            spec = replace(spec, dtype="int8", scale=scale.values, zero_point=scale.zero_points)
        self._tensors.append(spec)
        self._places[name] = len(self._tensors) - 1
        return self._places[name]

    def _constant(self, values: np.ndarray, scale: _Scale | None = None, axis: int = 0) -> int:
        spec = TensorSpec(
            name=f"constant{len(self._tensors)}",
            shape=values.shape,
            dtype=str(values.dtype),
            scale=scale.values if scale else (),
            zero_point=scale.zero_points if scale else (),
            axis=axis,
            data=values,
        )
        self._tensors.append(spec)
        return len(self._tensors) - 1

    def _emit(
        self,
        name: str,
        inputs: tuple[int, ...],
        output: int,
        options_type: str = "",
        options: tuple[tuple[str, float], ...] = (),
    ) -> None:
        self._operators.append(
            OperatorSpec(
                name=name,
                inputs=inputs,
                outputs=(output,),
                options_type=options_type,
                options=options,
            )
        )

    def _quantise(self, name: str, real: int) -> None:
        shape = self._tensors[real].shape
        self._emit("QUANTIZE", (real,), self._add(name, shape, self._scales[name]))

    def _result(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> int:
        name = node.output[0]
        return self._add(name, shape, self._scales.get(name))

    def _read(self, name: str) -> int:
        """Return the tensor of that name, a scalar or a vector of constants if it is one."""
        if name not in self._places:
            self._places[name] = self._constant(self._constants[name].astype(np.float32))
        return self._places[name]

    def _node(self, node: onnx.NodeProto) -> None:
        given = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        match node.op_type:
            case "QuantizeLinear" | "DequantizeLinear":
                self._renamed(node)
            case "Relu" | "Clip":
                self._activation(node)
            case "Conv":
                self._convolution(node, given)
            case "MaxPool" | "GlobalAveragePool":
                self._pool(node)
            case "Gemm":
                self._dense(node, self._weights(node.input[1]), node.input[2])
            case "MatMul":
                self._product(node)
            case "Flatten" | "Reshape" | "Transpose":
                self._move(node, given)
            case "LayerNormalization":
                self._normalisation(node)
            case kind:
                self._elementwise(node, _RENAMED[kind])

    def _shape(self, node: onnx.NodeProto) -> tuple[int, ...]:
        return self._tensors[self._read(node.input[0])].shape

    def _renamed(self, node: onnx.NodeProto) -> None:
        """Give a quantised tensor, or a constant, its name in real numbers, or the other way."""
        source, output = node.input[0], node.output[0]
        if source in self._places:
            self._places[output] = self._places[source]
        elif source in self._constants:
            self._constants[output] = self._constants[source]
            self._scales[output] = self._scale(node)

    def _move(self, node: onnx.NodeProto, given: dict[str, Any]) -> None:
        source, shape = self._read(node.input[0]), self._shape(node)
        match node.op_type:
            case "Flatten":
                self._places[node.output[0]] = source
            case "Reshape":
                free = np.empty(shape, bool).reshape(self._constants[node.input[1]])
                shape = free.shape
                wanted = self._constant(np.array(shape, np.int32))
                self._emit("RESHAPE", (source, wanted), self._result(node, shape))
            case "Transpose":
                order = given["perm"]
                wanted = self._constant(np.array(order, np.int32))
                output = self._result(node, tuple(shape[axis] for axis in order))
                self._emit("TRANSPOSE", (source, wanted), output)

    def _activation(self, node: onnx.NodeProto) -> None:
        """Put a limit into the operator before it."""
        last = self._operators[-1]
        (output,) = last.outputs
        assert self._places[node.input[0]] == output, "a limit follows what it limits"
        kind = _RELU if node.op_type == "Relu" else _RELU6
        options = (*last.options, ("FusedActivationFunction", kind))
        self._operators[-1] = replace(last, options=options)
        scale = self._scales.get(node.output[0])
        self._places[node.output[0]] = output
        if scale is not None:
            self._tensors[output] = replace(
                self._tensors[output],
                dtype="int8",
                scale=scale.values,
                zero_point=scale.zero_points,
            )

    def _weights(self, name: str, axis: int = 0) -> int:
        return self._constant(self._constants[name], self._scales.get(name), axis)

    def _bias(self, name: str) -> int:
        return self._constant(self._constants[name], self._scales.get(name))

    def _convolution(self, node: onnx.NodeProto, given: dict[str, Any]) -> None:
        batch, height, width, _ = self._shape(node)
        name, stride, groups = node.input[1], given["strides"][0], given["group"]
        weights, scale = self._constants[name], self._scales.get(name)
        outputs = weights.shape[0]
        shape = (batch, -(-height // stride), -(-width // stride), outputs)
        steps: tuple[tuple[str, float], ...] = (("StrideH", stride), ("StrideW", stride))
        options = (("Padding", _SAME), *steps)
        if groups == 1:
            kernel = self._constant(np.ascontiguousarray(weights.transpose(0, 2, 3, 1)), scale)
            kind, table = "CONV_2D", "Conv2DOptions"
        else:
            taps = np.ascontiguousarray(weights.transpose(1, 2, 3, 0))
            kernel = self._constant(taps, scale, axis=3)
            kind, table = "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions"
            options = (*options, ("DepthMultiplier", 1))
        source, bias = self._read(node.input[0]), self._bias(node.input[2])
        self._emit(kind, (source, kernel, bias), self._result(node, shape), table, options)

    def _pool(self, node: onnx.NodeProto) -> None:
        source = self._read(node.input[0])
        batch, height, width, channels = self._shape(node)
        if node.op_type == "GlobalAveragePool":
            axes = self._constant(np.array([1, 2], np.int32))
            output = self._result(node, (batch, channels))
            return self._emit("MEAN", (source, axes), output, "ReducerOptions")
        options = (
            ("Padding", _SAME),
            *(("StrideH", 2), ("StrideW", 2), ("FilterHeight", 3), ("FilterWidth", 3)),
        )
        output = self._result(node, (batch, -(-height // 2), -(-width // 2), channels))
        return self._emit("MAX_POOL_2D", (source,), output, "Pool2DOptions", options)

    def _dense(self, node: onnx.NodeProto, weights: int, bias: str | None) -> None:
        shape = (*self._shape(node)[:-1], self._tensors[weights].shape[0])
        operands = [self._read(node.input[0]), weights]
        if bias is not None:
            operands.append(self._bias(bias))
        options = (("KeepNumDims", int(len(shape) > 2)),)
        output = self._result(node, shape)
        self._emit("FULLY_CONNECTED", tuple(operands), output, "FullyConnectedOptions", options)

    def _product(self, node: onnx.NodeProto) -> None:
        left, right = node.input
        if right in self._constants:
            turned = self._constant(np.ascontiguousarray(self._constants[right].T))
            return self._dense(node, turned, None)
        shape = (*self._shape(node)[:-1], self._tensors[self._read(right)].shape[-1])
        operands = (self._read(left), self._read(right))
        output = self._result(node, shape)
        return self._emit("BATCH_MATMUL", operands, output, "BatchMatMulOptions")

    def _elementwise(self, node: onnx.NodeProto, name: str) -> None:
        table, options = _OPTIONS[name]
        operands = tuple(self._read(operand) for operand in node.input)
        shape = max((self._tensors[one].shape for one in operands), key=len)
        self._emit(name, operands, self._result(node, shape), table, options)

    def _normalisation(self, node: onnx.NodeProto) -> None:
        source, scale, bias = (self._read(name) for name in node.input)
        shape = self._tensors[source].shape
        narrow = (*shape[:-1], 1)
        last = self._constant(np.array([len(shape) - 1], np.int32))
        epsilon = self._constant(np.array(_EPSILON, np.float32))
        name = node.output[0]

        def step(kind: str, operands: tuple[int, ...], size: tuple[int, ...], table: str) -> int:
            output = self._add(f"{name}.{len(self._tensors)}", size)
            options = (("KeepDims", 1),) if table == "ReducerOptions" else ()
            self._emit(kind, operands, output, table, options)
            return output

        mean = step("MEAN", (source, last), narrow, "ReducerOptions")
        square = step("SQUARED_DIFFERENCE", (source, mean), shape, "SquaredDifferenceOptions")
        variance = step("MEAN", (square, last), narrow, "ReducerOptions")
        inverse = step(
            "RSQRT", (step("ADD", (variance, epsilon), narrow, "AddOptions"),), narrow, ""
        )
        centred = step("SUB", (source, mean), shape, "SubOptions")
        normal = step("MUL", (centred, inverse), shape, "MulOptions")
        scaled = step("MUL", (normal, scale), shape, "MulOptions")
        self._emit("ADD", (scaled, bias), self._add(name, shape), "AddOptions")


def _channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) != 4:
        return shape
    batch, channels, height, width = shape
    return batch, height, width, channels


def litert_model(path: Path) -> bytes:
    """Return the network of an ONNX file as a TFLite file."""
    return _Translation(onnx.load(path).graph).translate()
