"""Operands whose shapes broadcast: what makes rows, columns and channels as many as those of a
result, and constants as tensors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.lowering.kernels import (
    Decision,
    HostReason,
    Kernel,
    LaneSource,
    Legalised,
    Window,
)
from tilewright.compiler.lowering.movement import copy_kernel, selection_kernel
from tilewright.compiler.lowering.tensors import Int8Array, TensorShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A tensor that a kernel may read, and what has to be there for that."""

    tensor: str
    shape: TensorShape
    kernels: tuple[Kernel, ...] = ()
    temporaries: tuple[tuple[str, TensorShape], ...] = ()
    constants: tuple[tuple[str, Int8Array], ...] = ()


def operand_of(node: Node, tensor: str, graph: Graph) -> Operand | HostReason:
    """Return an operand of a node with its axes aligned to those of the node's result.

    Axes that are missing in front are 1; images must be as many as those of the result.
    """
    result = graph.tensors[node.outputs[0]].shape
    own = graph.tensors[tensor].shape
    aligned = (1,) * (len(result) - len(own)) + own
    middle, whole = aligned[1:-1], result[1:-1]
    if len(result) != 4 and middle not in (whole, (1,) * len(whole)):
        return HostReason(text=f"{list(own)} repeats some axes of {list(result)} between others")
    if tensor in graph.constants:
        name = f"{node.outputs[0]}#{tensor}"
        values = np.asarray(graph.constants[tensor], dtype=np.int8)
        values = np.broadcast_to(values, (result[0], *aligned[1:]))
        shape = TensorShape.of(values.shape)
        return Operand(
            tensor=name, shape=shape, temporaries=((name, shape),), constants=((name, values),)
        )
    if aligned[0] != result[0]:
        return HostReason(text=f"{list(own)} is the same for all images of {list(result)}")
    shape = TensorShape.of(aligned)
    if TensorShape.of(own) != shape:
        return HostReason(text=f"the first axis of {list(own)} is not that of {list(result)}")
    return Operand(tensor=tensor, shape=shape)


def widened(operand: Operand, output: TensorShape, name: str, result: str) -> Operand:
    """Repeat channels, then rows and columns, until an operand has the shape of `output`.

    `name` is that of the last kernel, `result` that of the tensor that it makes.
    """
    if operand.shape == output:
        return operand
    if operand.constants:
        return _widened_constant(operand, output)
    kernels = list(operand.kernels)
    temporaries = list(operand.temporaries)
    tensor, shape = operand.tensor, operand.shape
    spread = replace(shape, channels=output.channels)
    if shape != spread:
        target = result if spread == output else f"{result}#channels"
        kernels.append(
            selection_kernel(
                name if spread == output else f"{name}#channels",
                tensor,
                target,
                Window(),
                inputs=1,
                outputs=output.channels,
                chosen=lambda _: 0,
            )
        )
        temporaries.append((target, spread))
        tensor = target
    if spread != output:
        stride = (
            int(spread.height == output.height),
            int(spread.width == output.width),
        )
        kernels.append(
            copy_kernel(
                name,
                LaneSource(tensor=tensor),
                result,
                size=(output.height, output.width, output.channels),
                window=Window(stride=stride),
            )
        )
        temporaries.append((result, output))
    return Operand(
        tensor=result,
        shape=output,
        kernels=tuple(kernels),
        temporaries=tuple(temporaries),
        constants=operand.constants,
    )


def _widened_constant(operand: Operand, output: TensorShape) -> Operand:
    ((name, values),) = operand.constants
    own, whole = (
        (shape.images, shape.height, shape.width, shape.channels)
        for shape in (operand.shape, output)
    )
    repeated = np.broadcast_to(values.reshape(own), whole)
    return replace(
        operand,
        shape=output,
        temporaries=((name, output),),
        constants=((name, repeated),),
    )


def lower_expand(node: Node, graph: Graph) -> Decision:
    """Repeat what a tensor holds; a copy where it has the shape of the result already."""
    output = TensorShape.of(graph.tensors[node.outputs[0]].shape)
    operand = operand_of(node, node.inputs[0], graph)
    if isinstance(operand, HostReason):
        return operand
    wide = widened(operand, output, node.name, node.outputs[0])
    if wide is operand:
        size = (output.height, output.width, output.channels)
        source = LaneSource(tensor=operand.tensor)
        wide = replace(
            operand, kernels=(copy_kernel(node.name, source, node.outputs[0], size=size),)
        )
    own = tuple(entry for entry in wide.temporaries if entry[0] != node.outputs[0])
    return needing([replace(wide, temporaries=own)])


def needing(operands: Sequence[Operand], *kernels: Kernel) -> Legalised:
    """Return kernels behind all that their operands need."""
    return Legalised(
        kernels=(*(kernel for operand in operands for kernel in operand.kernels), *kernels),
        temporaries=tuple(
            dict.fromkeys(one for operand in operands for one in operand.temporaries)
        ),
        constants=tuple(
            {
                name: (name, values) for operand in operands for name, values in operand.constants
            }.values()
        ),
    )
