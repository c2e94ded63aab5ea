"""Tensors that share the bytes of another one in DRAM: views, and parts of a concatenation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.compiler.graph import Node
from tilewright.compiler.lowering.fusion import KernelGroup
from tilewright.compiler.lowering.kernels import Kernel, LaneKernel, Legalised, Window
from tilewright.compiler.lowering.tensors import BlockedTensor, TensorShape
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import VectorOperation


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a tensor begins within another one that has bytes of its own."""

    root: str
    offset_bytes: int = 0


#: Of all tensors that have no bytes of their own, by name.
Places = Mapping[str, Place]


def place_of(name: str, places: Places) -> Place:
    """Return the place of a tensor, which is itself where it has bytes of its own."""
    offset = 0
    while name in places:
        offset += places[name].offset_bytes
        name = places[name].root
    return Place(root=name, offset_bytes=offset)


def view_places(nodes: Sequence[Node], kernels: Mapping[str, Legalised]) -> dict[str, Place]:
    """Return the places of views, which no kernel computes."""
    return {
        node.outputs[0]: Place(root=node.inputs[0])
        for node in nodes
        if not kernels[node.name].kernels
    }


def join_copies(
    groups: Sequence[KernelGroup],
    places: Places,
    shapes: Mapping[str, TensorShape],
    config: AcceleratorConfig,
) -> tuple[tuple[KernelGroup, ...], dict[str, Place]]:
    """Let what is only copied to whole blocks of another tensor be computed there.

    Returns the groups of kernels without the copies, and the places with those of what they copied.
    """
    made = {kernel.output for group in groups for kernel in group.legalised.kernels}
    joined = dict(places)
    result: list[KernelGroup] = []
    for group in groups:
        kept: list[Kernel] = []
        for kernel in group.legalised.kernels:
            source = _copied(kernel, shapes, config)
            whole = None if source is None else place_of(source, joined)
            if (
                whole is None
                or whole.root not in made
                or whole.root == kernel.output
                or _bytes(whole.root, shapes, config) != _bytes(source or "", shapes, config)
            ):
                kept.append(kernel)
                continue
            assert isinstance(kernel, LaneKernel), "only copies are left out"
            plane = BlockedTensor.at(0, shapes[kernel.output], config).plane_bytes
            joined[whole.root] = Place(
                root=kernel.output, offset_bytes=kernel.target[0] * plane - whole.offset_bytes
            )
        if kept:
            result.append(replace(group, legalised=replace(group.legalised, kernels=tuple(kept))))
    return tuple(result), joined


def _bytes(name: str, shapes: Mapping[str, TensorShape], config: AcceleratorConfig) -> int:
    return BlockedTensor.at(0, shapes[name], config).size_bytes


def _copied(
    kernel: Kernel, shapes: Mapping[str, TensorShape], config: AcceleratorConfig
) -> str | None:
    """Return the tensor that a kernel copies as a whole, to whole blocks of one group of images."""
    if not isinstance(kernel, LaneKernel) or len(kernel.sources) != 1:
        return None
    (source,), output = kernel.sources, shapes[kernel.output]
    shape = shapes[source.tensor]
    changes = (
        kernel.operation is not VectorOperation.SUM
        or kernel.window != Window()
        or kernel.scale is not None
        or kernel.table is not None
        or kernel.repeat != (1, 1)
        or (kernel.low, kernel.high) != (-128, 127)
    )
    whole = (
        source.block == 0
        and kernel.target[1:] == (0, 0)
        and (shape.height, shape.width) == (output.height, output.width)
        and (kernel.rows, kernel.columns, kernel.channels)
        == (shape.height, shape.width, shape.channels)
    )
    return source.tensor if whole and not changes and output.images <= config.batch else None
