"""Products of two quantised activations: the matrix kernel, their zero points taken off the sums.

With ``a`` and ``b`` as stored, and ``p`` and ``q`` what is stored for 0,
``sum((a - p) * (b - q)) = sum(a * b) - p * sum(b) - q * sum(a) + depth * p * q``. The sums of the
columns of ``b`` and of the rows of ``a`` are kernels of their own. Where an instruction adds up
four products of unsigned and signed bytes, ``b`` is brought into the panels that it reads.
"""

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from tilewright.compiler.operators import MatMul
from tilewright.compiler.tensor.build import cast, reduce_sum, select
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.cpu_gpu_backends.codegen.dot_products import DotProducts
from tilewright.cpu_gpu_backends.cpu.arrangement import arrange
from tilewright.cpu_gpu_backends.cpu.builder import Activation
from tilewright.cpu_gpu_backends.cpu.context import Context
from tilewright.cpu_gpu_backends.cpu.convolution import matrix_nest
from tilewright.cpu_gpu_backends.cpu.grouping import Group
from tilewright.cpu_gpu_backends.cpu.layouts import matrix_plan, output_panels
from tilewright.cpu_gpu_backends.cpu.products import joined_operand, product_window
from tilewright.cpu_gpu_backends.cpu.program import Home, View, whole_view
from tilewright.cpu_gpu_backends.cpu.quantised import (
    INT32,
    STORED_OFFSET,
    Range,
    requantised,
    rounding_type,
    scale_factors,
)
from tilewright.cpu_gpu_backends.cpu.sums import dots_of
from tilewright.cpu_gpu_backends.cpu.tails import TailInputs, apply_tail, as_element
from tilewright.cpu_gpu_backends.cpu.tiles import Panels

_INT8, _UINT8 = ScalarType.INT8, ScalarType.UINT8
_LARGEST_STORED, _BYTE_BITS = 255, 8
_FOUR = DotProducts.BYTES.depth


@dataclass(frozen=True, slots=True, kw_only=True)
class _Factors:
    """The operands of a product, as ``[batch, rows, depth]`` and ``[batch, depth, columns]``."""

    a: View
    b: View
    panels: Panels

    @property
    def depth(self) -> int:
        """Products in a sum."""
        return self.a.shape[2]


