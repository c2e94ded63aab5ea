"""Pass: turn real-number operators between quantised tensors into integer operators.

    Quantize(f(Dequantize(x), ...))       ->  the integer form of f
    Dequantize; Quantize, equal scales    ->  nothing
    Dequantize; Quantize, other scales    ->  Requantize
    uint8                                 ->  int8, zero points moved by 128
    movement(Dequantize(x))               ->  Dequantize(movement(x))
    FloatBias(f(x, weights))              ->  f(x, weights, bias)
    Quantize(movement(f(x)))              ->  movement(Quantize(f(x)))

What remains real stands before the first quantisation or after the last, for the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from typing_extensions import assert_never

from tilewright.compiler.graph import Array, Graph, Node, Source
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import (
    Add,
    AveragePool2d,
    Clip,
    Concat,
    Conv2d,
    DataType,
    Dequantize,
    DequantizeWeights,
    FloatAdd,
    FloatAveragePool2d,
    FloatBias,
    FloatClip,
    FloatConv2d,
    FloatDense,
    FloatSoftmax,
    FloatUnary,
    Lookup,
    MaxPool2d,
    Operator,
    Pad,
    Quantize,
    Reinterpret,
    Requantize,
    Reshape,
    Slice,
    Softmax,
    Transpose,
)
from tilewright.compiler.passes.integer_forms import (
    Quantisation,
    WeightValues,
    add_operator,
    average_operator,
    clip_operator,
    convolution_parts,
    lookup_table,
    quantised_pad,
    requantize_operator,
    softmax_table,
)
from tilewright.isa.errors import ModelError


@dataclass(frozen=True, slots=True)
class Real:
    """A real tensor of the new graph."""

    name: str


@dataclass(frozen=True, slots=True)
class Quantised:
    """An int8 tensor of the new graph and what it means."""

    name: str
    quantisation: Quantisation


@dataclass(frozen=True, slots=True)
class Deferred:
    """A real operator that becomes an integer one where its result is quantised."""

    node: Node


View: TypeAlias = Real | Quantised | Deferred | WeightValues

#: Operators that stay where they are on real numbers, for the host, after the last quantisation.
HOST = (FloatSoftmax, FloatUnary, FloatClip)
MOVEMENT = (MaxPool2d, Reshape, Transpose, Slice, Pad)


def lower_quantised(graph: Graph) -> Graph:
    """Return `graph` with its quantised operators in integer form.

    Raises
    ------
    ModelError
        If an operator on real numbers stands between quantised tensors without an integer form.
    """
    lowering = _Lowering(graph)
    for node in graph.nodes:
        lowering.visit(node)
    return lowering.finish()


class _Lowering:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._builder = GraphBuilder(graph.name)
        self._builder.reserve(graph.outputs)
        self._integers: dict[str, str] = {}
        self._views: dict[str, View] = {}
        self._quantised: dict[tuple[str, Quantisation], str] = {}
        for name in graph.inputs:
            self._add_input(name)
        for name, values in graph.constants.items():
            if values.dtype.kind == "f":
                self._views[name] = WeightValues.of_floats(values)

    def visit(self, node: Node) -> None:
        """Lower one node, or defer it."""
        (output,) = node.outputs
        match node.op:
            case Quantize():
                target = Quantisation.of(node.op.scale, node.op.zero_point, node.op.dtype)
                self._integers[output] = self._quantise(node.inputs[0], target)
                self._describe(self._integers[output], output)
            case Dequantize():
                dtype = self._graph.tensors[node.inputs[0]].dtype
                quantisation = Quantisation.of(node.op.scale, node.op.zero_point, dtype)
                name = self._integer(node, node.inputs[0])
                self._views[output] = Quantised(name, quantisation)
            case DequantizeWeights(axis=axis):
                values, scale, zero_point = (self._graph.constants[name] for name in node.inputs)
                self._views[output] = WeightValues(values, scale, zero_point, axis)
            case MaxPool2d() | Reshape() | Transpose() | Slice() | Pad() | FloatClip():
                self._move(node)
            case Concat() if self._graph.tensors[output].dtype is not DataType.FLOAT32:
                operands = [self._integer(node, name) for name in node.inputs]
                self._integers[output] = self._copy(node, node.op, operands)
            case Concat() if (shared := self._shared_quantisation(node)) is not None:
                operands = [self._quantise(name, shared) for name in node.inputs]
                joined = self._copy(node, node.op, operands, shared)
                self._views[output] = Quantised(joined, shared)
            case Concat() | FloatConv2d() | FloatDense() | FloatAdd() | FloatAveragePool2d():
                self._views[output] = Deferred(node)
            case FloatSoftmax() | FloatUnary():
                self._views[output] = Deferred(node)
            case FloatBias():
                self._views[output] = self._biased(node)
            case Conv2d() | Add() | AveragePool2d() | Requantize() | Clip() | Lookup():
                raise ModelError(f"node {node.name!r} is an integer operator already")
            case Softmax() | Reinterpret():
                raise ModelError(f"node {node.name!r} is an integer operator already")
            case _:
                assert_never(node.op)

    def finish(self) -> Graph:
        """Return the new graph."""
        for name in self._graph.outputs:
            if name in self._graph.inputs:
                continue
            tensor = self._graph.tensors[name]
            if tensor.dtype is DataType.FLOAT32:
                produced = self._real(name)
            elif tensor.dtype is DataType.UINT8:
                op = Reinterpret(dtype=DataType.UINT8)
                integer = self._integers[name]
                produced = self._builder.add(op, [integer], node=f"{name}/uint8")
            else:
                produced = self._integers[name]
            self._builder.name_output(produced, name, source=tensor.source)
        return self._builder.build(self._graph.outputs)

    def _add_input(self, name: str) -> None:
        tensor = self._graph.tensors[name]
        self._builder.add_input(tensor)
        if tensor.dtype is DataType.FLOAT32:
            self._views[name] = Real(name)
        elif tensor.dtype is DataType.UINT8:
            self._integers[name] = self._builder.add(
                Reinterpret(dtype=DataType.INT8), [name], node=f"{name}/int8", source=tensor.source
            )
        else:
            self._integers[name] = name

    def _biased(self, node: Node) -> Deferred:
        """Return a deferred convolution or dense layer with the bias that stands behind it."""
        view = self._view(node, node.inputs[0])
        if isinstance(view, Deferred) and isinstance(view.node.op, FloatConv2d | FloatDense):
            product = view.node
            if len(product.inputs) == 2:
                return Deferred(replace(product, inputs=(*product.inputs, node.inputs[1])))
        raise ModelError(
            f"node {node.name!r} adds a constant to what is not the result of a convolution or a "
            "matrix product without bias"
        )

    def _move(self, node: Node) -> None:
        """Carry out movement on integers; on a deferred result, defer it too."""
        (output,) = node.outputs
        source = node.inputs[0]
        if source in self._integers:
            self._integers[output] = self._moved_integer(node, self._integers[source], None)
            return
        match self._view(node, source):
            case Quantised(name, quantisation):
                moved = self._moved_integer(node, name, quantisation)
                self._views[output] = Quantised(moved, quantisation)
            case Real(name):
                self._views[output] = Real(self._copy(node, node.op, [name]))
            case Deferred():
                self._views[output] = Deferred(node)
            case WeightValues():
                raise ModelError(f"node {node.name!r} moves a constant in a way not supported")

    def _moved_integer(self, node: Node, name: str, quantisation: Quantisation | None) -> str:
        """Add movement, or a clip, of an int8 tensor; without meaning, values are as they are."""
        op = node.op
        if isinstance(op, Pad):
            was_unsigned = self._graph.tensors[node.outputs[0]].dtype is DataType.UINT8
            op = quantised_pad(op, quantisation, node, offset=128 if was_unsigned else 0)
        if isinstance(op, FloatClip):
            assert quantisation is not None, "a clip of integers is no real operator"
            op = clip_operator(op, quantisation)
        return self._copy(node, op, [name], quantisation)

    def _view(self, node: Node, name: str) -> View:
        if name not in self._views:
            raise ModelError(
                f"node {node.name!r} ({type(node.op).__name__}) computes with {name!r}, "
                "which is an integer without a scale"
            )
        return self._views[name]

    def _integer(self, node: Node, name: str) -> str:
        if name not in self._integers:
            raise ModelError(f"node {node.name!r} reads {name!r}, which is not a quantised tensor")
        return self._integers[name]

    def _shared_quantisation(self, node: Node) -> Quantisation | None:
        """Return the quantisation that all operands have in common, None where there is none."""
        views = [self._view(node, name) for name in node.inputs]
        found = {view.quantisation if isinstance(view, Quantised) else None for view in views}
        return found.pop() if len(found) == 1 else None

    def _quantise(self, name: str, target: Quantisation) -> str:
        """Return the int8 tensor that is the real tensor `name` quantised to `target`."""
        chain: list[Node] = []
        view = self._views[name]
        while isinstance(view, Deferred) and isinstance(view.node.op, (*MOVEMENT, FloatClip)):
            chain.append(view.node)
            view = self._views[view.node.inputs[0]]
        base = chain[-1].inputs[0] if chain else name
        produced = self._quantise_base(base, view, target)
        for node in reversed(chain):
            key = (node.outputs[0], target)
            if key not in self._quantised:
                self._quantised[key] = self._moved_integer(node, produced, target)
            produced = self._quantised[key]
        return produced

    def _quantise_base(self, name: str, view: View, target: Quantisation) -> str:
        key = (name, target)
        if key in self._quantised:
            return self._quantised[key]
        match view:
            case Quantised(integer, quantisation) if quantisation == target:
                produced = integer
            case Quantised(integer, quantisation):
                op = requantize_operator(quantisation, target, f"tensor {name!r}")
                produced = self._add(op, [integer], f"{name}/requantized", target)
            case Real(real):
                quantize = Quantize(scale=target.scale, zero_point=target.zero_point)
                produced = self._add(quantize, [real], f"{name}/quantized", target)
            case Deferred(node):
                produced = self._integer_form(node, target)
            case WeightValues():
                raise ModelError(f"constant {name!r} is quantised as if it were an activation")
            case _:
                assert_never(view)
        self._quantised[key] = produced
        return produced

    def _integer_form(self, node: Node, target: Quantisation) -> str:
        """Add the integer form of a deferred node whose result is quantised to `target`."""
        match node.op:
            case FloatConv2d():
                return self._convolution(node, node.op, target)
            case FloatDense():
                return self._dense(node, target)
            case FloatAdd():
                a, b = (self._operand(node, index) for index in range(2))
                op = add_operator(a.quantisation, b.quantisation, target, node)
                return self._copy(node, op, [a.name, b.name], target)
            case FloatAveragePool2d():
                x = self._operand(node, 0)
                size = self._builder.tensor(x.name).shape[1:3]
                average = average_operator(
                    node.op, (size[0], size[1]), x.quantisation, target, node
                )
                return self._copy(node, average, [x.name], target)
            case FloatSoftmax():
                x = self._operand(node, 0)
                table = self._constant(node, "table", softmax_table(node.op, x.quantisation))
                softmax = Softmax(scale=target.scale, zero_point=target.zero_point)
                return self._copy(node, softmax, [x.name, table], target)
            case FloatUnary():
                x = self._operand(node, 0)
                table = self._constant(node, "table", lookup_table(node.op, x.quantisation, target))
                return self._copy(node, Lookup(), [x.name, table], target)
            case Concat():
                return self._concat(node, target)
            case _:
                raise ModelError(f"node {node.name!r} has no integer form")

    def _concat(self, node: Node, target: Quantisation) -> str:
        """Add a concatenation of tensors that are all quantised as its result is."""
        for name in node.inputs:
            view = self._view(node, name)
            if isinstance(view, Deferred) and isinstance(view.node.op, Concat):
                raise ModelError(
                    f"node {node.name!r} joins the real result of {view.node.name!r}",
                    hint="let the quantiser quantise every operator",
                )
        operands = [self._quantise(name, target) for name in node.inputs]
        return self._copy(node, node.op, operands, target)

    def _convolution(self, node: Node, op: FloatConv2d, target: Quantisation) -> str:
        x = self._operand(node, 0)
        return self._add_convolution(node, op, x, self._weights(node, 1), target)

    def _dense(self, node: Node, target: Quantisation) -> str:
        """Add a dense layer as a 1x1 convolution of images of one pixel."""
        x = self._operand(node, 0)
        batch, inputs = self._builder.tensor(x.name).shape
        pixel = self._add(
            Reshape(shape=(batch, 1, 1, inputs)), [x.name], f"{node.name}/pixel", x.quantisation
        )
        weights = self._weights(node, 1)
        image = self._add_convolution(
            node,
            FloatConv2d(),
            Quantised(pixel, x.quantisation),
            weights.reshaped((weights.values.shape[0], 1, 1, inputs)),
            target,
        )
        shape = self._graph.tensors[node.outputs[0]].shape
        return self._add(Reshape(shape=shape), [image], f"{node.name}/vector", target)

    def _add_convolution(
        self,
        node: Node,
        op: FloatConv2d,
        x: Quantised,
        weights: WeightValues,
        target: Quantisation,
    ) -> str:
        bias = self._weights(node, 2) if len(node.inputs) == 3 else None
        integer, constants = convolution_parts(op, x.quantisation, weights, bias, target, node)
        operands = [
            x.name,
            self._constant(node, "weights", constants.weights),
            self._constant(node, "bias", constants.bias),
            self._constant(node, "multiplier", constants.multiplier),
            self._constant(node, "shift", constants.shift),
        ]
        return self._builder.add(
            integer,
            operands,
            node=node.name,
            scale=target.scale,
            zero_point=target.zero_point,
            node_source=node.source,
        )

    def _operand(self, node: Node, index: int) -> Quantised:
        name = node.inputs[index]
        view = self._view(node, name)
        if isinstance(view, Quantised):
            return view
        raise ModelError(
            f"node {node.name!r} ({type(node.op).__name__}) computes in floating point: "
            f"{name!r} is not quantised",
            hint="quantise every operator, or let the quantiser leave none in between",
        )

    def _weights(self, node: Node, index: int) -> WeightValues:
        name = node.inputs[index]
        view = self._view(node, name)
        if not isinstance(view, WeightValues):
            raise ModelError(f"node {node.name!r} has weights or a bias that are not constant")
        return view

    def _real(self, name: str) -> str:
        """Return the old real tensor `name` as a real tensor of the new graph, for the host."""
        chain: list[Node] = []
        view = self._views[name]
        while isinstance(view, Deferred):
            if not isinstance(view.node.op, (*MOVEMENT, *HOST)):
                raise ModelError(
                    f"node {view.node.name!r} ({type(view.node.op).__name__}) computes in "
                    "floating point: its result is not quantised",
                    hint="quantise every operator, the outputs included",
                )
            chain.append(view.node)
            view = self._views[view.node.inputs[0]]
        match view:
            case Quantised(integer, quantisation):
                op = Dequantize(scale=quantisation.scale, zero_point=quantisation.zero_point)
                produced = self._builder.add(op, [integer], node=f"{name}/dequantized")
            case Real(produced):
                pass
            case WeightValues():
                raise ModelError(f"output {name!r} is constant")
            case _:
                assert_never(view)
        for node in reversed(chain):
            produced = self._copy(node, node.op, [produced])
        return produced

    def _copy(
        self,
        node: Node,
        op: Operator,
        operands: Sequence[str],
        quantisation: Quantisation | None = None,
    ) -> str:
        """Add `op` in the name of an old node."""
        return self._builder.add(
            op,
            operands,
            node=node.name,
            scale=quantisation.scale if quantisation else None,
            zero_point=quantisation.zero_point if quantisation else None,
            node_source=node.source,
        )

    def _add(
        self, op: Operator, operands: Sequence[str], name: str, quantisation: Quantisation
    ) -> str:
        """Add a node that the old graph does not have."""
        return self._builder.add(
            op,
            operands,
            node=name,
            scale=quantisation.scale,
            zero_point=quantisation.zero_point,
        )

    def _constant(self, node: Node, part: str, values: Array) -> str:
        return self._builder.add_constant(f"{node.name}.{part}", values)

    def _describe(self, name: str, old: str) -> None:
        """Note that the new tensor `name` stands for the old integer tensor `old`."""
        source: Source | None = self._graph.tensors[old].source
        if source is not None and self._builder.tensor(name).source is None:
            self._builder.describe(name, source=source)
