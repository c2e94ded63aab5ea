"""Nodes of the integer graph, added for real operators whose operands and result are quantised."""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.graph import Array, Node
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import (
    FloatAveragePool2d,
    FloatClip,
    FloatConv2d,
    FloatSoftmax,
    FloatUnary,
    Lookup,
    Operator,
    Pad,
    Quantize,
    Reshape,
    Softmax,
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


@dataclass(frozen=True, slots=True)
class Quantised:
    """An int8 tensor of the new graph and what it means."""

    name: str
    quantisation: Quantisation


class IntegerEmission:
    """Adds to `builder` what nodes of the old graph become; methods return the output's name."""

    def __init__(self, builder: GraphBuilder) -> None:
        self._builder = builder

    def copy(
        self,
        node: Node,
        op: Operator,
        operands: Sequence[str],
        quantisation: Quantisation | None = None,
    ) -> str:
        """Add `op` in the name of an old node; without a quantisation, its result has no scale."""
        return self._builder.add(
            op,
            operands,
            node=node.name,
            scale=quantisation.scale if quantisation else None,
            zero_point=quantisation.zero_point if quantisation else None,
            node_source=node.source,
        )

    def requantize(self, x: Quantised, name: str, target: Quantisation) -> str:
        """Add a change of scale of the old tensor `name`."""
        op = requantize_operator(x.quantisation, target, f"tensor {name!r}")
        return self._add(op, [x.name], f"{name}/requantized", target)

    def quantize(self, real: str, name: str, target: Quantisation) -> str:
        """Add the quantisation of the old tensor `name`, which is `real` now."""
        op = Quantize(scale=target.scale, zero_point=target.zero_point)
        return self._add(op, [real], f"{name}/quantized", target)

    def movement(
        self, node: Node, name: str, quantisation: Quantisation | None, *, unsigned: bool
    ) -> str:
        """Add movement or a clip of int8; without a quantisation, of `unsigned` or int8 values."""
        op = node.op
        if isinstance(op, Pad):
            op = quantised_pad(op, quantisation, node, offset=128 if unsigned else 0)
        if isinstance(op, FloatClip):
            assert quantisation is not None, "integers are clipped by Clip, not by FloatClip"
            op = clip_operator(op, quantisation)
        return self.copy(node, op, [name], quantisation)

    def convolution(
        self,
        node: Node,
        op: FloatConv2d,
        x: Quantised,
        weights: WeightValues,
        bias: WeightValues | None,
        target: Quantisation,
    ) -> str:
        """Add a convolution."""
        integer, constants = convolution_parts(op, x.quantisation, weights, bias, target, node)
        operands = [
            x.name,
            self._constant(node, "weights", constants.weights),
            self._constant(node, "bias", constants.bias),
            self._constant(node, "multiplier", constants.multiplier),
            self._constant(node, "shift", constants.shift),
        ]
        return self.copy(node, integer, operands, target)

    def dense(
        self,
        node: Node,
        x: Quantised,
        weights: WeightValues,
        bias: WeightValues | None,
        target: Quantisation,
    ) -> str:
        """Add a dense layer as a 1x1 convolution of images of one pixel."""
        batch, inputs = self._builder.tensor(x.name).shape
        outputs = weights.values.shape[0]
        shape = (batch, 1, 1, inputs)
        pixel = self._add(Reshape(shape=shape), [x.name], f"{node.name}/pixel", x.quantisation)
        image = self.convolution(
            node,
            FloatConv2d(),
            Quantised(pixel, x.quantisation),
            weights.reshaped((outputs, 1, 1, inputs)),
            bias,
            target,
        )
        return self._add(Reshape(shape=(batch, outputs)), [image], f"{node.name}/vector", target)

    def add(self, node: Node, a: Quantised, b: Quantised, target: Quantisation) -> str:
        """Add a sum of two tensors."""
        op = add_operator(a.quantisation, b.quantisation, target, node)
        return self.copy(node, op, [a.name, b.name], target)

    def average(
        self, node: Node, op: FloatAveragePool2d, x: Quantised, target: Quantisation
    ) -> str:
        """Add an average pooling."""
        _, height, width, _ = self._builder.tensor(x.name).shape
        average = average_operator(op, (height, width), x.quantisation, target, node)
        return self.copy(node, average, [x.name], target)

    def softmax(self, node: Node, op: FloatSoftmax, x: Quantised, target: Quantisation) -> str:
        """Add a softmax and its table."""
        table = self._constant(node, "table", softmax_table(op, x.quantisation))
        softmax = Softmax(scale=target.scale, zero_point=target.zero_point)
        return self.copy(node, softmax, [x.name, table], target)

    def lookup(self, node: Node, op: FloatUnary, x: Quantised, target: Quantisation) -> str:
        """Add a function of one number and its table."""
        table = self._constant(node, "table", lookup_table(op, x.quantisation, target))
        return self.copy(node, Lookup(), [x.name, table], target)

    def _add(
        self, op: Operator, operands: Sequence[str], name: str, quantisation: Quantisation
    ) -> str:
        return self._builder.add(
            op,
            operands,
            node=name,
            scale=quantisation.scale,
            zero_point=quantisation.zero_point,
        )

    def _constant(self, node: Node, part: str, values: Array) -> str:
        return self._builder.add_constant(f"{node.name}.{part}", values)
