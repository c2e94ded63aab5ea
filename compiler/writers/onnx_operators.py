"""ONNX nodes for operators without windows: element-wise, along axes, movement, logic."""

from collections.abc import Mapping
from functools import partial

import numpy as np
from typing_extensions import assert_never

from tilewright.compiler.graph import Node
from tilewright.compiler.operators import (
    BinaryFunction,
    Cast,
    Compare,
    Concat,
    Connective,
    Expand,
    FloatBinary,
    FloatClip,
    FloatInterpolate,
    FloatLayerNorm,
    FloatMatMul,
    FloatReduce,
    FloatSoftmax,
    FloatUnary,
    Function,
    Gather,
    Logical,
    LogicOperator,
    Pad,
    Reduction,
    Relation,
    Reshape,
    Select,
    Slice,
    Transpose,
)
from tilewright.compiler.writers.onnx_layout import Attribute, OnnxBuilder
from tilewright.isa.errors import ModelError

BINARY: Mapping[BinaryFunction, str] = {
    BinaryFunction.ADD: "Add",
    BinaryFunction.SUBTRACT: "Sub",
    BinaryFunction.MULTIPLY: "Mul",
    BinaryFunction.DIVIDE: "Div",
    BinaryFunction.POWER: "Pow",
    BinaryFunction.MINIMUM: "Min",
    BinaryFunction.MAXIMUM: "Max",
    BinaryFunction.PRELU: "PRelu",
}
#: Functions that ONNX has under one name, without attributes.
UNARY: Mapping[Function, str] = {
    Function.SIGMOID: "Sigmoid",
    Function.TANH: "Tanh",
    Function.HARD_SWISH: "HardSwish",
    Function.SOFTPLUS: "Softplus",
    Function.MISH: "Mish",
    Function.EXP: "Exp",
    Function.LOG: "Log",
    Function.SQRT: "Sqrt",
    Function.RECIPROCAL: "Reciprocal",
    Function.NEGATE: "Neg",
    Function.ABSOLUTE: "Abs",
    Function.ERF: "Erf",
    Function.FLOOR: "Floor",
    Function.CEIL: "Ceil",
    Function.ROUND: "Round",
    Function.SIGN: "Sign",
}
REDUCTIONS: Mapping[Reduction, str] = {
    Reduction.MEAN: "ReduceMean",
    Reduction.SUM: "ReduceSum",
    Reduction.MAXIMUM: "ReduceMax",
    Reduction.MINIMUM: "ReduceMin",
    Reduction.PRODUCT: "ReduceProd",
}
RELATIONS: Mapping[Relation, str] = {
    Relation.EQUAL: "Equal",
    Relation.LESS: "Less",
    Relation.LESS_OR_EQUAL: "LessOrEqual",
}
CONNECTIVES: Mapping[Connective, str] = {
    Connective.AND: "And",
    Connective.OR: "Or",
    Connective.XOR: "Xor",
    Connective.NOT: "Not",
}


def write_float(builder: OnnxBuilder, node: Node) -> None:
    """Write an operator on real numbers."""
    match node.op:
        case FloatBinary(function=function):
            _elementwise(builder, node, BINARY[function])
        case FloatClip():
            _clip(builder, node, node.op)
        case FloatUnary():
            _unary(builder, node, node.op)
        case FloatReduce(function=function, axes=axes):
            chosen = builder.numbers(f"{node.name}/axes", axes)
            _plain(builder, node, REDUCTIONS[function], chosen, keepdims=1)
        case FloatSoftmax():
            _softmax(builder, node, node.op)
        case FloatLayerNorm(epsilon=epsilon):
            _plain(builder, node, "LayerNormalization", axis=-1, epsilon=epsilon)
        case FloatMatMul():
            _plain(builder, node, "MatMul")
        case FloatInterpolate():
            _interpolate(builder, node, node.op)
        case _:
            raise ModelError(f"{node.label} cannot be written as ONNX")


def write_movement(builder: OnnxBuilder, node: Node) -> None:
    """Write a movement operator without windows."""
    numbers = partial(_numbers, builder, node)
    match node.op:
        case Reshape(shape=shape):
            _plain(builder, node, "Reshape", numbers("shape", shape))
        case Transpose(permutation=permutation):
            _plain(builder, node, "Transpose", perm=list(permutation))
        case Slice(begin=begin, end=end, stride=stride):
            axes = tuple(range(len(begin)))
            bounds = (("begin", begin), ("end", end), ("axes", axes), ("stride", stride))
            _plain(builder, node, "Slice", *(numbers(part, values) for part, values in bounds))
        case Pad(before=before, after=after, value=value):
            dtype = builder.graph.operands(node)[0].dtype.numpy
            fill = builder.initializer(f"{node.name}/value", np.array(value, dtype))
            _plain(builder, node, "Pad", numbers("pads", (*before, *after)), fill)
        case Concat(axis=axis):
            _plain(builder, node, "Concat", axis=axis)
        case Expand(shape=shape):
            _plain(builder, node, "Expand", numbers("shape", shape))
        case Gather(axis=axis):
            _plain(builder, node, "Gather", axis=axis)
        case _:
            raise ModelError(f"{node.label} cannot be written as ONNX")


