"""A float graph and scales to a graph with quantisations and dequantisations between operators."""

from collections.abc import Mapping

import numpy as np

from tilewright.compiler.graph import Array, Graph, Node, Source
from tilewright.compiler.operators import (
    Dequantize,
    DequantizeWeights,
    FloatBinary,
    FloatConvTranspose2d,
    FloatMatMul,
    Quantize,
)
from tilewright.compiler.passes.rewrite import Rewrite
from tilewright.compiler.quantisation.choice import WEIGHTED, Choice, moves
from tilewright.compiler.quantisation.scales import (
    QuantisedConstant,
    Scale,
    quantised_bias,
    quantised_weights,
)


def insert_quantisation(
    graph: Graph, choice: Choice, scales: Mapping[str, Scale], means: Mapping[str, Array] | None
) -> Graph:
    """Return the quantised form of a float graph, real operators between quantised tensors.

    Parameters
    ----------
    graph
        The float graph.
    choice
        What is quantised.
    scales
        Of each tensor of the choice.
    means
        Per channel, of what weighted layers read: their biases then make up for what rounding the
        weights changes on average. None leaves the biases as they are.
    """
    return _Insertion(graph, choice, scales, means).run()


class _Insertion:
    def __init__(
        self,
        graph: Graph,
        choice: Choice,
        scales: Mapping[str, Scale],
        means: Mapping[str, Array] | None,
    ) -> None:
        self._graph = graph
        self._choice = choice
        self._scales = scales
        self._means = means
        self._rewrite = Rewrite(graph)
        #: The scale in which a float tensor is at hand, where it is quantised.
        self._stored: dict[str, Scale] = {}

    def run(self) -> Graph:
        for name in self._graph.inputs:
            if name in self._scales:
                self._store(name, name)
        for node in self._graph.nodes:
            self._visit(node)
        return self._rewrite.finish()

    def _visit(self, node: Node) -> None:
        (output,) = node.outputs
        operands = [self._rewrite.new(name) for name in node.inputs]
        if node.name in self._choice.computed:
            operands = self._quantised_operands(node, operands)
        self._rewrite.emit(node, node.op, operands)
        if output in self._scales:
            self._store(output, self._rewrite.new(output))
        elif moves(self._graph, node) and node.inputs[0] in self._stored:
            self._stored[output] = self._stored[node.inputs[0]]

    def _store(self, name: str, real: str) -> None:
        """Let quantised values stand for the old tensor `name`, which is `real` now."""
        scale = self._scales[name]
        builder = self._rewrite.builder
        rank = len(builder.tensor(real).shape)
        integers = builder.add(
            Quantize(scale=scale.scale, zero_point=scale.zero_point),
            [real],
            node=f"{name}/quantize",
            source=Source(name=name, axes=tuple(range(rank))),
        )
        op = Dequantize(scale=scale.scale, zero_point=scale.zero_point)
        dequantised = builder.add(op, [integers], node=f"{name}/dequantize")
        self._rewrite.stand_for(name, dequantised)
        self._stored[name] = scale

    def _quantised_operands(self, node: Node, operands: list[str]) -> list[str]:
        """Return the operands with their constants quantised, where the integer form wants it."""
        if isinstance(node.op, WEIGHTED):
            return self._weighted_operands(node, operands)
        if isinstance(node.op, FloatMatMul | FloatBinary):
            return [
                self._constant(name) if self._is_tensor(name) else operand
                for name, operand in zip(node.inputs, operands, strict=True)
            ]
        return operands

    def _is_tensor(self, name: str) -> bool:
        values = self._graph.constants.get(name)
        return values is not None and values.size > 1

    def _constant(self, name: str) -> str:
        quantised = quantised_weights(self._graph.constants[name], per_channel=False)
        return self._dequantised(name, quantised)

    def _weighted_operands(self, node: Node, operands: list[str]) -> list[str]:
        weights = self._graph.constants[node.inputs[1]]
        grouped = isinstance(node.op, FloatConvTranspose2d) and node.op.groups > 1
        quantised = quantised_weights(weights, per_channel=not grouped)
        result = [operands[0], self._dequantised(f"{node.name}.weights", quantised)]
        shift = self._shift(node, weights, quantised)
        if len(node.inputs) < 3 and not shift.any():
            return result
        bias = np.zeros(weights.shape[0], np.float32)
        if len(node.inputs) == 3:
            bias = self._graph.constants[node.inputs[2]]
        scale = self._stored[node.inputs[0]].scale
        integers = quantised_bias(bias - shift, scale, quantised.scale)
        return [*result, self._dequantised(f"{node.name}.bias", integers)]

    def _shift(self, node: Node, weights: Array, quantised: QuantisedConstant) -> Array:
        """Return by how much rounding the weights raises each output, on average."""
        outputs = weights.shape[0]
        if self._means is None:
            return np.zeros(outputs)
        error = quantised.real - weights.astype(np.float64)
        mean = self._means[node.inputs[0]]
        taps = error.reshape(outputs, -1, weights.shape[-1]).sum(axis=1)
        groups = mean.size // weights.shape[-1]
        share = outputs // groups
        grouped = taps.reshape(groups, share, -1) * mean.reshape(groups, 1, -1)
        shift: Array = grouped.sum(axis=2).reshape(outputs)
        return shift

    def _dequantised(self, name: str, constant: QuantisedConstant) -> str:
        builder = self._rewrite.builder
        scale = constant.scale
        operands = [
            builder.add_constant(f"{name}/integers", constant.values),
            builder.add_constant(f"{name}/scale", scale),
            builder.add_constant(f"{name}/zero_point", np.zeros(scale.shape, np.int32)),
        ]
        return builder.add(DequantizeWeights(axis=0), operands, node=f"{name}/dequantize")
