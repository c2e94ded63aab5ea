"""Graphs to ONNX files: float networks, and quantised ones in QDQ form."""

from collections.abc import Sequence

import numpy as np

from tilewright.compiler.graph import Array, Graph, Node
from tilewright.compiler.operators import (
    DataType,
    Dequantize,
    DequantizeWeights,
    FloatAveragePool2d,
    FloatConv2d,
    FloatConvTranspose2d,
    FloatDense,
    FloatOperator,
    LogicOperator,
    MaxPool2d,
    MovementOperator,
    Padding,
    Pair,
    Quantize,
    Upsample2d,
)
from tilewright.compiler.writers.onnx_layout import OnnxBuilder
from tilewright.compiler.writers.onnx_operators import write_float, write_logic, write_movement
from tilewright.isa.errors import ModelError

#: Operator set and IR version of the files: what runtimes of the last years read.
OPSET, IR_VERSION = 20, 9


def write_onnx(graph: Graph) -> bytes:
    """Return the bytes of an ONNX file that computes what a graph of real operators does.

    Quantisations become QuantizeLinear and DequantizeLinear of int8 and uint8. Images are NHWC at
    inputs and outputs where the graph's are.

    Raises
    ------
    ModelError
        If the graph is an integer graph.
    """
    import onnx
    from onnx import helper, numpy_helper

    builder = OnnxBuilder(graph)
    for node in graph.nodes:
        _write(builder, node)
    for name in graph.outputs:
        if name in graph.constants:
            builder.add(
                "Identity", [builder.initializer(f"{name}/value", graph.constants[name])], name
            )
        elif name not in graph.inputs:
            builder.own(name)
    values = {
        role: [
            helper.make_tensor_value_info(
                name,
                helper.np_dtype_to_tensor_dtype(np.dtype(graph.tensors[name].dtype.value)),
                list(graph.tensors[name].shape),
            )
            for name in names
        ]
        for role, names in (("inputs", graph.inputs), ("outputs", graph.outputs))
    }
    initializers = [numpy_helper.from_array(v, n) for n, v in builder.initializers.items()]
    proto = helper.make_graph(
        builder.nodes, graph.name, values["inputs"], values["outputs"], initializers
    )
    model = helper.make_model(
        proto, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="tilewright"
    )
    model.ir_version = IR_VERSION
    data: bytes = onnx.ModelProto.SerializeToString(model)
    return data


def _write(builder: OnnxBuilder, node: Node) -> None:  # noqa: C901
    match node.op:
        case Quantize(scale=scale, zero_point=zero_point, dtype=dtype):
            _convert(builder, node, "QuantizeLinear", scale, zero_point, dtype)
        case Dequantize(scale=scale, zero_point=zero_point):
            dtype = builder.graph.operands(node)[0].dtype
            _convert(builder, node, "DequantizeLinear", scale, zero_point, dtype)
        case DequantizeWeights():
            _dequantize_weights(builder, node, node.op)
        case FloatConv2d() | FloatConvTranspose2d():
            _convolution(builder, node, node.op)
        case FloatAveragePool2d() | MaxPool2d():
            _pool(builder, node, node.op)
        case Upsample2d(factor=factor):
            _upsample(builder, node, factor)
        case FloatDense():
            _dense(builder, node)
        case _ if isinstance(node.op, FloatOperator):
            write_float(builder, node)
        case _ if isinstance(node.op, MovementOperator):
            write_movement(builder, node)
        case _ if isinstance(node.op, LogicOperator):
            write_logic(builder, node)
        case _:
            raise ModelError(f"{node.label} is an integer operator, which ONNX does not have")


def _convert(
    builder: OnnxBuilder, node: Node, kind: str, scale: float, zero_point: int, dtype: DataType
) -> None:
    """Write a quantisation or dequantisation in the layout that is at hand."""
    parameters = [
        builder.initializer(f"{node.name}/scale", np.array(scale, np.float32)),
        builder.initializer(f"{node.name}/zero_point", np.array(zero_point, dtype.numpy)),
    ]
    _agnostic(builder, node, kind, parameters)


def _agnostic(builder: OnnxBuilder, node: Node, kind: str, parameters: Sequence[str]) -> None:
    (output,), source = node.outputs, node.inputs[0]
    first = builder.is_first(source) and output not in builder.graph.outputs
    operand = builder.first(source) if first else builder.own(source)
    name = builder.name(f"{output}/nchw" if first else output)
    builder.define(output, builder.add(kind, [operand, *parameters], name), first=first)