def write_logic(builder: OnnxBuilder, node: Node) -> None:
    """Write an operator on truth values and element types."""
    op = node.op
    assert isinstance(op, LogicOperator)
    match op:
        case Cast(dtype=dtype):
            from onnx import helper

            kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype.value))
            _plain(builder, node, "Cast", to=int(kind))
        case Compare(relation=relation):
            _plain(builder, node, RELATIONS[relation])
        case Logical(connective=connective):
            _plain(builder, node, CONNECTIVES[connective])
        case Select():
            _plain(builder, node, "Where")
        case _:
            assert_never(op)


def _numbers(builder: OnnxBuilder, node: Node, part: str, values: tuple[int, ...]) -> str:
    return builder.numbers(f"{node.name}/{part}", values)


def _plain(
    builder: OnnxBuilder, node: Node, kind: str, *parameters: str, **attributes: Attribute
) -> None:
    """Write an operator in the graph's own layout."""
    (output,) = node.outputs
    operands = [builder.own(name) for name in node.inputs]
    name = builder.add(kind, [*operands, *parameters], builder.name(output), **attributes)
    builder.define(output, name)


def _elementwise(
    builder: OnnxBuilder, node: Node, kind: str, *parameters: str, **attributes: Attribute
) -> None:
    """Write an element-wise operator: on NCHW where an operand is at hand so."""
    (output,), graph = node.outputs, builder.graph
    images = all(len(tensor.shape) in (0, 4) for tensor in graph.operands(node))
    known = any(builder.is_first(name) for name in node.inputs)
    first = images and known and output not in graph.outputs
    operands = [
        builder.first(name) if first and graph.tensors[name].shape else builder.own(name)
        for name in node.inputs
    ]
    name = builder.name(f"{output}/nchw" if first else output)
    made = builder.add(kind, [*operands, *parameters], name, **attributes)
    builder.define(output, made, first=first)


def _clip(builder: OnnxBuilder, node: Node, op: FloatClip) -> None:
    if (op.low, op.high) == (0.0, float("inf")):
        _elementwise(builder, node, "Relu")
        return
    bounds = []
    for part, value in (("low", op.low), ("high", op.high)):
        finite = np.isfinite(value)
        number = np.array(value, np.float32)
        bounds.append(builder.initializer(f"{node.name}/{part}", number) if finite else "")
    _elementwise(builder, node, "Clip", *bounds)


def _unary(builder: OnnxBuilder, node: Node, op: FloatUnary) -> None:
    match op.function:
        case Function.HARD_SIGMOID:
            _elementwise(builder, node, "HardSigmoid", alpha=op.alpha, beta=op.beta)
        case Function.LEAKY_RELU:
            _elementwise(builder, node, "LeakyRelu", alpha=op.alpha)
        case Function.ELU:
            _elementwise(builder, node, "Elu", alpha=op.alpha)
        case Function.GELU:
            _elementwise(builder, node, "Gelu", approximate="none")
        case Function.GELU_TANH:
            _elementwise(builder, node, "Gelu", approximate="tanh")
        case Function.SILU:
            source, (output,) = node.inputs[0], node.outputs
            x = builder.own(source)
            gate = builder.add("Sigmoid", [x], builder.name(f"{output}/gate"))
            builder.define(output, builder.add("Mul", [x, gate], builder.name(output)))
        case function:
            _elementwise(builder, node, UNARY[function])


def _softmax(builder: OnnxBuilder, node: Node, op: FloatSoftmax) -> None:
    kind, (output,) = "LogSoftmax" if op.logarithm else "Softmax", node.outputs
    if op.beta == 1.0:
        _plain(builder, node, kind, axis=-1)
        return
    beta = builder.initializer(f"{node.name}/beta", np.array(op.beta, np.float32))
    scaled = builder.add(
        "Mul", [builder.own(node.inputs[0]), beta], builder.name(f"{output}/scaled")
    )
    builder.define(output, builder.add(kind, [scaled], builder.name(output), axis=-1))


def _interpolate(builder: OnnxBuilder, node: Node, op: FloatInterpolate) -> None:
    """Write weighted sums of entries as a product with a matrix that is mostly zeros."""
    (output,), graph = node.outputs, builder.graph
    indices, weights = (graph.constants[name] for name in node.inputs[1:])
    shape = graph.operands(node)[0].shape
    matrix = np.zeros((shape[op.axis], len(indices)), np.float32)
    for entry, (taps, shares) in enumerate(zip(indices, weights, strict=True)):
        np.add.at(matrix[:, entry], taps, shares)
    last = [*(axis for axis in range(len(shape)) if axis != op.axis), op.axis]
    back = [last.index(axis) for axis in range(len(shape))]
    constant = builder.initializer(f"{node.name}/matrix", matrix)
    moved = builder.add(
        "Transpose", [builder.own(node.inputs[0])], builder.name(f"{output}/moved"), perm=last
    )
    product = builder.add("MatMul", [moved, constant], builder.name(f"{output}/product"))
    builder.define(output, builder.add("Transpose", [product], builder.name(output), perm=back))
