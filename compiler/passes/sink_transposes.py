"""Pass: move transpositions towards the outputs until they cancel.

    Transpose(p); Transpose(q)        ->  Transpose(p o q), nothing where that is the identity
    f(Transpose(p)(x))                ->  Transpose(p)(f(x))          f element-wise
    f(Transpose(p)(x), y)             ->  Transpose(p)(f(x, Transpose(p^-1)(y)))
    Slice, Pad, Concat, Reduce        ->  the same, with their axes permuted
    Reshape(Transpose(p)(x))          ->  Transpose(q)(Reshape(x)), where it joins no axes that p
                                          brought together
    Transpose that moves sizes of 1   ->  Reshape
    Reshape to the same shape         ->  nothing

What is left stands in front of a Reshape, an operator with a layout of its own, or an output.
"""

from dataclasses import dataclass, replace

from typing_extensions import assert_never

from tilewright.compiler.graph import Graph, Node, Source, Tensor
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import (
    Add,
    AveragePool2d,
    Clip,
    Compare,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Dequantize,
    DequantizeWeights,
    Expand,
    FloatAveragePool2d,
    FloatBinary,
    FloatClip,
    FloatConv2d,
    FloatConvTranspose2d,
    FloatDense,
    FloatInterpolate,
    FloatLayerNorm,
    FloatMatMul,
    FloatReduce,
    FloatSoftmax,
    FloatUnary,
    Gather,
    LayerNorm,
    Logical,
    LogicOperator,
    Lookup,
    MatMul,
    MaxPool2d,
    MovementOperator,
    Mul,
    Operator,
    Pad,
    Quantize,
    Reinterpret,
    Requantize,
    Reshape,
    Select,
    Slice,
    Softmax,
    Transpose,
    Upsample2d,
)
from tilewright.compiler.passes.reshape_groups import Permutation, reshape_before


@dataclass(frozen=True, slots=True)
class View:
    """A tensor of the old graph as a transposition, not yet carried out, of one of the new."""

    base: str
    permutation: Permutation


def sink_transposes(graph: Graph) -> Graph:
    """Return `graph` with its transpositions moved down and cancelled."""
    rewrite = _Rewrite(graph)
    for node in graph.nodes:
        rewrite.visit(node)
    return rewrite.finish()


class _Rewrite:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._builder = GraphBuilder(graph.name)
        self._builder.reserve(graph.outputs)
        self._views: dict[str, View] = {}
        self._carried_out: dict[View, str] = {}
        for name in graph.inputs:
            self._builder.add_input(graph.tensors[name])
            self._bind(name, name)
        for name, values in graph.constants.items():
            self._bind(name, self._builder.add_constant(name, values))

    def visit(self, node: Node) -> None:
        """Rewrite one node."""
        if isinstance(node.op, Transpose):
            view = self._views[node.inputs[0]]
            permutation = compose(view.permutation, node.op.permutation)
            self._views[node.outputs[0]] = View(view.base, permutation)
            return
        if isinstance(node.op, Reshape) and self._reshape(node, node.op):
            return
        common = self._common_permutation(node)
        op = permuted(node.op, common) if common is not None else None
        if common is None or op is None:
            operands = [self._materialise(name) for name in node.inputs]
            self._emit(node, node.op, operands, None)
        else:
            self._emit(node, op, self._aligned_operands(node, common), common)

    def _reshape(self, node: Node, op: Reshape) -> bool:
        """Reshape in front of a transposition, if that is possible; tell whether it is.

        A reshape to the same shape is nothing.
        """
        view = self._views[node.inputs[0]]
        if op.shape == self._graph.tensors[node.inputs[0]].shape:
            self._views[node.outputs[0]] = view
            self._describe(view, self._graph.tensors[node.outputs[0]].source)
            return True
        if view.permutation == tuple(sorted(view.permutation)):
            return False
        shape = self._builder.tensor(view.base).shape
        moved = reshape_before(shape, view.permutation, op.shape)
        if moved is None:
            return False
        reshaped, permutation = moved
        self._emit(node, Reshape(shape=reshaped), [view.base], permutation)
        return True

    def finish(self) -> Graph:
        """Return the new graph."""
        for name in self._graph.outputs:
            tensor = self._graph.tensors[name]
            if name in self._graph.inputs:
                continue
            produced = self._materialise(name)
            self._builder.name_output(produced, name, source=tensor.source)
        return self._builder.build(self._graph.outputs)

    def _describe(self, view: View, source: Source | None) -> None:
        """Say what the base of a view stands for, if nobody has yet."""
        if source is None or self._builder.tensor(view.base).source is not None:
            return
        if len(source.axes) == len(view.permutation):
            axes = reorder(source.axes, inverse(view.permutation))
            self._builder.describe(view.base, source=replace(source, axes=axes))

    def _bind(self, old: str, new: str) -> None:
        self._views[old] = View(new, tuple(range(len(self._builder.tensor(new).shape))))

    def _common_permutation(self, node: Node) -> Permutation | None:
        """Return the permutation that all operands of a node are brought to, None for none."""
        if not _broadcasts(node.op):
            permutation = self._views[node.inputs[0]].permutation if node.inputs else ()
            return permutation if permutation != tuple(sorted(permutation)) else None
        rank = len(self._graph.tensors[node.outputs[0]].shape)
        for name in node.inputs:
            permutation = self._views[name].permutation
            if permutation != tuple(sorted(permutation)) and len(permutation) == rank:
                return permutation
        return None

    def _aligned_operands(self, node: Node, permutation: Permutation) -> list[str]:
        if _broadcasts(node.op):
            return [self._aligned(name, permutation) for name in node.inputs]
        first, *parameters = node.inputs
        return [self._aligned(first, permutation), *map(self._materialise, parameters)]

    def _aligned(self, name: str, permutation: Permutation) -> str:
        """Return a tensor whose transposition by `permutation` is the old tensor `name`.

        One of fewer axes gets leading ones of size 1 first, as broadcasting would give it.
        """
        view = self._views[name]
        missing = len(permutation) - len(view.permutation)
        if missing:
            base = self._builder.tensor(self._transposed(view))
            shape = (1,) * missing + base.shape
            padded = self._builder.add(Reshape(shape=shape), [base.name], node=f"{name}/broadcast")
            view = View(padded, tuple(range(len(shape))))
        return self._transposed(View(view.base, compose(view.permutation, inverse(permutation))))

    def _materialise(self, name: str) -> str:
        return self._transposed(self._views[name])

    def _transposed(self, view: View) -> str:
        if view.permutation == tuple(sorted(view.permutation)):
            return view.base
        if view not in self._carried_out:
            base = self._builder.tensor(view.base)
            shape = tuple(base.shape[axis] for axis in view.permutation)
            self._carried_out[view] = self._builder.add(
                _transpose_or_reshape(base, view.permutation),
                [view.base],
                node=f"{view.base}/transposed",
                scale=base.scale,
                zero_point=base.zero_point,
                source=_permuted_source(base, view.permutation),
            )
            assert self._builder.tensor(self._carried_out[view]).shape == shape
        return self._carried_out[view]

    def _emit(
        self, node: Node, op: Operator, operands: list[str], permutation: Permutation | None
    ) -> None:
        old = self._graph.tensors[node.outputs[0]]
        rank = len(old.shape)
        order = permutation if permutation is not None else tuple(range(rank))
        new = self._builder.add(
            op,
            operands,
            node=node.name,
            output=old.name,
            scale=old.scale,
            zero_point=old.zero_point,
            source=_permuted_source(old, inverse(order)),
            node_source=node.source,
        )
        self._views[old.name] = View(new, order)


