"""ONNX files to graphs: networks in floating point, in QDQ and in QOperator form."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from tilewright.compiler.graph import Graph, Source, Tensor
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import DataType
from tilewright.compiler.readers import (
    onnx_elementwise,
    onnx_logic,
    onnx_matrix,
    onnx_movement,
    onnx_normalisation,
    onnx_quantisation,
    onnx_resize,
    onnx_windows,
)
from tilewright.compiler.readers.onnx_file import (
    ELEMENT_TYPES,
    HALVES,
    OnnxModel,
    OnnxNode,
    OnnxValue,
    decode_onnx,
)
from tilewright.compiler.readers.onnx_folding import fold
from tilewright.compiler.readers.onnx_translation import OnnxTranslation
from tilewright.compiler.readers.shapes import Shapes, check_shape_names
from tilewright.isa.errors import ModelError

Handler: TypeAlias = Callable[[OnnxTranslation, OnnxNode], None]

MICROSOFT = "com.microsoft"

#: Who translates which operator of the default domain.
HANDLERS: Mapping[str, Handler] = {
    "Abs": onnx_elementwise.unary,
    "Add": onnx_elementwise.binary,
    "And": onnx_logic.logical,
    "AveragePool": onnx_windows.average_pool,
    "BatchNormalization": onnx_normalisation.batch_normalization,
    "Cast": onnx_logic.cast,
    "Ceil": onnx_elementwise.unary,
    "Celu": onnx_elementwise.celu,
    "Clip": onnx_elementwise.clip,
    "Concat": onnx_movement.concat,
    "Constant": onnx_movement.constant,
    "Conv": onnx_windows.conv,
    "ConvTranspose": onnx_windows.conv_transpose,
    "DepthToSpace": onnx_movement.depth_to_space,
    "DequantizeLinear": onnx_quantisation.dequantize_linear,
    "Div": onnx_elementwise.binary,
    "Dropout": onnx_movement.identity,
    "Elu": onnx_elementwise.elu,
    "Equal": onnx_logic.compare,
    "Erf": onnx_elementwise.unary,
    "Exp": onnx_elementwise.unary,
    "Expand": onnx_movement.expand,
    "Flatten": onnx_movement.flatten,
    "Floor": onnx_elementwise.unary,
    "Gather": onnx_movement.gather,
    "Gelu": onnx_elementwise.gelu,
    "Gemm": onnx_matrix.gemm,
    "GlobalAveragePool": onnx_windows.global_average_pool,
    "GlobalMaxPool": onnx_windows.global_max_pool,
    "Greater": onnx_logic.compare,
    "GreaterOrEqual": onnx_logic.compare,
    "GroupNormalization": onnx_normalisation.group_normalization,
    "HardSigmoid": onnx_elementwise.hard_sigmoid,
    "HardSwish": onnx_elementwise.unary,
    "Identity": onnx_movement.identity,
    "InstanceNormalization": onnx_normalisation.instance_normalization,
    "LRN": onnx_normalisation.lrn,
    "LayerNormalization": onnx_normalisation.layer_normalization,
    "LeakyRelu": onnx_elementwise.leaky_relu,
    "Less": onnx_logic.compare,
    "LessOrEqual": onnx_logic.compare,
    "Log": onnx_elementwise.unary,
    "LogSoftmax": onnx_normalisation.softmax,
    "LpNormalization": onnx_normalisation.lp_normalization,
    "MatMul": onnx_matrix.matmul,
    "Max": onnx_elementwise.variadic,
    "MaxPool": onnx_windows.max_pool,
    "Mean": onnx_elementwise.variadic,
    "Min": onnx_elementwise.variadic,
    "Mish": onnx_elementwise.unary,
    "Mul": onnx_elementwise.binary,
    "Neg": onnx_elementwise.unary,
    "Not": onnx_logic.logical,
    "Or": onnx_logic.logical,
    "PRelu": onnx_elementwise.binary,
    "Pad": onnx_movement.pad,
    "Pow": onnx_elementwise.binary,
    "QLinearConv": onnx_windows.qlinear_conv,
    "QLinearMatMul": onnx_matrix.qlinear_matmul,
    "QuantizeLinear": onnx_quantisation.quantize_linear,
    "RMSNormalization": onnx_normalisation.rms_normalization,
    "Reciprocal": onnx_elementwise.unary,
    "ReduceL1": onnx_normalisation.reduce,
    "ReduceL2": onnx_normalisation.reduce,
    "ReduceLogSum": onnx_normalisation.reduce,
    "ReduceLogSumExp": onnx_normalisation.reduce,
    "ReduceMax": onnx_normalisation.reduce,
    "ReduceMean": onnx_normalisation.reduce,
    "ReduceMin": onnx_normalisation.reduce,
    "ReduceProd": onnx_normalisation.reduce,
    "ReduceSum": onnx_normalisation.reduce,
    "ReduceSumSquare": onnx_normalisation.reduce,
    "Relu": onnx_elementwise.relu,
    "Reshape": onnx_movement.reshape,
    "Resize": onnx_resize.resize,
    "Round": onnx_elementwise.unary,
    "Selu": onnx_elementwise.selu,
    "Sigmoid": onnx_elementwise.unary,
    "Sign": onnx_elementwise.unary,
    "Slice": onnx_movement.slice_,
    "Softmax": onnx_normalisation.softmax,
    "Softplus": onnx_elementwise.unary,
    "Softsign": onnx_elementwise.softsign,
    "SpaceToDepth": onnx_movement.space_to_depth,
    "Split": onnx_movement.split,
    "Sqrt": onnx_elementwise.unary,
    "Squeeze": onnx_movement.squeeze,
    "Sub": onnx_elementwise.binary,
    "Sum": onnx_elementwise.variadic,
    "Swish": onnx_elementwise.swish,
    "Tanh": onnx_elementwise.unary,
    "Tile": onnx_movement.tile,
    "Transpose": onnx_movement.transpose,
    "Unsqueeze": onnx_movement.unsqueeze,
    "Upsample": onnx_resize.resize,
    "Where": onnx_logic.where,
    "Xor": onnx_logic.logical,
}
#: The same for the domain com.microsoft.
MICROSOFT_HANDLERS: Mapping[str, Handler] = {
    "BiasGelu": onnx_elementwise.fast_gelu,
    "DequantizeLinear": onnx_quantisation.dequantize_linear,
    "FastGelu": onnx_elementwise.fast_gelu,
    "Gelu": onnx_elementwise.gelu,
    "QGemm": onnx_matrix.qgemm,
    "QLinearAdd": onnx_elementwise.qlinear_binary,
    "QLinearAveragePool": onnx_windows.qlinear_average_pool,
    "QLinearConcat": onnx_movement.qlinear_concat,
    "QLinearGlobalAveragePool": onnx_windows.qlinear_global_average_pool,
    "QLinearLeakyRelu": onnx_quantisation.qlinear_leaky_relu,
    "QLinearMul": onnx_elementwise.qlinear_binary,
    "QLinearSigmoid": onnx_quantisation.qlinear_sigmoid,
    "QuantizeLinear": onnx_quantisation.quantize_linear,
    "QuickGelu": onnx_elementwise.swish,
}


def read_onnx(data: bytes, name: str, shapes: Shapes | None = None) -> Graph:
    """Translate the bytes of an ONNX file called `name`.

    A symbolic batch size becomes 1, and the graph's notes say so; `shapes` gives inputs by name
    the sizes that the file leaves open. Tensors keep the file's names. Half-precision numbers are
    float32 in the graph, its inputs and outputs included.

    Raises
    ------
    ModelError
        If the file is damaged or uses what is not supported.
    """
    model = decode_onnx(data)
    builder = GraphBuilder(name)
    builder.reserve((*model.outputs, *(value.name for value in model.inputs)))
    state = OnnxTranslation(builder, model.opset, model.outputs)
    state.constants.update(model.initializers)
    check_shape_names(shapes, tuple(value.name for value in model.inputs))
    for value in model.inputs:
        given = (shapes or {}).get(value.name)
        tensor = _input(value, given)
        state.bind(value.name, builder.add_input(tensor))
        if given is None and value.shape and value.shape[0] != tensor.shape[0]:
            builder.add_note(
                f"input {value.name!r} has the batch size {value.shape[0]!r}, taken as 1"
            )
    for node in model.nodes:
        _translate(state, node)
    return builder.build([_output(state, output) for output in _distinct(model)])


def _translate(state: OnnxTranslation, node: OnnxNode) -> None:
    """Compute a node while reading, where that is possible, else translate it."""
    if not node.domain and node.op_type == "Shape":
        shape = state.shape(node)
        start, end = node.integer("start", 0), node.integer("end", len(shape))
        state.set_constant(node, np.array(shape[start:end], dtype=np.int64))
        return
    given = [name for name in node.inputs if name]
    if given and all(name in state.constants for name in given):
        values = fold(node, [state.constants[name] for name in given])
        if values is not None:
            state.set_constant(node, values)
            return
    _handler(node)(state, node)


def _handler(node: OnnxNode) -> Handler:
    tables = {"": HANDLERS, MICROSOFT: MICROSOFT_HANDLERS}
    handler = tables.get(node.domain, {}).get(node.op_type)
    if handler is None:
        domain = f" of domain {node.domain!r}" if node.domain else ""
        raise ModelError(f"{node.label}{domain} is not a supported operator")
    return handler


def _input(value: OnnxValue, given: tuple[int, ...] | None) -> Tensor:
    where = f"input {value.name!r}"
    element = ELEMENT_TYPES.get(value.element_type, (f"type {value.element_type}", ""))[0]
    element = "float32" if element in HALVES else element
    if element not in {dtype.value for dtype in DataType}:
        raise ModelError(f"{where} is {element}, which is not supported")
    shape = _given_shape(value, given) if given is not None else _declared_shape(value)
    return Tensor(
        name=value.name,
        shape=shape,
        dtype=DataType(element),
        source=Source(name=value.name, axes=tuple(range(len(shape)))),
    )


def _given_shape(value: OnnxValue, given: tuple[int, ...]) -> tuple[int, ...]:
    declared = value.shape if value.shape is not None else given
    if len(declared) != len(given) or any(
        isinstance(size, int) and size > 0 and size != wanted
        for size, wanted in zip(declared, given, strict=False)
    ):
        raise ModelError(
            f"input {value.name!r} of shape {list(declared)} cannot have the shape {list(given)}"
        )
    return given


def _declared_shape(value: OnnxValue) -> tuple[int, ...]:
    where = f"input {value.name!r}"
    if value.shape is None:
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
                hint=f"give it with shapes={{{value.name!r}: (...)}}",
            )
    return tuple(shape)


def _distinct(model: OnnxModel) -> tuple[str, ...]:
    if not model.outputs:
        raise ModelError("the ONNX model has no outputs")
    if len(set(model.outputs)) != len(model.outputs):
        raise ModelError("the ONNX model names an output twice")
    return model.outputs


def _output(state: OnnxTranslation, name: str) -> str:
    tensor = state.bound(name)
    if tensor is None and name in state.constants:
        tensor = state.constant_output(name)
    if tensor is None:
        raise ModelError(f"output {name!r} is not computed by any node")
    return tensor
