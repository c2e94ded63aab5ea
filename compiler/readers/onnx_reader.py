"""ONNX files to graphs: quantised networks in QDQ and in QOperator form."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tilewright.compiler.graph import Graph, Source, Tensor
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import DataType
from tilewright.compiler.readers import (
    onnx_elementwise,
    onnx_matrix,
    onnx_movement,
    onnx_windows,
)
from tilewright.compiler.readers.onnx_file import (
    ELEMENT_TYPES,
    OnnxModel,
    OnnxNode,
    OnnxValue,
    decode_onnx,
)
from tilewright.compiler.readers.onnx_translation import OnnxTranslation
from tilewright.isa.errors import ModelError

Handler: TypeAlias = Callable[[OnnxTranslation, OnnxNode], None]

MICROSOFT = "com.microsoft"

#: Who translates which operator of the default domain.
HANDLERS: Mapping[str, Handler] = {
    "Add": onnx_matrix.add,
    "AveragePool": onnx_windows.average_pool,
    "Clip": onnx_elementwise.clip,
    "Concat": onnx_movement.concat,
    "Constant": onnx_movement.constant,
    "Conv": onnx_windows.conv,
    "DequantizeLinear": onnx_elementwise.dequantize_linear,
    "Dropout": onnx_movement.identity,
    "Elu": onnx_elementwise.elu,
    "Flatten": onnx_movement.flatten,
    "Gemm": onnx_matrix.gemm,
    "GlobalAveragePool": onnx_windows.global_average_pool,
    "HardSigmoid": onnx_elementwise.hard_sigmoid,
    "HardSwish": onnx_elementwise.hard_swish,
    "Identity": onnx_movement.identity,
    "LeakyRelu": onnx_elementwise.leaky_relu,
    "MatMul": onnx_matrix.matmul,
    "MaxPool": onnx_windows.max_pool,
    "Pad": onnx_movement.pad,
    "QLinearConv": onnx_windows.qlinear_conv,
    "QLinearMatMul": onnx_matrix.qlinear_matmul,
    "QuantizeLinear": onnx_elementwise.quantize_linear,
    "ReduceMean": onnx_elementwise.reduce_mean,
    "Relu": onnx_elementwise.relu,
    "Reshape": onnx_movement.reshape,
    "Sigmoid": onnx_elementwise.sigmoid,
    "Slice": onnx_movement.slice_,
    "Softmax": onnx_elementwise.softmax,
    "Squeeze": onnx_movement.squeeze,
    "Tanh": onnx_elementwise.tanh,
    "Transpose": onnx_movement.transpose,
    "Unsqueeze": onnx_movement.unsqueeze,
}
#: The same for the domain com.microsoft.
MICROSOFT_HANDLERS: Mapping[str, Handler] = {
    "DequantizeLinear": onnx_elementwise.dequantize_linear,
    "QGemm": onnx_matrix.qgemm,
    "QLinearAdd": onnx_matrix.qlinear_add,
    "QLinearAveragePool": onnx_windows.qlinear_average_pool,
    "QLinearConcat": onnx_movement.qlinear_concat,
    "QLinearGlobalAveragePool": onnx_windows.qlinear_global_average_pool,
    "QLinearLeakyRelu": onnx_elementwise.qlinear_leaky_relu,
    "QLinearSigmoid": onnx_elementwise.qlinear_sigmoid,
    "QuantizeLinear": onnx_elementwise.quantize_linear,
}


def read_onnx(data: bytes, name: str) -> Graph:
    """Translate the bytes of an ONNX file called `name`.

    A symbolic batch size becomes 1, and the graph's notes say so. Tensors keep the file's names.

    Raises
    ------
    ModelError
        If the file is damaged, not quantised, or uses what is not supported.
    """
    model = decode_onnx(data)
    if not any(_is_quantised(node.op_type) for node in model.nodes):
        raise ModelError(
            "the model computes in floating point",
            hint="quantise it first, for example with onnxruntime.quantization.quantize_static",
        )
    builder = GraphBuilder(name)
    builder.reserve((*model.outputs, *(value.name for value in model.inputs)))
    state = OnnxTranslation(builder, model.opset, model.outputs)
    state.constants.update(model.initializers)
    for value in model.inputs:
        tensor = _input(value)
        state.bind(value.name, builder.add_input(tensor))
        if value.shape and value.shape[0] != tensor.shape[0]:
            builder.add_note(
                f"input {value.name!r} has the batch size {value.shape[0]!r}, taken as 1"
            )
    for node in model.nodes:
        _handler(node)(state, node)
    return builder.build([_output(state, output) for output in _distinct(model)])


def _is_quantised(op_type: str) -> bool:
    return (
        op_type.startswith(("QLinear", "QGemm"))
        or op_type.endswith("quantizeLinear")
        or (op_type == "QuantizeLinear")
    )


def _handler(node: OnnxNode) -> Handler:
    tables = {"": HANDLERS, MICROSOFT: MICROSOFT_HANDLERS}
    handler = tables.get(node.domain, {}).get(node.op_type)
    if handler is None:
        domain = f" of domain {node.domain!r}" if node.domain else ""
        raise ModelError(f"{node.label}{domain} is not a supported operator")
    return handler


def _input(value: OnnxValue) -> Tensor:
    where = f"input {value.name!r}"
    types = {"float32": DataType.FLOAT32, "uint8": DataType.UINT8, "int8": DataType.INT8}
    element = ELEMENT_TYPES.get(value.element_type, (f"type {value.element_type}", ""))[0]
    if element not in types:
        raise ModelError(f"{where} is {element}; float32, uint8 and int8 are supported")
    if not value.shape:
        raise ModelError(f"{where} has no shape")
    shape = []
    for axis, size in enumerate(value.shape):
        if isinstance(size, int) and size > 0:
            shape.append(size)
        elif axis == 0:
            shape.append(1)
        else:
            raise ModelError(
                f"{where} has a dynamic shape: axis {axis} is {size!r}",
                hint="fix its sizes, for example with onnxruntime.tools.make_dynamic_shape_fixed",
            )
    return Tensor(
        name=value.name,
        shape=tuple(shape),
        dtype=types[element],
        source=Source(name=value.name, axes=tuple(range(len(shape)))),
    )


def _distinct(model: OnnxModel) -> tuple[str, ...]:
    if not model.outputs:
        raise ModelError("the ONNX model has no outputs")
    if len(set(model.outputs)) != len(model.outputs):
        raise ModelError("the ONNX model names an output twice")
    return model.outputs


def _output(state: OnnxTranslation, name: str) -> str:
    tensor = state.bound(name)
    if tensor is None:
        raise ModelError(f"output {name!r} is not computed by any node")
    return tensor
