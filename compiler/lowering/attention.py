"""Kernels for the product of two activation matrices, as attention has them.

The array takes its second operand as weights: blocks of outputs, each with the inputs that it
multiplies. The second matrix comes as ``[inputs, outputs]``, so the array first transposes it, as
the product of the identity with it, and then brings it to the order of weights.
"""

from dataclasses import replace

import numpy as np

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.lowering.broadcast import Operand, needing
from tilewright.compiler.lowering.kernels import (
    Decision,
    HostReason,
    IntArray,
    MatrixKernel,
    MatrixProductKernel,
    Requantisation,
    Window,
)
from tilewright.compiler.lowering.movement import unit_scale
from tilewright.compiler.lowering.tensors import TensorShape
from tilewright.compiler.operators import MatMul
from tilewright.isa.config import AcceleratorConfig

#: Longest sum whose products, and those with zero points, stay within 32 bits.
_LONGEST_SUM = (1 << 31) // (255 * 255 + 128 * 128)


def lower_matrix_product(
    node: Node, op: MatMul, graph: Graph, config: AcceleratorConfig
) -> Decision:
    """Return the kernels: those that bring the second matrix to its order, and the product."""
    if config.batch > 1:
        return HostReason(text=f"weights are the same for all {config.batch} images of a batch")
    operands: list[Operand] = []
    for tensor in node.inputs:
        operand = _stack(node, tensor, graph)
        if isinstance(operand, HostReason):
            return operand
        operands.append(operand)
    a, b = operands
    inner = a.shape.channels
    if inner > _LONGEST_SUM:
        return HostReason(text=f"sums of {inner} products, more than {_LONGEST_SUM}")
    name, result = node.name, node.outputs[0]
    tiles = _weights(_transposed(b, name, result, config), f"{name}#weights", result, config)
    product = MatrixProductKernel(
        name=name,
        source=a.tensor,
        weights=tiles.tensor,
        output=result,
        source_zero_point=op.a_zero_point,
        weights_zero_point=op.b_zero_point,
        scale=Requantisation(
            bias=np.array([inner * op.a_zero_point * op.b_zero_point]),
            multiplier=np.array([op.multiplier]),
            shift=np.array([op.shift]),
            zero_point=op.zero_point,
            low=op.low,
            high=op.high,
        ),
    )
    return needing([a, tiles], product)


def _stack(node: Node, tensor: str, graph: Graph) -> Operand | HostReason:
    """Return an operand as a stack of matrices, images of rows of them."""
    result = graph.tensors[node.outputs[0]].shape
    own = graph.tensors[tensor].shape
    if len(result) not in (3, 4):
        return HostReason(text=f"a matrix product of {len(result)} axes, not 3 or 4")
    aligned = (1,) * (len(result) - len(own)) + own
    shape = TensorShape.of(aligned)
    if tensor in graph.constants:
        name = f"{node.outputs[0]}#{tensor}"
        values = np.asarray(graph.constants[tensor], dtype=np.int8).reshape(aligned)
        return Operand(
            tensor=name, shape=shape, temporaries=((name, shape),), constants=((name, values),)
        )
    if TensorShape.of(own) != shape:
        return HostReason(text=f"the first axis of {list(own)} is not that of {list(result)}")
    return Operand(tensor=tensor, shape=shape)


def _transposed(operand: Operand, name: str, result: str, config: AcceleratorConfig) -> Operand:
    """Return the transposed matrices: the identity times weights whose outputs are their rows.

    Of the identity only the blocks on its diagonal are multiplied.
    """
    tiles = _weights(operand, f"{name}#rows", f"{result}#rows", config)
    size = config.layout_block
    identity = f"{result}#identity"
    unit = TensorShape(images=1, height=1, width=size, channels=size)
    shape = replace(operand.shape, width=operand.shape.channels, channels=operand.shape.width)
    tensor = f"{result}#transposed"
    product = MatrixProductKernel(
        name=f"{name}#transposed",
        source=identity,
        weights=tiles.tensor,
        output=tensor,
        diagonal=True,
        source_zero_point=0,
        weights_zero_point=0,
        scale=unit_scale(np.zeros(1, dtype=np.int64)),
    )
    return Operand(
        tensor=tensor,
        shape=shape,
        kernels=(*tiles.kernels, product),
        temporaries=(*tiles.temporaries, (identity, unit), (tensor, shape)),
        constants=(*tiles.constants, (identity, np.eye(size, dtype=np.int8)[None, None])),
    )


def _weights(operand: Operand, name: str, result: str, config: AcceleratorConfig) -> Operand:
    """Return a matrix ``[outputs, inputs]`` in the order of weights, with zeros around it.

    Pixel c of block ``parts * i + p`` holds rows ``parts * c`` and on, in each the channels of part
    p of layout block i: so block after block of rows, as many as the array has outputs, lies in
    one piece for each part of the channels.
    """
    layout, parts = config.layout_block, config.layout_block // config.block_in
    shape = operand.shape
    blocks = -(-shape.channels // layout)
    rows = -(-shape.width // layout) * layout
    tiles = replace(shape, width=rows // parts, channels=blocks * parts * layout)
    kernel = MatrixKernel(
        name=name,
        source=operand.tensor,
        output=f"{result}#weights",
        window=Window(kernel=(1, parts), stride=(1, parts)),
        weights=_arrangement(shape.channels, blocks, config),
        groups=1,
        scale=unit_scale(np.zeros(tiles.channels, dtype=np.int64)),
    )
    return replace(
        operand,
        tensor=kernel.output,
        shape=tiles,
        kernels=(*operand.kernels, kernel),
        temporaries=(*operand.temporaries, (kernel.output, tiles)),
    )


def _arrangement(channels: int, blocks: int, config: AcceleratorConfig) -> IntArray:
    """Return the 0/1 weights ``[output, 1, row, input]`` of that order."""
    layout, lanes = config.layout_block, config.block_in
    parts = layout // lanes
    weights = np.zeros((blocks, parts, parts, lanes, 1, parts, channels), dtype=np.int8)
    for channel in range(channels):
        block, place = divmod(channel, layout)
        part, lane = divmod(place, lanes)
        for row in range(parts):
            weights[block, part, row, lane, 0, row, channel] = 1
    return weights.reshape(-1, 1, parts, channels)