def permuted(op: Operator, permutation: Permutation) -> Operator | None:
    """Return `op` for tensors as they are before a transposition, None where there is no such."""
    keeps_last = permutation[-1] == len(permutation) - 1
    match op:
        case Quantize() | Dequantize() | Reinterpret() | FloatClip() | FloatUnary():
            return op
        case _ if isinstance(op, FloatBinary | Add | Mul | Requantize | Clip | LogicOperator):
            return op
        case FloatSoftmax() | FloatLayerNorm() | FloatDense():
            return op if keeps_last else None
        case FloatReduce(axes=axes):
            return replace(op, axes=tuple(sorted(permutation[axis] for axis in axes)))
        case FloatInterpolate(axis=axis):
            return FloatInterpolate(axis=permutation[axis])
        case _ if isinstance(op, MovementOperator):
            return _permuted_movement(op, permutation)
        case (
            FloatConv2d()
            | FloatConvTranspose2d()
            | FloatMatMul()
            | FloatAveragePool2d()
            | Conv2d()
            | ConvTranspose2d()
            | MatMul()
            | AveragePool2d()
            | DequantizeWeights()
            | Lookup()
            | Softmax()
            | LayerNorm()
        ):
            return None
        case _:
            assert_never(op)


def _permuted_movement(op: MovementOperator, permutation: Permutation) -> Operator | None:
    back = inverse(permutation)
    match op:
        case Slice(begin=begin, end=end, stride=stride):
            return Slice(
                begin=reorder(begin, back), end=reorder(end, back), stride=reorder(stride, back)
            )
        case Pad(before=before, after=after):
            return replace(op, before=reorder(before, back), after=reorder(after, back))
        case Concat(axis=axis):
            return Concat(axis=permutation[axis])
        case Expand(shape=shape):
            return Expand(shape=reorder(shape, back)) if len(shape) == len(permutation) else None
        case MaxPool2d() | Reshape() | Transpose() | Upsample2d() | Gather():
            return None
        case _:
            assert_never(op)


def _broadcasts(op: Operator) -> bool:
    """Tell whether the operands of `op` stand for each other's elements, as numpy broadcasts."""
    return isinstance(op, FloatBinary | Add | Mul | Compare | Logical | Select | Concat)


def compose(first: Permutation, second: Permutation) -> Permutation:
    """Return the permutation that is `first` followed by `second`."""
    return tuple(first[axis] for axis in second)


def inverse(permutation: Permutation) -> Permutation:
    """Return the permutation that undoes another."""
    return tuple(permutation.index(axis) for axis in range(len(permutation)))


def reorder(items: tuple[int, ...], permutation: Permutation) -> tuple[int, ...]:
    """Return `items` in the order that `permutation` gives to the axes they belong to."""
    return tuple(items[axis] for axis in permutation)


def _transpose_or_reshape(base: Tensor, permutation: Permutation) -> Operator:
    shape = tuple(base.shape[axis] for axis in permutation)
    longer = [axis for axis in permutation if base.shape[axis] != 1]
    if longer == sorted(longer):
        return Reshape(shape=shape)
    return Transpose(permutation=permutation)


def _permuted_source(tensor: Tensor, permutation: Permutation) -> Source | None:
    if tensor.source is None or len(tensor.source.axes) != len(permutation):
        return None
    return replace(tensor.source, axes=reorder(tensor.source.axes, permutation))
