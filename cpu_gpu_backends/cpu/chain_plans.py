"""Which layers form a chain, and the rows of each tensor between them that a band needs."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import Conv2d, FloatConv2d
from tilewright.cpu_gpu_backends.cpu.builder import Layout
from tilewright.cpu_gpu_backends.cpu.grouping import Group, is_depthwise
from tilewright.cpu_gpu_backends.cpu.layouts import border_fill, is_matrix_kernel, read_border
from tilewright.cpu_gpu_backends.cpu.winograd_tiles import winograd_transforms

#: Scratch memory of a band: within a second-level cache, beside weights, and within any stack.
_MOST_SCRATCH_BYTES = 512 * 1024
#: Bands of an image, and what their number is a multiple of: a few threads have equal shares.
_FEWEST_BANDS, _BAND_STEP = 4, 2
#: Tensors of fewer bytes between two layers are no reason for a chain.
_FEWEST_BYTES = 384 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """The rows of a tensor between two layers of a chain that a band needs.

    Row ``first + band * step`` lies in slot 0. `first` is negative where a border comes before the
    image. The layout has the columns beside an image, no rows.
    """

    name: str
    layout: Layout
    slots: int
    first: int
    step: int

    @property
    def kept(self) -> int:
        """Rows of a band that the next one needs, too."""
        return max(0, self.slots - self.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainPlan:
    """Groups that are computed together, and in which bands.

    `rows` are those of the result in a band; `between` the tensors between the groups, in order.
    """

    groups: tuple[Group, ...]
    rows: int
    between: tuple[Between, ...]


def plan_chains(
    graph: Graph, groups: tuple[Group, ...], layouts: Mapping[str, Layout]
) -> dict[str, ChainPlan]:
    """Return the chains by the name of the tensor that each computes; no group is in two."""
    following = _following(graph, groups)
    plans: dict[str, ChainPlan] = {}
    taken: set[str] = set()
    for group in groups:
        if group.output in taken:
            continue
        members = _members(graph, group, following)
        plan = _plan(graph, members, layouts)
        if plan is not None:
            plans[members[-1].output] = plan
            taken |= {member.output for member in members}
    return plans


def _following(graph: Graph, groups: tuple[Group, ...]) -> dict[str, Group]:
    """Return the group that is the only one to read a group's result, and reads it as an image."""
    consumers = graph.consumers()
    by_first = {group.first.name: group for group in groups if _has_bands(graph, group)}
    found = {}
    for group in groups:
        if not _has_bands(graph, group) or group.output in graph.outputs:
            continue
        readers = consumers[group.output]
        if len(readers) != 1 or readers[0].name not in by_first:
            continue
        reader = by_first[readers[0].name]
        others = [name for node in reader.nodes for name in node.inputs]
        if reader.first.inputs[0] == group.output and others.count(group.output) == 1:
            found[group.output] = reader
    return found


def _has_bands(graph: Graph, group: Group) -> bool:
    """Whether rows of a group's result can be computed apart from others."""
    if not isinstance(group.first.op, Conv2d | FloatConv2d):
        return False
    if winograd_transforms(graph, group) is not None:
        return False
    return is_depthwise(graph, group.first) or is_matrix_kernel(graph, group)


def _members(graph: Graph, group: Group, following: Mapping[str, Group]) -> tuple[Group, ...]:
    """Return a chain from `group` on: up to the product behind a depthwise convolution."""
    members = [group]
    while (reader := following.get(members[-1].output)) is not None:
        if len(members) > 1 and is_depthwise(graph, members[-2].first):
            break
        if _reads_images_in_tail(graph, members[-1]):
            break
        members.append(reader)
    return tuple(members)


def _reads_images_in_tail(graph: Graph, group: Group) -> bool:
    return any(
        name not in graph.constants for name in group.inputs if name != group.first.inputs[0]
    )


def _plan(
    graph: Graph, members: tuple[Group, ...], layouts: Mapping[str, Layout]
) -> ChainPlan | None:
    """Return the bands of a chain, as high as scratch memory allows; None if it is no use."""
    if len(members) == 1 or not any(is_depthwise(graph, member.first) for member in members):
        return None
    if any(not _fits_between(graph, member) for member in members[1:]):
        return None
    heights = [graph.tensors[member.output].shape[1] for member in members]
    for rows in range(heights[-1] // _FEWEST_BANDS, 0, -1):
        between = _between(graph, members, layouts, rows)
        sizes = [_row_bytes(graph, one) for one in between]
        used = sum(size * one.slots for size, one in zip(sizes, between, strict=True))
        overlapping = any(one.kept > one.step for one in between)
        shared = heights[-1] % (rows * _BAND_STEP) == 0
        if shared and used <= _MOST_SCRATCH_BYTES and not overlapping:
            largest = max(size * height for size, height in zip(sizes, heights, strict=False))
            plan = ChainPlan(groups=members, rows=rows, between=between)
            return plan if largest >= _FEWEST_BYTES else None
    return None


def convolution_of(group: Group) -> Conv2d | FloatConv2d:
    """Return the operator of a group's convolution."""
    op = group.first.op
    assert isinstance(op, Conv2d | FloatConv2d), f"{group.first.label} is a convolution"
    return op


def kernel_rows(graph: Graph, group: Group) -> int:
    """Return the rows that a row of a group's result reads."""
    rows = graph.tensors[group.first.inputs[1]].shape[1]
    return int((rows - 1) * convolution_of(group).dilation[0] + 1)


def _fits_between(graph: Graph, group: Group) -> bool:
    """Whether a group reads single rows, or images with the columns of its padding beside them."""
    op = convolution_of(group)
    _, left, _, right = op.pads
    if read_border(graph, group, op) != op.pads:
        return False
    return kernel_rows(graph, group) == 1 or left + right > 0


def _row_bytes(graph: Graph, between: Between) -> int:
    _, left, _, right = between.layout.border
    tensor = graph.tensors[between.name]
    columns = left + tensor.shape[2] + right
    return columns * between.layout.pitch * np.dtype(tensor.dtype.numpy).itemsize


def _between(
    graph: Graph, members: tuple[Group, ...], layouts: Mapping[str, Layout], rows: int
) -> tuple[Between, ...]:
    slots, first, step = rows, 0, rows
    found = []
    for member, reader in zip(members[-2::-1], members[:0:-1], strict=True):
        op = convolution_of(reader)
        top, left, _, right = op.pads
        slots = (slots - 1) * op.stride[0] + kernel_rows(graph, reader)
        first, step = first * op.stride[0] - top, step * op.stride[0]
        layout = Layout(
            pitch=layouts[member.output].pitch, border=(0, left, 0, right), fill=border_fill(op)
        )
        one = Between(name=member.output, layout=layout, slots=slots, first=first, step=step)
        found.append(one)
    return tuple(reversed(found))
