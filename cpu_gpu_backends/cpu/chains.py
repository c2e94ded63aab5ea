"""Chains of layers around a depthwise convolution, computed in bands of rows, in the cache.

The tensors between the layers are often larger than the cache, though the layers do little with
each number. Each thread computes its share of the bands, a band layer by layer, in scratch memory
of its own: rows that two bands need are moved to where the next one reads them. Threads wait for
each other only at the end of a chain.
"""

from dataclasses import dataclass, replace

from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.codegen.kernels import parallel_extent
from tilewright.cpu_gpu_backends.cpu.builder import NO_BORDER, Activation, Layout
from tilewright.cpu_gpu_backends.cpu.chain_plans import (
    Between,
    ChainPlan,
    convolution_of,
    kernel_rows,
)
from tilewright.cpu_gpu_backends.cpu.context import Context
from tilewright.cpu_gpu_backends.cpu.copies import add_border, copy_view, fill_view, padded
from tilewright.cpu_gpu_backends.cpu.depthwise import lower_depthwise, shared_by_rows
from tilewright.cpu_gpu_backends.cpu.grouping import Group, is_depthwise
from tilewright.cpu_gpu_backends.cpu.layouts import (
    border_fill,
    output_panels,
    read_border,
)
from tilewright.cpu_gpu_backends.cpu.matrix import lower_matrix
from tilewright.cpu_gpu_backends.cpu.matrix_schedule import positions_plan
from tilewright.cpu_gpu_backends.cpu.plans import Plan
from tilewright.cpu_gpu_backends.cpu.program import Band, Call, Chain, Kernel, View


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
        op = convolution_of(group)
        top, _, bottom, _ = op.pads
        height = (rows - 1) * op.stride[0] + kernel_rows(self._graph, group) - top - bottom
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

    def _kept_rows(self, slots: Activation, one: Between) -> list[Call]:
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
