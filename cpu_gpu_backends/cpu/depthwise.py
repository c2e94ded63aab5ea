"""Depthwise convolutions: channels in vector lanes, a row of outputs in registers."""

import numpy as np

from tilewright.compiler.operators import Conv2d, FloatConv2d
from tilewright.compiler.tensor.build import cast, reduce_sum
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Expr
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.cpu_gpu_backends.codegen.peeling import peel_uneven_tiles
from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
from tilewright.cpu_gpu_backends.cpu.builder import Activation
from tilewright.cpu_gpu_backends.cpu.context import Context
from tilewright.cpu_gpu_backends.cpu.copies import padded
from tilewright.cpu_gpu_backends.cpu.grouping import Group
from tilewright.cpu_gpu_backends.cpu.layouts import border_fill
from tilewright.cpu_gpu_backends.cpu.matrix import tail_of_sums
from tilewright.cpu_gpu_backends.cpu.plans import DepthwisePlan, Outside
from tilewright.cpu_gpu_backends.cpu.program import REGISTER, View
from tilewright.cpu_gpu_backends.cpu.quantised import EXACT_FLOAT32
from tilewright.cpu_gpu_backends.cpu.tails import TailInputs
from tilewright.cpu_gpu_backends.cpu.tiles import lanes

#: Outputs of a row that are computed together; each loads as many columns once, not three times.
_COLUMNS, _FEWEST_COLUMNS = 7, 4
#: Vectors of channels that are computed together, the preferred number first: lines are read side
#: by side, and sums enough are in flight to hide the latency of an addition.
_VECTORS = (2, 3, 1)
#: The part of the registers that hold sums; others hold weights and what is read.
_SUM_REGISTERS = 7 / 16
#: Columns of which the rows that a window reads stay in the nearest cache, where often only some of
#: its sets hold one group of channels.
_BLOCK_COLUMNS = 28
#: Images of fewer rows are shared among threads by channels.
_FEWEST_SHARED_ROWS = 15
_LARGEST_STORED = 255


def lower_depthwise(context: Context, group: Group, output: Activation) -> None:
    """Add the kernel of a group whose first node is a depthwise convolution."""
    node = group.first
    op = node.op
    assert isinstance(op, Conv2d | FloatConv2d), f"{node.label} is a convolution"
    image = padded(context, node.inputs[0], op.pads, border_fill(op))
    taps = context.graph.constants[node.inputs[1]][..., 0].transpose(1, 2, 0)
    exact = int(np.abs(taps).sum(axis=(0, 1)).max()) * _LARGEST_STORED <= EXACT_FLOAT32
    dtype = ScalarType.FLOAT32 if image.dtype.is_float or exact else ScalarType.INT32
    inputs = TailInputs.of(context, output.shape)
    view = context.builder.constant(f"{node.name}.weights", taps.astype(dtype.numpy))
    weights = placeholder(view.shape, dtype, "weights")
    rows, columns, _ = taps.shape
    source_view = _padded_view(image, op)
    source = placeholder(source_view.shape, image.dtype, "image")
    ky, kx = reduce_axis(rows, "ky"), reduce_axis(columns, "kx")

    def product(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        row = y * op.stride[0] + ky.var * op.dilation[0]
        column = x * op.stride[1] + kx.var * op.dilation[1]
        element = cast(source[n, row, column, c], dtype)
        return reduce_sum(element * weights[ky.var, kx.var, c], ky, kx)

    total = compute(output.shape, product, "sum")
    epilogue = tail_of_sums(context, group, inputs, output)
    out = compute(output.shape, lambda n, y, x, c: epilogue(total[n, y, x, c], (n, y, x, c)), "out")
    schedule = Schedule(out)
    plan = group.plan if isinstance(group.plan, DepthwisePlan) else None
    _arrange(schedule, output.shape, plan or _usual_plan(output.shape, context.target))
    views = {**inputs.views, "image": source_view, "weights": view, "out": output.view}
    context.builder.kernel(group.output, peel_uneven_tiles(lower(schedule)), views)


def _padded_view(image: Activation, op: Conv2d | FloatConv2d) -> View:
    """Return the image with the border that the operator reads."""
    top, left, bottom, right = op.pads
    batch, height, width, channels = image.shape
    _, row, column, _ = image.view.strides
    return View(
        buffer=image.view.buffer,
        offset=image.view.offset - top * row - left * column,
        shape=(batch, height + top + bottom, width + left + right, channels),
        strides=image.view.strides,
    )


def shared_by_rows(channels: int, target: CpuTarget) -> DepthwisePlan:
    """Return the plan of a kernel that threads share by rows of its result."""
    group = channel_group(channels, target)
    return DepthwisePlan(columns=_columns(group, target), channels=group, outside=Outside.POSITIONS)


def _usual_plan(shape: tuple[int, ...], target: CpuTarget) -> DepthwisePlan:
    _, height, _, channels = shape
    group = channel_group(channels, target)
    by_channels = height < _FEWEST_SHARED_ROWS and channels > group
    return DepthwisePlan(
        columns=_columns(group, target),
        channels=group,
        outside=Outside.PANELS if by_channels else Outside.POSITIONS,
    )


def _arrange(s: Schedule, shape: tuple[int, ...], plan: DepthwisePlan) -> None:
    width = shape[2]
    s.split("out", "x", -(-width // -(-width // plan.columns)))
    s.split("out", "c", plan.channels)
    if plan.outside is Outside.PANELS:
        blocks = -(-width // _BLOCK_COLUMNS)
        s.split("out", "x.outer", parts=blocks)
        tile = ("x.outer.inner", "x.inner", "c.inner")
        s.reorder("out", "n", "c.outer", "x.outer.outer", "y", *tile)
        s.parallel("out", s.fuse("out", "n", "c.outer"))
    else:
        s.reorder("out", "n", "y", "c.outer", "x.outer", "x.inner", "c.inner")
        s.parallel("out", s.fuse("out", "n", "y"))
    s.compute_at("sum", "out", s.loops("out")[-3])
    s.set_scope("sum", REGISTER)
    s.reorder("sum", "ky", "kx", "n", "y", "x", "c")
    for loop in ("ky", "kx", "x"):
        s.unroll("sum", loop)
    s.unroll("out", "x.inner")
    s.vectorize("sum", "c")
    s.vectorize("out", "c.inner")


def channel_group(channels: int, target: CpuTarget) -> int:
    """Return how many channels are computed together: a divisor, whole vectors if possible."""
    step = lanes(target)
    for vectors in _VECTORS:
        width = vectors * step
        if channels % width == 0 and _columns(width, target) >= _FEWEST_COLUMNS:
            return width
    return max(width for width in range(1, 2 * step + 1) if channels % width == 0)


def _columns(group: int, target: CpuTarget) -> int:
    """Return the most columns whose sums for a group of channels fit into the registers."""
    vectors = -(-group // lanes(target))
    return max(1, min(_COLUMNS, int(target.vector_registers * _SUM_REGISTERS) // vectors))