def _dequantize_weights(builder: OnnxBuilder, node: Node, op: DequantizeWeights) -> None:
    """Write weights in the layout that their reader wants."""
    graph, (output,) = builder.graph, node.outputs
    values, scale, zero_point = (graph.constants[name] for name in node.inputs)
    axis = op.axis
    readers = graph.consumers()[output]
    for reader in readers:
        if isinstance(reader.op, FloatConv2d | FloatConvTranspose2d) and reader.inputs[1] == output:
            values, axis = _kernel(values, reader.op, axis)
        elif isinstance(reader.op, FloatDense) and reader.inputs[1] == output:
            values, axis = np.ascontiguousarray(values.T), 1 - axis
    single = scale.size == 1
    zeros = zero_point.astype(values.dtype)
    operands = [
        builder.initializer(f"{output}/values", values),
        builder.initializer(f"{output}/scale", scale.reshape(()) if single else scale),
        builder.initializer(f"{output}/zero_point", zeros.reshape(()) if single else zeros),
    ]
    extra = {} if single else {"axis": axis}
    name = builder.name(output)
    builder.define(output, builder.add("DequantizeLinear", operands, name, **extra))


def _kernel(values: Array, op: FloatConv2d | FloatConvTranspose2d, axis: int) -> tuple[Array, int]:
    """Return a kernel ``[O, kh, kw, C / groups]`` as ONNX wants it, and where its axis lies."""
    if isinstance(op, FloatConv2d):
        order = (0, 3, 1, 2)
        return np.ascontiguousarray(values.transpose(order)), order.index(axis)
    outputs, rows, columns, depth = values.shape
    grouped = values.reshape(op.groups, outputs // op.groups, rows, columns, depth)
    turned = grouped.transpose(0, 4, 1, 2, 3)
    kernel = turned.reshape(op.groups * depth, outputs // op.groups, rows, columns)
    return np.ascontiguousarray(kernel), 1


def _convolution(builder: OnnxBuilder, node: Node, op: FloatConv2d | FloatConvTranspose2d) -> None:
    weights = node.inputs[1]
    if weights in builder.graph.constants:
        values, _ = _kernel(builder.graph.constants[weights], op, 0)
        kernel = builder.initializer(f"{node.name}/kernel", values)
    else:
        kernel = builder.own(weights)
    operands = [builder.first(node.inputs[0]), kernel, *map(builder.own, node.inputs[2:])]
    attributes: dict[str, int | Sequence[int]] = {
        "strides": list(op.stride),
        "pads": list(op.pads),
        "dilations": list(op.dilation),
        "group": op.groups,
    }
    if isinstance(op, FloatConv2d):
        _image(builder, node, "Conv", operands, **attributes)
    else:
        if any(op.extra):
            attributes["output_padding"] = list(op.extra)
        _image(builder, node, "ConvTranspose", operands, **attributes)


def _pool(builder: OnnxBuilder, node: Node, op: FloatAveragePool2d | MaxPool2d) -> None:
    operands = [builder.first(node.inputs[0])]
    pads: Padding = op.pads
    shape: dict[str, Sequence[int]] = {
        "kernel_shape": list(op.kernel),
        "strides": list(op.stride),
        "pads": list(pads),
    }
    if isinstance(op, MaxPool2d):
        _image(builder, node, "MaxPool", operands, **shape)
    else:
        include = int(op.count_include_pad)
        _image(builder, node, "AveragePool", operands, count_include_pad=include, **shape)


def _upsample(builder: OnnxBuilder, node: Node, factor: Pair) -> None:
    scales = builder.initializer(f"{node.name}/scales", np.array([1, 1, *factor], np.float32))
    _image(
        builder,
        node,
        "Resize",
        [builder.first(node.inputs[0]), "", scales],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def _dense(builder: OnnxBuilder, node: Node) -> None:
    (output,), weights = node.outputs, node.inputs[1]
    if weights in builder.graph.constants:
        values = np.ascontiguousarray(builder.graph.constants[weights].T)
        matrix = builder.initializer(f"{node.name}/matrix", values)
    else:
        matrix = builder.own(weights)
    x = builder.own(node.inputs[0])
    if len(node.inputs) == 3 and len(builder.graph.operands(node)[0].shape) == 2:
        operands = [x, matrix, builder.own(node.inputs[2])]
        builder.define(output, builder.add("Gemm", operands, builder.name(output)))
        return
    if len(node.inputs) == 2:
        builder.define(output, builder.add("MatMul", [x, matrix], builder.name(output)))
        return
    product = builder.add("MatMul", [x, matrix], builder.name(f"{output}/product"))
    operands = [product, builder.own(node.inputs[2])]
    builder.define(output, builder.add("Add", operands, builder.name(output)))


def _image(
    builder: OnnxBuilder,
    node: Node,
    kind: str,
    operands: Sequence[str],
    **attributes: int | str | Sequence[int],
) -> None:
    """Write an operator on NCHW images."""
    (output,) = node.outputs
    name = builder.add(kind, operands, builder.name(f"{output}/nchw"), **attributes)
    builder.define(output, name, first=True)
