"""Pass: turn real-number operators between quantised tensors into integer operators.

    Quantize(f(Dequantize(x), ...))       ->  the integer form of f
    Dequantize; Quantize, equal scales    ->  nothing
    Dequantize; Quantize, other scales    ->  Requantize
    uint8                                 ->  int8, zero points moved by 128
    movement(Dequantize(x))               ->  Dequantize(movement(x))
    f(x, weights) + bias                  ->  f(x, weights, bias)
    Quantize(movement(f(x)))              ->  movement(Quantize(f(x)))

What has no integer form, or reads what is not quantised, stays real, for the host.
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
    FloatBinary,
    FloatClip,
    FloatConv2d,
    FloatConvTranspose2d,
    FloatDense,
    FloatOperator,
    IntegerOperator,
    LogicOperator,
    MovementOperator,
    Quantize,
    Reinterpret,
)
from tilewright.compiler.operators.tensor_type import QUANTISED
from tilewright.compiler.passes.integer_choice import integer_form
from tilewright.compiler.passes.integer_emission import IntegerEmission, Quantised
from tilewright.compiler.passes.integer_forms import Quantisation, WeightValues
from tilewright.isa.errors import ModelError


@dataclass(frozen=True, slots=True)
class Real:
    """A tensor of the new graph that is not quantised."""

    name: str


@dataclass(frozen=True, slots=True)
class Deferred:
    """A real operator that becomes an integer one where its result is quantised."""

    node: Node


View: TypeAlias = Real | Quantised | Deferred | WeightValues


def lower_quantised(graph: Graph) -> Graph:
    """Return `graph` with its quantised operators in integer form.

    Raises
    ------
    ModelError
        If integers without a scale are computed with, or scales are out of range.
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
        self._reals: dict[str, str] = {}
        for name in graph.inputs:
            self._add_input(name)
        for name, values in graph.constants.items():
            if values.dtype.kind == "f":
                self._views[name] = WeightValues.of_floats(values)

    def visit(self, node: Node) -> None:
        """Lower one node, or defer it."""
        match node.op:
            case Quantize() | Dequantize() | DequantizeWeights():
                self._convert(node)
            case Concat():
                self._join(node)
            case FloatClip():
                self._move(node)
            case _ if isinstance(node.op, MovementOperator):
                self._move(node)
            case _ if isinstance(node.op, FloatOperator | LogicOperator):
                self._compute(node)
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
            if tensor.dtype not in QUANTISED:
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
        if tensor.dtype not in QUANTISED:
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
        if self._graph.tensors[output].dtype in QUANTISED:
            operands = [self._integer(node, name) for name in node.inputs]
            self._integers[output] = self._emission.copy(node, node.op, operands)
            return
        views = [self._view(node, name) for name in node.inputs]
        if not all(isinstance(view, Quantised | Deferred) for view in views):
            self._views[output] = self._host(node)
            return
        found = {view.quantisation if isinstance(view, Quantised) else None for view in views}
        shared = found.pop() if len(found) == 1 else None
        if shared is None:
            self._views[output] = Deferred(node)
            return
        operands = [self._quantise(name, shared) for name in node.inputs]
        joined = self._emission.copy(node, node.op, operands, shared)
        self._views[output] = Quantised(joined, shared)

    def _compute(self, node: Node) -> None:
        """Defer an operator whose operands are quantised; leave any other to the host."""
        (output,) = node.outputs
        biased = self._biased(node)
        if biased is not None:
            self._views[output] = biased
            return
        views = [self._view(node, name) for name in node.inputs]
        integer = any(isinstance(view, Quantised) for view in views) and all(
            isinstance(view, Quantised | WeightValues) for view in views
        )
        deferred = integer and not isinstance(node.op, LogicOperator)
        self._views[output] = Deferred(node) if deferred else self._host(node)

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
                isinstance(product.op, FloatConv2d | FloatConvTranspose2d | FloatDense)
                and len(product.inputs) == 2
                and bias.values.shape[-1:] == outputs == (bias.values.size,)
            ):
                self._views[other] = bias.reshaped(outputs)
                return Deferred(replace(product, inputs=(*product.inputs, other)))
        return None

    def _move(self, node: Node) -> None:
        """Carry out movement on integers; on a deferred result, defer it too."""
        (output,) = node.outputs
        source, *parameters = node.inputs
        if source in self._integers:
            self._integers[output] = self._moved_integer(node, self._integers[source], None)
            return
        match self._view(node, source):
            case Quantised(name, quantisation):
                moved = self._moved_integer(node, name, quantisation)
                self._views[output] = Quantised(moved, quantisation)
            case Deferred() if not parameters:
                self._views[output] = Deferred(node)
            case WeightValues() as table if table.is_quantised_tensor:
                constant = self._emission.constant(node, table)
                moved = self._moved_integer(node, constant.name, constant.quantisation)
                self._views[output] = Quantised(moved, constant.quantisation)
            case _:
                self._views[output] = self._host(node)

    def _moved_integer(self, node: Node, name: str, quantisation: Quantisation | None) -> str:
        unsigned = self._graph.tensors[node.outputs[0]].dtype is DataType.UINT8
        parameters = [self._real(parameter) for parameter in node.inputs[1:]]
        return self._emission.movement(node, [name, *parameters], quantisation, unsigned=unsigned)

    def _view(self, node: Node, name: str) -> View:
        if name in self._views:
            return self._views[name]
        if name in self._graph.constants:
            return Real(self._real(name))
        raise ModelError(
            f"{node.label} computes with {name!r}, which is an integer without a scale"
        )

    def _integer(self, node: Node, name: str) -> str:
        if name not in self._integers:
            raise ModelError(f"{node.label} reads {name!r}, which is not a quantised tensor")
        return self._integers[name]

    def _quantise(self, name: str, target: Quantisation) -> str:
        """Return the int8 tensor that is the real tensor `name` quantised to `target`."""
        chain: list[Node] = []
        view = self._views[name]
        while isinstance(view, Deferred) and _moves(view.node):
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
                produced = self._integer_form(node, name, target)
            case WeightValues():
                produced = self._emission.quantize(self._real(name), name, target)
            case _:
                assert_never(view)
        self._quantised[key] = produced
        return produced

    def _integer_form(self, node: Node, name: str, target: Quantisation) -> str:
        """Add the integer form of a deferred node whose result `name` is quantised to `target`.

        Where it has none, the host computes it between a dequantisation and a quantisation.
        """
        if isinstance(node.op, Concat):
            operands = [self._quantise(operand, target) for operand in node.inputs]
            return self._emission.copy(node, node.op, operands, target)
        views = [self._view(node, operand) for operand in node.inputs]
        operands_known = [view for view in views if isinstance(view, Quantised | WeightValues)]
        if len(operands_known) == len(views):
            produced = integer_form(self._emission, node, operands_known, target)
            if produced is not None:
                return produced
        return self._emission.quantize(self._real(name), name, target)

    def _host(self, node: Node) -> Real:
        """Add a node to be computed on real numbers."""
        operands = [self._real(name) for name in node.inputs]
        return Real(self._emission.copy(node, node.op, operands))

    def _real(self, name: str) -> str:
        """Return the old tensor `name` as one of the new graph that is not quantised."""
        if name not in self._reals:
            self._reals[name] = self._made_real(name)
        return self._reals[name]

    def _made_real(self, name: str) -> str:
        view = self._views.get(name)
        match view:
            case Quantised(integer, quantisation):
                op = Dequantize(scale=quantisation.scale, zero_point=quantisation.zero_point)
                return self._builder.add(op, [integer], node=f"{name}/dequantized")
            case Real(produced):
                return produced
            case Deferred(node):
                operands = [self._real(operand) for operand in node.inputs]
                return self._emission.copy(node, node.op, operands)
            case WeightValues():
                return self._builder.add_constant(name, view.real())
            case None:
                return self._builder.add_constant(name, self._graph.constants[name])
            case _:
                assert_never(view)


def _moves(node: Node) -> bool:
    """Tell whether a deferred node is movement, or a clip, of what its first operand is."""
    return isinstance(node.op, MovementOperator | FloatClip) and not isinstance(node.op, Concat)
