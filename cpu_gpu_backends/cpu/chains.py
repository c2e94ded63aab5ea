"""Chains of layers around a depthwise convolution, computed in bands of rows, in the cache.

The tensors between the layers are often larger than the cache, though the layers do little with
each number. Each thread computes its share of the bands, a band layer by layer, in scratch memory
of its own: rows that two bands need are moved to where the next one reads them. Threads wait for
each other only at the end of a chain.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import Conv2d, FloatConv2d
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.codegen.kernels import parallel_extent
from tilewright.cpu_gpu_backends.cpu.builder import NO_BORDER, Activation, Layout
from tilewright.cpu_gpu_backends.cpu.context import Context
from tilewright.cpu_gpu_backends.cpu.convolution import positions_plan
from tilewright.cpu_gpu_backends.cpu.copies import add_border, copy_view, fill_view, padded
from tilewright.cpu_gpu_backends.cpu.depthwise import lower_depthwise, shared_by_rows
from tilewright.cpu_gpu_backends.cpu.grouping import Group, is_depthwise
from tilewright.cpu_gpu_backends.cpu.layouts import (
    border_fill,
    is_matrix_kernel,
    output_panels,
    read_border,
)
from tilewright.cpu_gpu_backends.cpu.matrix import lower_matrix
from tilewright.cpu_gpu_backends.cpu.plans import Plan
from tilewright.cpu_gpu_backends.cpu.program import Band, Call, Chain, Kernel, View
from tilewright.cpu_gpu_backends.cpu.winograd_tiles import winograd_transforms

#: Scratch memory of a band: within a second-level cache, beside weights, and within any stack.
_MOST_SCRATCH_BYTES = 512 * 1024
#: Bands of an image, and what their number is a multiple of: a few threads have equal shares.
_FEWEST_BANDS, _BAND_STEP = 4, 2
#: Tensors of fewer bytes between two layers are no reason for a chain.
_FEWEST_BYTES = 384 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Between:
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
    between: tuple[_Between, ...]


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
    if not isinstance(group.first.op, Conv2d | FloatConv2d) or group.half:
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


def _operator(group: Group) -> Conv2d | FloatConv2d:
    op = group.first.op
    assert isinstance(op, Conv2d | FloatConv2d), f"{group.first.label} is a convolution"
    return op


def _kernel_rows(graph: Graph, group: Group) -> int:
    """Return the rows that a row of a group's result reads."""
    rows = graph.tensors[group.first.inputs[1]].shape[1]
    return int((rows - 1) * _operator(group).dilation[0] + 1)


def _fits_between(graph: Graph, group: Group) -> bool:
    """Whether a group reads single rows, or images with the columns of its padding beside them."""
    op = _operator(group)
    _, left, _, right = op.pads
    if read_border(graph, group, op) != op.pads:
        return False
    return _kernel_rows(graph, group) == 1 or left + right > 0


def _row_bytes(graph: Graph, between: _Between) -> int:
    _, left, _, right = between.layout.border
    tensor = graph.tensors[between.name]
    columns = left + tensor.shape[2] + right
    return columns * between.layout.pitch * np.dtype(tensor.dtype.numpy).itemsize


def _between(
    graph: Graph, members: tuple[Group, ...], layouts: Mapping[str, Layout], rows: int
) -> tuple[_Between, ...]:
    slots, first, step = rows, 0, rows
    found = []
    for member, reader in zip(members[-2::-1], members[:0:-1], strict=True):
        op = _operator(reader)
        top, left, _, right = op.pads
        slots = (slots - 1) * op.stride[0] + _kernel_rows(graph, reader)
        first, step = first * op.stride[0] - top, step * op.stride[0]
        layout = Layout(
            pitch=layouts[member.output].pitch, border=(0, left, 0, right), fill=border_fill(op)
        )
        one = _Between(name=member.output, layout=layout, slots=slots, first=first, step=step)
        found.append(one)
    return tuple(reversed(found))