def lower_byte_product(context: Context, group: Group, output: Activation) -> None:
    """Add the kernels of a product of int8 tensors and its tail; leading axes are alike."""
    left, right = group.first.inputs
    *leading, rows, depth = context.graph.tensors[left].shape
    batch, columns = prod(leading), context.graph.tensors[right].shape[-1]
    factors = _Factors(
        a=joined_operand(context, left, (batch, rows, depth)),
        b=joined_operand(context, right, (batch, depth, columns)),
        panels=output_panels(context.graph, group, context.target),
    )
    packs = dots_of(_INT8, context.target) is DotProducts.BYTES
    length = -(-depth // _FOUR) * _FOUR if packs else depth
    window = product_window(batch, rows, length, factors.a.strides[1])
    inputs = TailInputs.of(context, (*output.shape[:-1], factors.panels.channels))
    inputs.reshape((batch, 1, rows, factors.panels.channels))
    sums = _Sums(context, group, factors, inputs)
    nest = matrix_nest(
        window,
        factors.panels,
        dtype=_UINT8,
        weight_dtype=_INT8 if packs else _UINT8,
        epilogue=lambda total, at: sums.epilogue(total, at, output, signed=packs),
        target=context.target,
        weights_per_image=True,
        packed=False,
        plan=matrix_plan(group),
    )
    a_strides = (factors.a.strides[0], 0, 1)
    views = {
        **inputs.views,
        "image": replace(factors.a, shape=window.image, strides=a_strides),
        "weights": _packed(context, group, factors) if packs else _in_place(factors),
        "out": inputs.view_of(output),
    }
    context.builder.kernel(group.output, nest, views)


def _in_place(factors: _Factors) -> View:
    """Return the panels of ``b`` where it lies."""
    batch, depth, _ = factors.b.shape
    panels, (image, row, _) = factors.panels, factors.b.strides
    shape = (batch, panels.count, 1, 1, depth, panels.width)
    return replace(factors.b, shape=shape, strides=(image, panels.width, 0, 0, row, 1))


def _packed(context: Context, group: Group, factors: _Factors) -> View:
    """Add the kernel that packs ``b`` as signed bytes, four of a column side by side.

    Padded columns hold what follows in memory; nobody reads their results.
    """
    panels, depth = factors.panels, factors.depth
    batch, fours = factors.b.shape[0], -(-depth // _FOUR)
    b = placeholder((batch, depth, panels.channels), _UINT8, "b")

    def signed_bits(n: Expr, k: Expr, o: Expr) -> Expr:
        signed = cast(cast(b[n, k, o], INT32) - STORED_OFFSET, _INT8)
        return cast(cast(signed, _UINT8), INT32)

    def word(n: Expr, p: Expr, k: Expr, o: Expr) -> Expr:
        total: Expr | None = None
        for t in range(_FOUR):
            place = k * _FOUR + t
            bits = signed_bits(n, place, p * panels.width + o)
            if depth % _FOUR:
                bits = select(place < depth, bits, 0)
            part = bits << t * _BYTE_BITS
            total = part if total is None else total + part
        assert total is not None, "there are four bytes in a word"
        return total

    words = compute((batch, panels.count, fours, panels.width), word, "words")
    schedule = Schedule(words)
    _share(schedule, "words")
    name = context.builder.buffer(
        f"{group.first.name}.panels", INT32, prod(words.shape), Home.WORKSPACE
    )
    views = {"b": replace(factors.b, shape=b.shape), "words": whole_view(name, words.shape)}
    context.builder.kernel(group.output, lower(schedule), views)
    shape = (batch, panels.count, 1, 1, fours, panels.width, _FOUR)
    return whole_view(name, shape)


def _share(schedule: Schedule, stage: str) -> None:
    """Compute the last axis in lanes; threads share all others."""
    *outer, last = schedule.loops(stage)
    schedule.vectorize(stage, last)
    task = outer[0]
    for axis in outer[1:]:
        task = schedule.fuse(stage, task, axis)
    schedule.parallel(stage, task)


class _Sums:
    """The sums of rows and columns that zero points are multiplied with."""

    def __init__(
        self, context: Context, group: Group, factors: _Factors, inputs: TailInputs
    ) -> None:
        op = group.first.op
        assert isinstance(op, MatMul), f"{group.first.label} is a product of int8 tensors"
        self._context, self._group, self._factors = context, group, factors
        self._op, self._inputs = op, inputs
        self._columns = self._column_sums()
        self._rows = self._row_sums() if op.b_zero_point else None

    def epilogue(
        self, total: Expr, at: tuple[Expr, ...], output: Activation, *, signed: bool
    ) -> Expr:
        """Return the stored element of the sum of ``a``, as stored, times ``b``.

        Parameters
        ----------
        signed
            Whether that ``b`` is the int8 value; otherwise it is as stored.
        """
        n, _, y, o = at
        depth, op = self._factors.depth, self._op
        p, q = op.a_zero_point + STORED_OFFSET, op.b_zero_point
        # The sums of columns are those of stored values.
        total = total - self._columns[n, o] * p
        constant = depth * p * (q + STORED_OFFSET)
        if not signed:
            q += STORED_OFFSET
        if self._rows is not None or q:
            total = total - self._row(n, y) * q
        value = self._requantised(total + constant)
        main = self._group.first.outputs[0]
        for node in self._group.tail:
            value = apply_tail(node, main, value, self._inputs, at)
            main = node.outputs[0]
        return as_element(value, output.dtype)

    def _row(self, n: Expr, y: Expr) -> Expr:
        if self._rows is None:
            self._rows = self._row_sums()
        return self._rows[n, y]

    def _requantised(self, total: Expr) -> Expr:
        op = self._op
        factor = scale_factors(np.array(op.multiplier), np.array(op.shift))
        dtype = rounding_type(self._factors.depth * _LARGEST_STORED**2, factor)
        result = Range(zero_point=op.zero_point, low=op.low, high=op.high)
        return requantised(total, float(factor), result, dtype)

    def _column_sums(self) -> Tensor:
        batch, depth, _ = self._factors.b.shape
        columns = self._factors.panels.channels
        b = placeholder((batch, depth, columns), _UINT8, "b")
        k = reduce_axis(depth, "k")
        sums = compute(
            (batch, columns), lambda n, o: reduce_sum(cast(b[n, k.var, o], INT32), k), "columns"
        )
        return self._kept(sums, replace(self._factors.b, shape=b.shape))

    def _row_sums(self) -> Tensor:
        batch, rows, depth = self._factors.a.shape
        a = placeholder((batch, rows, depth), _UINT8, "a")
        k = reduce_axis(depth, "k")
        sums = compute(
            (batch, rows), lambda n, y: reduce_sum(cast(a[n, y, k.var], INT32), k), "rows"
        )
        return self._kept(sums, self._factors.a)

    def _kept(self, sums: Tensor, source: View) -> Tensor:
        """Add the kernel that computes sums, and return them as an operand of the product."""
        schedule = Schedule(sums)
        arrange(schedule)
        (read,) = schedule.state.inputs
        buffer = f"{self._group.first.name}.{sums.name}"
        name = self._context.builder.buffer(buffer, INT32, prod(sums.shape), Home.WORKSPACE)
        views = {read.name: source, sums.name: whole_view(name, sums.shape)}
        self._context.builder.kernel(self._group.output, lower(schedule), views)
        self._inputs.views[sums.name] = whole_view(name, sums.shape)
        return placeholder(sums.shape, INT32, sums.name)
