"""Kernels for the product of two activations, element by element.

The second operand becomes factors of 16 bits, less its zero point: a table each makes the lower and
the upper byte of every element, and the array brings the two side by side.
"""

from dataclasses import replace

import numpy as np

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.lowering.broadcast import Operand, needing, operand_of, widened
from tilewright.compiler.lowering.kernels import (
    Decision,
    HostReason,
    IntArray,
    Kernel,
    LaneKernel,
    LaneSource,
    MatrixKernel,
    ProductKernel,
    Requantisation,
    Window,
)
from tilewright.compiler.lowering.lane_products import corrections_of
from tilewright.compiler.lowering.movement import unit_scale
from tilewright.compiler.lowering.tensors import Int8Array, TensorShape
from tilewright.compiler.operators import Mul
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import VectorOperation

#: Bytes of a factor.
_PAIR = 2


def lower_multiplication(node: Node, op: Mul, graph: Graph, config: AcceleratorConfig) -> Decision:
    """Return the kernels: those that make the factors, and the product."""
    if config.batch > 1:
        return HostReason(text=f"factors are the same for all {config.batch} images of a batch")
    output = TensorShape.of(graph.tensors[node.outputs[0]].shape)
    found: list[tuple[Operand, int]] = []
    for name, zero_point in zip(node.inputs, (op.a_zero_point, op.b_zero_point), strict=True):
        operand = operand_of(node, name, graph)
        if isinstance(operand, HostReason):
            return operand
        found.append((operand, zero_point))
    (factor, factor_zero), (other, zero_point) = sorted(
        found, key=lambda one: _cost_as_factor(*one)
    )
    name, result = node.name, node.outputs[0]
    source = widened(other, output, f"{name}#wide", f"{result}#wide")
    factors = _factors(factor, factor_zero, output.channels, (name, result), config)
    product = ProductKernel(
        name=name,
        source=source.tensor,
        factors=factors.tensor,
        output=result,
        zero_point=zero_point,
        scale=_scale(op),
    )
    return needing([source, factors], product)


def _cost_as_factor(operand: Operand, zero_point: int) -> tuple[int, bool, int]:
    """Order operands by what it costs to make factors of them; of equal ones, that whose zero
    point would take more steps becomes the factor.
    """
    shape = operand.shape
    size = shape.height * shape.width * shape.channels
    return size, not operand.constants, -corrections_of(zero_point)[0]


def _scale(op: Mul) -> Requantisation:
    return Requantisation(
        bias=np.array([0]),
        multiplier=np.array([op.multiplier]),
        shift=np.array([op.shift]),
        zero_point=op.zero_point,
        low=op.low,
        high=op.high,
    )


def _factors(
    operand: Operand,
    zero_point: int,
    channels: int,
    names: tuple[str, str],
    config: AcceleratorConfig,
) -> Operand:
    """Return the tensor of factors: each pixel of a block is two, with the pairs of its lanes."""
    layout, (name, result) = config.layout_block, names
    padded = -(-channels // layout) * layout
    shape = replace(operand.shape, width=_PAIR * operand.shape.width, channels=padded)
    tensor = f"{result}#factors"
    if operand.constants:
        ((_, values),) = operand.constants
        pairs = _constant_pairs(values, operand.shape, zero_point, shape, layout)
        return Operand(
            tensor=tensor,
            shape=shape,
            temporaries=((tensor, shape),),
            constants=((tensor, pairs),),
        )
    halves = replace(operand.shape, width=_PAIR * operand.shape.width)
    kernels = [
        _half(operand, number, zero_point, (f"{name}#byte{number}", f"{result}#bytes"))
        for number in range(_PAIR)
    ]
    pairing = MatrixKernel(
        name=f"{name}#pairs",
        source=f"{result}#bytes",
        output=tensor,
        window=Window(kernel=(1, _PAIR), dilation=(1, operand.shape.width)),
        weights=_pairing(operand.shape.channels, channels, layout),
        groups=1,
        scale=unit_scale(np.zeros(_PAIR * padded, dtype=np.int64)),
        phases=(1, _PAIR),
    )
    return Operand(
        tensor=tensor,
        shape=shape,
        kernels=(*operand.kernels, *kernels, pairing),
        temporaries=(*operand.temporaries, (f"{result}#bytes", halves), (tensor, shape)),
    )


def _half(
    operand: Operand,
    number: int,
    zero_point: int,
    names: tuple[str, str],
) -> Kernel:
    """Look up one byte of each factor; the upper ones lie right of the lower ones in a row."""
    shape, (name, result) = operand.shape, names
    factors = np.arange(-128, 128) - zero_point
    return LaneKernel(
        name=name,
        sources=(LaneSource(tensor=operand.tensor),),
        output=result,
        window=Window(),
        operation=VectorOperation.SUM,
        table=_bytes(factors)[:, number],
        rows=shape.height,
        columns=shape.width,
        channels=shape.channels,
        target=(0, 0, number * shape.width),
    )


def _bytes(factors: IntArray) -> Int8Array:
    """Return the bytes of factors, the lower one first, along a further axis."""
    return factors.astype("<i2")[..., None].view(np.int8)


def _pairing(inputs: int, outputs: int, layout: int) -> IntArray:
    """Return weights that bring bytes side by side, ``[phase and output, 1, byte, input]``.

    One input channel serves all output channels.
    """
    blocks = -(-outputs // layout)
    weights = np.zeros((_PAIR, blocks * layout, 1, _PAIR, inputs), dtype=np.int8)
    for channel in range(outputs):
        block, lane = divmod(channel, layout)
        source = channel if inputs > 1 else 0
        for number in range(_PAIR):
            phase, place = divmod(_PAIR * lane + number, layout)
            weights[phase, block * layout + place, 0, number, source] = 1
    return weights.reshape(-1, 1, _PAIR, inputs)


def _constant_pairs(
    values: Int8Array, own: TensorShape, zero_point: int, shape: TensorShape, layout: int
) -> Int8Array:
    """Return the tensor of factors of a constant."""
    factors = values.astype(np.int64).reshape(own.images, own.height, own.width, own.channels)
    factors = factors - zero_point
    missing = shape.channels - own.channels
    if own.channels == 1:
        factors = np.repeat(factors, shape.channels, axis=3)
    else:
        factors = np.pad(factors, ((0, 0), (0, 0), (0, 0), (0, missing)))
    pairs = _bytes(factors).reshape(*factors.shape[:3], -1, _PAIR, layout)
    return np.ascontiguousarray(pairs.transpose(0, 1, 2, 4, 3, 5)).reshape(
        shape.images, shape.height, shape.width, shape.channels
    )