def lower_chain(context: Context, plan: ChainPlan, layout: Layout, buffer: str | None) -> None:
    """Add a chain."""
    result = plan.groups[-1].output
    output = context.allocate(result, layout, buffer)
    add_border(context, result, output)
    context.builder.chain(_ChainLowering(context, plan, output).chain())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shift:
    """How far from one band to the next, and from one image to the next, a buffer is read."""

    band: int
    image: int


class _ChainLowering:
    """Kernels for the first band of the first image, and how they move over all."""

    def __init__(self, context: Context, plan: ChainPlan, output: Activation) -> None:
        self._plan, self._graph, self._output = plan, context.graph, output
        self._whole = context.activations
        #: Where the kernels of the first band find what they read.
        self._context = replace(context, activations=dict(context.activations))
        self._shifts: dict[str, _Shift] = {}
        self._scratch = [
            context.scratch_rows(one.name, one.slots, one.layout) for one in plan.between
        ]

    def chain(self) -> Chain:
        """Return the chain."""
        kernels = [self._kernel(number) for number in range(len(self._plan.groups))]
        batch, height = self._output.shape[:2]
        bands = [
            self._band(kernels, image, number)
            for image in range(batch)
            for number in range(height // self._plan.rows)
        ]
        return Chain(name=self._plan.groups[-1].output, bands=tuple(bands))

    def _kernel(self, number: int) -> Kernel:
        """Return the kernel of a group, for all slots of its result."""
        group = self._plan.groups[number]
        last = number == len(self._plan.between)
        rows = self._plan.rows if last else self._plan.between[number].slots
        output = _rows_of(self._output, 0, rows) if last else self._scratch[number]
        if last:
            self._move(self._output, self._plan.rows)
            self._read_tail_operands(group, rows)
        source = group.first.inputs[0]
        self._context.activations[source] = self._source(number, rows)

        if not last and self._plan.between[number].kept:
            group = replace(group, plan=self._rows_plan(group, output))

        def add() -> None:
            if is_depthwise(self._graph, group.first):
                lower_depthwise(self._context, group, output)
            else:
                lower_matrix(self._context, group, output)

        (kernel,) = self._context.builder.collect(add)
        return kernel

    def _rows_plan(self, group: Group, output: Activation) -> Plan:
        """Return the plan of a kernel of which some rows can be computed apart from others."""
        target = self._context.target
        if is_depthwise(self._graph, group.first):
            return shared_by_rows(output.shape[3], target)
        panel = output_panels(self._graph, group, target).width
        return positions_plan(panel, output.shape[2], target)

    def _move(self, activation: Activation, rows: int) -> None:
        image, row = activation.view.strides[:2]
        self._shifts[activation.view.buffer] = _Shift(band=rows * row, image=image)

    def _read_tail_operands(self, group: Group, rows: int) -> None:
        for name in group.inputs:
            activation = self._whole.get(name)
            if activation is not None and activation.shape == self._output.shape:
                self._move(activation, rows)
                self._context.activations[name] = _rows_of(activation, 0, rows)

    def _source(self, number: int, rows: int) -> Activation:
        """Return the image that `rows` rows of a group's result are computed from."""
        group = self._plan.groups[number]
        op = _operator(group)
        top, _, bottom, _ = op.pads
        height = (rows - 1) * op.stride[0] + _kernel_rows(self._graph, group) - top - bottom
        if number:
            slots = self._scratch[number - 1]
            return replace(_rows_of(slots, top, height), border=op.pads)
        pads = read_border(self._graph, group, op)
        dtype = ScalarType.BFLOAT16 if group.half else None
        whole = padded(self._context, group.first.inputs[0], pads, border_fill(op), dtype)
        one = self._plan.between[0]
        self._move(whole, one.step * op.stride[0])
        border = pads if any(pads) else NO_BORDER
        return replace(_rows_of(whole, one.first * op.stride[0], height), border=border)

    def _band(self, kernels: list[Kernel], image: int, number: int) -> Band:
        alone: list[Call] = []
        following: list[Call] = []
        for one, slots, kernel in zip(self._plan.between, self._scratch, kernels, strict=False):
            first = one.first + number * one.step
            height = self._graph.tensors[one.name].shape[1]
            begin, end = max(0, -first), min(one.slots, height - first)
            at = self._at(kernel, image, number)
            alone += self._columns(slots)
            alone += self._border_rows(slots, 0, begin) + self._border_rows(slots, end, one.slots)
            alone.append(_rows_call(at, one.slots, begin, end))
            following += self._kept_rows(slots, one)
            following += self._border_rows(slots, max(end, one.kept), one.slots)
            following.append(_rows_call(at, one.slots, max(begin, one.kept), end))
        result = _whole_call(self._at(kernels[-1], image, number))
        return Band(
            alone=(*alone, result),
            following=(*following, result) if number else (*alone, result),
        )

    def _at(self, kernel: Kernel, image: int, band: int) -> Kernel:
        """Return a kernel of the first band of the first image at its place in another one."""
        still = _Shift(band=0, image=0)

        def moved(view: View) -> View:
            shift = self._shifts.get(view.buffer, still)
            return replace(view, offset=view.offset + band * shift.band + image * shift.image)

        return replace(kernel, views=tuple(map(moved, kernel.views)))

    def _columns(self, slots: Activation) -> list[Call]:
        """Return what fills the columns beside the slots."""
        _, left, _, right = slots.border
        _, rows, width, _ = slots.shape
        start = slots.view.offset
        return [
            *self._filled(slots, start - left * slots.pitch, rows, left * slots.pitch),
            *self._filled(slots, start + width * slots.pitch, rows, right * slots.pitch),
        ]

    def _border_rows(self, slots: Activation, begin: int, end: int) -> list[Call]:
        """Return what fills slots that lie above or below the image."""
        row, width = slots.view.strides[1], slots.shape[2]
        start = slots.view.offset + begin * row
        return self._filled(slots, start, end - begin, width * slots.pitch)

    def _filled(self, slots: Activation, offset: int, rows: int, length: int) -> list[Call]:
        if rows <= 0 or length <= 0:
            return []
        view = View(
            buffer=slots.view.buffer,
            offset=offset,
            shape=(rows, length),
            strides=(slots.view.strides[1], 1),
        )
        layer = self._plan.groups[-1].output
        kernels = self._context.builder.collect(
            lambda: fill_view(self._context, layer, view, slots)
        )
        return [_whole_call(kernel) for kernel in kernels]

    def _kept_rows(self, slots: Activation, one: _Between) -> list[Call]:
        """Return what moves the rows that two bands need to the first slots."""
        if not one.kept:
            return []
        row, length = slots.view.strides[1], slots.shape[2] * slots.pitch
        place = View(
            buffer=slots.view.buffer,
            offset=slots.view.offset,
            shape=(one.kept, length),
            strides=(row, 1),
        )
        source = replace(place, offset=place.offset + one.step * row)
        layer = self._plan.groups[-1].output
        kernels = self._context.builder.collect(
            lambda: copy_view(self._context, layer, slots.dtype, source, place)
        )
        return [_whole_call(kernel) for kernel in kernels]


def _rows_of(activation: Activation, first: int, count: int) -> Activation:
    """Return rows of the first image of a tensor."""
    view = activation.view
    return replace(
        activation,
        view=replace(
            view,
            offset=view.offset + first * view.strides[1],
            shape=(1, count, *view.shape[2:]),
        ),
    )


def _whole_call(kernel: Kernel) -> Call:
    return Call(kernel=kernel, begin=0, end=parallel_extent(kernel.nest))


def _rows_call(kernel: Kernel, rows: int, begin: int, end: int) -> Call:
    """Return the call that computes some of the rows of a kernel's result."""
    shares = parallel_extent(kernel.nest)
    if (begin, end) == (0, rows):
        return Call(kernel=kernel, begin=0, end=shares)
    assert shares % rows == 0, f"threads share the rows of {kernel.name!r}"
    return Call(kernel=kernel, begin=begin * shares // rows, end=end * shares // rows)
