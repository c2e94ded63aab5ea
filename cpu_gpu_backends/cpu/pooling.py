"""Pooling: channels in vector lanes, sums or maxima in registers."""

import numpy as np

from tilewright.compiler.evaluate_pooling import window_counts
from tilewright.compiler.graph import Node
from tilewright.compiler.operators import AveragePool2d, FloatAveragePool2d, MaxPool2d
from tilewright.compiler.tensor.build import cast
from tilewright.compiler.tensor.declare import compute, inputs_of, placeholder
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.operations import Reduction
from tilewright.compiler.tensor.operators import pooling
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.cpu_gpu_backends.cpu.builder import Activation
from tilewright.cpu_gpu_backends.cpu.context import Context
from tilewright.cpu_gpu_backends.cpu.program import REGISTER, View
from tilewright.cpu_gpu_backends.cpu.quantised import (
    INT32,
    STORED_OFFSET,
    Range,
    requantised,
    rounding_type,
    scale_factors,
    stored_element,
)

#: Largest stored value.
_LARGEST_STORED = 255
#: The stage of real means, which are rounded to the type in which the result is kept.
_MEAN = "mean"


def lower_pooling(context: Context, node: Node, output: Activation) -> None:
    """Add the kernel of a pooling."""
    image = context.activations[node.inputs[0]]
    source = placeholder(image.shape, image.dtype, "image")
    views, dtype = {"image": image.view, "out": output.view}, output.dtype
    match node.op:
        case MaxPool2d() as op:
            result = pooling.max_pool(op, source, "reduced")
            total = result
            out = compute(result.shape, lambda *at: cast(result[at], dtype), "out")
        case AveragePool2d() as op:
            total = _stored_sums(op, source)
            out = _mean(context, node.name, op, total, image.shape, views)
        case FloatAveragePool2d() as op:
            mean = pooling.float_average_pool(op, source, _MEAN)
            (total,) = _sums_of(mean)
            out = compute(mean.shape, lambda *at: cast(mean[at], dtype), "out")
        case _:
            raise AssertionError(f"{node.label} is no pooling")
    _add(context, node.name, out, total, views)


def _sums_of(result: Tensor) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in inputs_of(result) if tensor.definition is not None)


def _stored_sums(op: AveragePool2d, source: Tensor) -> Tensor:
    """Declare the sums of stored values, padding standing for the input's zero point."""
    border = op.input_zero_point + STORED_OFFSET
    return pooling.reduced_windows(op, source, Reduction.SUM, border, INT32, "sum")


def _mean(
    context: Context,
    name: str,
    op: AveragePool2d,
    total: Tensor,
    shape: tuple[int, ...],
    views: dict[str, View],
) -> Tensor:
    taps = op.kernel[0] * op.kernel[1]
    offset = taps * (op.input_zero_point + STORED_OFFSET)
    factors = _factors(op, (shape[1], shape[2]))
    dtype = rounding_type(taps * _LARGEST_STORED, factors)
    result = Range(zero_point=op.zero_point, low=op.low, high=op.high)
    view = context.builder.constant(f"{name}.factors", factors.astype(dtype.numpy))
    scales = placeholder(view.shape, dtype, "factors")
    views["factors"] = view

    def mean(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        centred = total[n, y, x, c] - offset
        return stored_element(requantised(cast(centred, INT32), scales[y, x], result, dtype))

    return compute(total.shape, mean, "out")


def _factors(op: AveragePool2d, size: tuple[int, int]) -> np.ndarray:
    """Return the scale of each output position."""
    counts = window_counts(op, size)
    factors = np.full(
        counts.shape, float(scale_factors(np.array(op.multiplier), np.array(op.shift)))
    )
    for scale in op.border:
        own = scale_factors(np.array(scale.multiplier), np.array(scale.shift))
        factors[counts == scale.count] = own
    return factors


def _add(context: Context, name: str, out: Tensor, total: Tensor, views: dict[str, View]) -> None:
    schedule = Schedule(out)
    for stage in schedule.state.names:
        if stage.endswith(".padded") or stage == _MEAN:
            schedule.compute_inline(stage)
    n, y, x, c = schedule.loops("out")
    lanes = context.target.vector_bytes // max(total.dtype.numpy.itemsize, 1)
    width = min(out.shape[3], 4 * lanes)
    while out.shape[3] % width:
        width -= 1
    c_outer, c_inner = schedule.split("out", c, width)
    if out.shape[1] * out.shape[2] == 1:
        schedule.parallel(
            "out",
            schedule.fuse("out", schedule.fuse("out", schedule.fuse("out", n, y), x), c_outer),
        )
        at = schedule.loops("out")[0]
    else:
        schedule.parallel("out", schedule.fuse("out", n, y))
        at = c_outer
    schedule.vectorize("out", c_inner)
    schedule.set_scope(total.name, REGISTER)
    schedule.compute_at(total.name, "out", at)
    *data, channel, ky, kx = schedule.loops(total.name)
    schedule.reorder(total.name, ky, kx, *data, channel)
    schedule.vectorize(total.name, channel)
    context.builder.kernel(name, lower(schedule), views)
