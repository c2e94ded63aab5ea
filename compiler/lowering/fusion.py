"""Fusion of a residual addition into the convolution before it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.lowering.kernels import (
    Kernel,
    LaneKernel,
    Legalised,
    MatrixKernel,
    Residual,
)
from tilewright.compiler.lowering.legalise import add_scale
from tilewright.compiler.operators import Add


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelGroup:
    """Kernels that compute some nodes of the graph, in order."""

    nodes: tuple[Node, ...]
    legalised: Legalised


def fuse(
    nodes: Sequence[Node],
    kernels: Mapping[str, Legalised],
    graph: Graph,
    fits: Callable[[Legalised], bool],
) -> tuple[KernelGroup, ...]:
    """Join each addition with the last of its convolutions, where nothing else reads that.

    Only where the joined kernel still fits, as `fits` says.

    ``add(conv(x), y) -> conv_add(x, y)``, at the place of the addition.
    """
    groups = {node.name: KernelGroup(nodes=(node,), legalised=kernels[node.name]) for node in nodes}
    producers = {node.outputs[0]: node for node in nodes}
    readers = graph.consumers()
    for node in nodes:
        if not isinstance(node.op, Add):
            continue
        candidates = [
            producers[name]
            for name in node.inputs
            if name in producers and name not in graph.outputs and len(readers[name]) == 1
        ]
        *before, total = groups[node.name].legalised.kernels
        assert isinstance(total, LaneKernel), "an addition ends with the sum"
        if len(total.sources) == 1:
            continue
        summed = [source.tensor for source in total.sources]
        candidates = [
            one for one in candidates if _fusible(groups.get(one.name)) and one.outputs[0] in summed
        ]
        if not candidates or node.inputs[0] == node.inputs[1]:
            continue
        order = {one.name: position for position, one in enumerate(nodes)}
        conv = max(candidates, key=lambda one: order[one.name])
        fused = _with_residual(groups[conv.name].legalised.kernels[0], total, node.op)
        legalised = replace(groups[node.name].legalised, kernels=(*before, fused))
        if not fits(replace(legalised, kernels=(fused,))):
            continue
        del groups[conv.name]
        groups[node.name] = KernelGroup(nodes=(conv, node), legalised=legalised)
    return tuple(groups[node.name] for node in nodes if node.name in groups)


def _fusible(group: KernelGroup | None) -> bool:
    if group is None or len(group.legalised.kernels) != 1:
        return False
    kernel = group.legalised.kernels[0]
    return isinstance(kernel, MatrixKernel) and kernel.residual is None and kernel.phases == (1, 1)


def _with_residual(kernel: Kernel, total: LaneKernel, op: Add) -> MatrixKernel:
    assert isinstance(kernel, MatrixKernel), "only convolutions on the array are fused"
    a, b = (source.tensor for source in total.sources)
    own_is_a = a == kernel.output
    own, other = op.a_coefficient, op.b_coefficient
    if not own_is_a:
        own, other = other, own
    residual = Residual(
        tensor=b if own_is_a else a,
        own_coefficient=own,
        coefficient=other,
        scale=add_scale(op),
    )
    return replace(
        kernel,
        name=f"{kernel.name}+{total.name}",
        output=total.output,
        residual=residual,
    )
