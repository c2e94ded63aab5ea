"""Nodes of the integer graph, added for real operators whose operands and result are quantised."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from tilewright.compiler.graph import Array, Node
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import (
    INT8_MAX,
    INT8_MIN,
    DataType,
    FloatAveragePool2d,
    FloatClip,
    FloatConv2d,
    FloatConvTranspose2d,
    FloatLayerNorm,
    FloatSoftmax,
    LayerNorm,
    Lookup,
    MatMul,
    Mul,
    Operator,
    Pad,
    Quantize,
    Reshape,
    Softmax,
)
from tilewright.compiler.passes.integer_forms import (
    ConvolutionConstants,
    Quantisation,
    WeightValues,
    add_operator,
    average_operator,
    clip_operator,
    convolution_parts,
    product_parameters,
    quantised_pad,
    requantize_operator,
    transposed_parts,
)
from tilewright.compiler.passes.integer_tables import lookup_table, softmax_table


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

    def rank(self, x: Quantised) -> int:
        """Return the number of axes of a tensor."""
        return len(self._builder.tensor(x.name).shape)

    def constant(self, node: Node, values: WeightValues) -> Quantised:
        """Add a constant of 8 bits and one scale as an int8 tensor."""
        unsigned = values.values.dtype == np.uint8
        dtype = DataType.UINT8 if unsigned else DataType.INT8
        quantisation = Quantisation.of(values.scale[0], int(values.zero_point[0]), dtype)
        integers = (values.values ^ np.uint8(0x80)).view(np.int8) if unsigned else values.values
        return Quantised(self._constant(node, "constant", integers), quantisation)

    def movement(
        self,
        node: Node,
        operands: Sequence[str],
        quantisation: Quantisation | None,
        *,
        unsigned: bool,
    ) -> str:
        """Add movement or a clip of int8; without a quantisation, of `unsigned` or int8 values."""
        op = node.op
        if isinstance(op, Pad):
            op = quantised_pad(op, quantisation, node, offset=128 if unsigned else 0)
        if isinstance(op, FloatClip):
            assert quantisation is not None, "integers are clipped by Clip, not by FloatClip"
            op = clip_operator(op, quantisation)
        return self.copy(node, op, operands, quantisation)

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
        return self.copy(node, integer, self._convolved(node, x, constants), target)

    def transposed_convolution(
        self,
        node: Node,
        op: FloatConvTranspose2d,
        x: Quantised,
        weights: WeightValues,
        bias: WeightValues | None,
        target: Quantisation,
    ) -> str:
        """Add a transposed convolution."""
        integer, constants = transposed_parts(op, x.quantisation, weights, bias, target, node)
        return self.copy(node, integer, self._convolved(node, x, constants), target)

    def _convolved(self, node: Node, x: Quantised, constants: ConvolutionConstants) -> list[str]:
        return [
            x.name,
            self._constant(node, "weights", constants.weights),
            self._constant(node, "bias", constants.bias),
            self._constant(node, "multiplier", constants.multiplier),
            self._constant(node, "shift", constants.shift),
        ]

    def dense(
        self,
        node: Node,
        x: Quantised,
        weights: WeightValues,
        bias: WeightValues | None,
        target: Quantisation,
    ) -> str:
        """Add a dense layer as a 1x1 convolution: of one pixel, or of a row of several vectors."""
        *leading, inputs = self._builder.tensor(x.name).shape
        outputs = weights.values.shape[0]
        batch, *rows = leading or [1]
        shape = (batch, 1, math.prod(rows), inputs)
        pixel = self._add(Reshape(shape=shape), [x.name], f"{node.name}/pixel", x.quantisation)
        image = self.convolution(
            node,
            FloatConv2d(),
            Quantised(pixel, x.quantisation),
            weights.reshaped((outputs, 1, 1, inputs)),
            bias,
            target,
        )
        return self._add(Reshape(shape=(*leading, outputs)), [image], f"{node.name}/vector", target)

    def add(self, node: Node, a: Quantised, b: Quantised, target: Quantisation) -> str:
        """Add a sum of two tensors."""
        op = add_operator(a.quantisation, b.quantisation, target, node)
        return self.copy(node, op, [a.name, b.name], target)

    def subtract(self, node: Node, a: Quantised, b: Quantised, target: Quantisation) -> str:
        """Add a difference of two tensors."""
        op = add_operator(a.quantisation, b.quantisation, target, node, sign=-1)
        return self.copy(node, op, [a.name, b.name], target)

    def multiply(self, node: Node, a: Quantised, b: Quantised, target: Quantisation) -> str:
        """Add a product of two tensors, element by element."""
        parameters = product_parameters(a.quantisation, b.quantisation, target, node)
        return self.copy(node, Mul(**asdict(parameters)), [a.name, b.name], target)

    def matrix_product(self, node: Node, a: Quantised, b: Quantised, target: Quantisation) -> str:
        """Add a product of two stacks of matrices."""
        parameters = product_parameters(a.quantisation, b.quantisation, target, node)
        return self.copy(node, MatMul(**asdict(parameters)), [a.name, b.name], target)

    def layer_norm(
        self,
        node: Node,
        op: FloatLayerNorm,
        x: Quantised,
        gain: Array,
        offset: Array,
        target: Quantisation,
    ) -> str:
        """Add a normalisation over the last axis."""
        count = self._builder.tensor(x.name).shape[-1]
        norm = LayerNorm(
            floor=count**2 * op.epsilon / x.quantisation.scale**2,
            zero_point=target.zero_point,
            low=INT8_MIN,
            high=INT8_MAX,
        )
        scale = np.float32(target.scale)
        operands = [
            x.name,
            self._constant(node, "gain", (gain / scale).astype(np.float32)),
            self._constant(node, "offset", (offset / scale).astype(np.float32)),
        ]
        return self.copy(node, norm, operands, target)

    def mean(
        self, node: Node, axes: Sequence[int], x: Quantised, target: Quantisation
    ) -> str | None:
        """Add a mean over axes that lie together, as a pooling of rows; None for others."""
        shape = self._builder.tensor(x.name).shape
        first, last = axes[0], axes[-1]
        if list(axes) != list(range(first, last + 1)):
            return None
        count = math.prod(shape[first : last + 1])
        view = (math.prod(shape[:first]), count, 1, math.prod(shape[last + 1 :]))
        image = self._add(Reshape(shape=view), [x.name], f"{node.name}/rows", x.quantisation)
        pool = FloatAveragePool2d(kernel=(count, 1), stride=(1, 1))
        mean = self.average(node, pool, Quantised(image, x.quantisation), target)
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
        return self._add(Reshape(shape=kept), [mean], f"{node.name}/kept", target)

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

    def lookup(
        self,
        node: Node,
        function: Callable[[Array], Array],
        x: Quantised,
        target: Quantisation,
    ) -> str:
        """Add a function of one number and its table."""
        table = self._constant(node, "table", lookup_table(function, x.quantisation, target))
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
