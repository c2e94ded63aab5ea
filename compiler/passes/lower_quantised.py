"""Pass: turn real-number operators between quantised tensors into integer operators.

    Quantize(f(Dequantize(x), ...))       ->  the integer form of f
    Dequantize; Quantize, equal scales    ->  nothing
    Dequantize; Quantize, other scales    ->  Requantize
    uint8                                 ->  int8, zero points moved by 128
    movement(Dequantize(x))               ->  Dequantize(movement(x))
    f(x, weights) + bias                  ->  f(x, weights, bias)
    Quantize(movement(f(x)))              ->  movement(Quantize(f(x)))

What remains real stands before the first quantisation or after the last, for the host.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

from typing_extensions import assert_never

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import (
    BinaryFunction,
    Concat,
    DataType,
    Dequantize,
    DequantizeWeights,
    Expand,
    FloatAveragePool2d,
    FloatBinary,
    FloatClip,
    FloatConv2d,
    FloatDense,
    FloatOperator,
    FloatSoftmax,
    FloatUnary,
    Gather,
    IntegerOperator,
    LogicOperator,
    MaxPool2d,
    Pad,
    Quantize,
    Reinterpret,
    Reshape,
    Slice,
    Transpose,
    Upsample2d,
)
from tilewright.compiler.passes.integer_emission import IntegerEmission, Quantised
from tilewright.compiler.passes.integer_forms import Quantisation, WeightValues
from tilewright.isa.errors import ModelError


@dataclass(frozen=True, slots=True)
class Real:
    """A real tensor of the new graph."""

    name: str


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
        self._emission = IntegerEmission(self._builder)
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
            case Quantize() | Dequantize() | DequantizeWeights():
                self._convert(node)
            case MaxPool2d() | Reshape() | Transpose() | Slice() | Pad() | FloatClip():
                self._move(node)
            case Concat():
                self._join(node)
            case FloatBinary():
                self._views[output] = self._biased(node) or Deferred(node)
            case Expand() | Upsample2d() | Gather():
                raise ModelError(f"{node.label} has no integer form")
            case _ if isinstance(node.op, FloatOperator):
                self._views[output] = Deferred(node)
            case _ if isinstance(node.op, LogicOperator):
                raise ModelError(f"{node.label} has no integer form")
            case _ if isinstance(node.op, IntegerOperator | Reinterpret):
                raise ModelError(f"{node.label} is an integer operator already")
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

    def _convert(self, node: Node) -> None:
        """Give meaning to integers, or integers to real numbers."""
        (output,) = node.outputs
        match node.op:
            case Quantize(scale=scale, zero_point=zero_point, dtype=dtype):
                target = Quantisation.of(scale, zero_point, dtype)
                name = self._quantise(node.inputs[0], target)
                self._integers[output] = name
                source = self._graph.tensors[output].source
                if source is not None and self._builder.tensor(name).source is None:
                    self._builder.describe(name, source=source)
            case Dequantize(scale=scale, zero_point=zero_point):
                dtype = self._graph.tensors[node.inputs[0]].dtype
                quantisation = Quantisation.of(scale, zero_point, dtype)
                name = self._integer(node, node.inputs[0])
                self._views[output] = Quantised(name, quantisation)
            case DequantizeWeights(axis=axis):
                values, scales, zero_points = (self._graph.constants[name] for name in node.inputs)
                self._views[output] = WeightValues(values, scales, zero_points, axis)

    def _join(self, node: Node) -> None:
        """Join integers, or real tensors of one quantisation; defer others."""
        (output,) = node.outputs
        if self._graph.tensors[output].dtype is not DataType.FLOAT32:
            operands = [self._integer(node, name) for name in node.inputs]
            self._integers[output] = self._emission.copy(node, node.op, operands)
            return
        views = [self._view(node, name) for name in node.inputs]
        found = {view.quantisation if isinstance(view, Quantised) else None for view in views}
        shared = found.pop() if len(found) == 1 else None
        if shared is None:
            self._views[output] = Deferred(node)
            return
        operands = [self._quantise(name, shared) for name in node.inputs]
        joined = self._emission.copy(node, node.op, operands, shared)
        self._views[output] = Quantised(joined, shared)

    def _biased(self, node: Node) -> Deferred | None:
        """Return a deferred convolution or dense layer with the bias that stands behind it.

        None where the node adds anything else.
        """
        if node.op != FloatBinary(function=BinaryFunction.ADD):
            return None
        for name, other in (node.inputs, reversed(node.inputs)):
            view, bias = self._view(node, name), self._view(node, other)
            if not isinstance(view, Deferred) or not isinstance(bias, WeightValues):
                continue
            product = view.node
            outputs = self._graph.tensors[name].shape[-1:]
            if (
                isinstance(product.op, FloatConv2d | FloatDense)
                and len(product.inputs) == 2
                and bias.values.shape[-1:] == outputs == (bias.values.size,)
            ):
                self._views[other] = bias.reshaped(outputs)
                return Deferred(replace(product, inputs=(*product.inputs, other)))
        return None

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
                self._views[output] = Real(self._emission.copy(node, node.op, [name]))
            case Deferred():
                self._views[output] = Deferred(node)
            case WeightValues():
                raise ModelError(f"{node.label} moves a constant in a way not supported")

    def _moved_integer(self, node: Node, name: str, quantisation: Quantisation | None) -> str:
        unsigned = self._graph.tensors[node.outputs[0]].dtype is DataType.UINT8
        return self._emission.movement(node, name, quantisation, unsigned=unsigned)

    def _view(self, node: Node, name: str) -> View:
        if name not in self._views:
            raise ModelError(
                f"{node.label} computes with {name!r}, which is an integer without a scale"
            )
        return self._views[name]

    def _integer(self, node: Node, name: str) -> str:
        if name not in self._integers:
            raise ModelError(f"{node.label} reads {name!r}, which is not a quantised tensor")
        return self._integers[name]

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
            case Quantised():
                produced = self._emission.requantize(view, name, target)
            case Real(real):
                produced = self._emission.quantize(real, name, target)
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
        if isinstance(node.op, Concat):
            return self._concat(node, target)
        x, emission = self._operand(node, 0), self._emission
        match node.op:
            case FloatConv2d():
                weights, bias = self._weights(node)
                return emission.convolution(node, node.op, x, weights, bias, target)
            case FloatDense():
                weights, bias = self._weights(node)
                return emission.dense(node, x, weights, bias, target)
            case FloatBinary(function=BinaryFunction.ADD):
                return emission.add(node, x, self._operand(node, 1), target)
            case FloatAveragePool2d():
                return emission.average(node, node.op, x, target)
            case FloatSoftmax():
                return emission.softmax(node, node.op, x, target)
            case FloatUnary():
                return emission.lookup(node, node.op, x, target)
            case _:
                raise ModelError(f"{node.label} has no integer form")

    def _concat(self, node: Node, target: Quantisation) -> str:
        """Add a concatenation of tensors that are all quantised as its result is."""
        for name in node.inputs:
            view = self._view(node, name)
            if isinstance(view, Deferred) and isinstance(view.node.op, Concat):
                raise ModelError(
                    f"{node.label} joins the real result of {view.node.label}",
                    hint="let the quantiser quantise every operator",
                )
        operands = [self._quantise(name, target) for name in node.inputs]
        return self._emission.copy(node, node.op, operands, target)

    def _operand(self, node: Node, index: int) -> Quantised:
        name = node.inputs[index]
        view = self._view(node, name)
        if isinstance(view, Quantised):
            return view
        raise ModelError(
            f"{node.label} computes in floating point: {name!r} is not quantised",
            hint="quantise every operator, or let the quantiser leave none in between",
        )

    def _weights(self, node: Node) -> tuple[WeightValues, WeightValues | None]:
        """Return the weights of a node and its bias, if it has one."""
        views = [self._view(node, name) for name in node.inputs[1:]]
        constants = [view for view in views if isinstance(view, WeightValues)]
        if len(constants) != len(views):
            raise ModelError(f"{node.label} has weights or a bias that are not constant")
        return constants[0], constants[1] if len(constants) == 2 else None

    def _real(self, name: str) -> str:
        """Return the old real tensor `name` as a real tensor of the new graph, for the host."""
        chain: list[Node] = []
        view = self._views[name]
        while isinstance(view, Deferred):
            if not isinstance(view.node.op, (*MOVEMENT, *HOST)):
                raise ModelError(
                    f"{view.node.label} computes in floating point: its result is not quantised",
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
            produced = self._emission.copy(node, node.op, [produced])
        return produced
