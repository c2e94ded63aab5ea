"""A convolution whose results of several phases interleave: its tensor expression and schedule.

A transposed convolution of stride s is one: its results at positions that are equal modulo s are
those of an ordinary convolution, with the taps that meet an element there.
"""

from dataclasses import dataclass

from tilewright.compiler.lowering.convolution import product_axes
from tilewright.compiler.lowering.declarations import (
    Plane,
    activations,
    bordered,
    position,
    scaled,
    tile_output,
)
from tilewright.compiler.lowering.kernels import Window
from tilewright.compiler.lowering.tiling import MatrixTiling
from tilewright.compiler.tensor.accelerator import (
    INT8,
    INT32,
    constant_load,
    instruction_set,
    scope_of,
)
from tilewright.compiler.tensor.build import cast, reduce_sum
from tilewright.compiler.tensor.declare import compute, placeholder
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.memories import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class InterleavedShape:
    """Everything about such a convolution but its numbers, which are inputs and scalars."""

    source: Plane
    #: Positions of the window, and blocks of one phase.
    output: Plane
    window: Window
    phases: tuple[int, int]
    addends: int
    #: As of an ordinary convolution.
    dense: bool


def interleaved_convolution(shape: InterleavedShape, config: AcceleratorConfig) -> Tensor:
    """Declare the convolution: stages ``inp``, ``acc`` and ``y``.

    Inputs are those of an ordinary convolution, weights and parameters with the phase's row and
    column in front. Rows and columns of ``y`` are given by two indices each.
    """
    lanes, output = config.block_out, shape.output
    plain = output.shape(config, lanes)
    total = _products(shape, config)
    prm = placeholder((*shape.phases, plain[1], plain[4], lanes, 3), INT32, "prm")

    def result(
        group: Expr,
        block: Expr,
        row: Expr,
        phase_row: Expr,
        column: Expr,
        phase_column: Expr,
        part: Expr,
        image: Expr,
        lane: Expr,
    ) -> Expr:
        value = total[group, phase_row, phase_column, block, row, column, part, image, lane]
        return scaled(value, prm, (phase_row, phase_column, block, part, lane))

    rows, columns = shape.phases
    interleaved = (*plain[:3], rows, plain[3], columns, *plain[4:])
    return compute(interleaved, result, "y")


def _products(shape: InterleavedShape, config: AcceleratorConfig) -> Tensor:
    size = (shape.output.rows, shape.output.columns)
    x = activations("x", shape.source, config, config.block_in)
    inp = bordered(x, shape.window, size, "inp")
    axes = product_axes(x, shape.addends, shape.window, config)
    from_block, from_part, addend, ky, kx, channel = (axis.var for axis in axes)
    output = shape.output.shape(config, config.block_out)
    blocks = (*shape.phases, output[1], output[4])
    reduced = tuple(axis.extent for axis in axes[:-1])
    w = placeholder((*blocks, *reduced, config.block_out, config.block_in), INT8, "w")

    def product(
        group: Expr,
        phase_row: Expr,
        phase_column: Expr,
        block: Expr,
        row: Expr,
        column: Expr,
        part: Expr,
        image: Expr,
        lane: Expr,
    ) -> Expr:
        y, x = position(shape.window, (row, column), (ky, kx))
        value = inp[group, from_block, y, x, from_part, image, channel]
        own = (phase_row, phase_column, block, part)
        weight = w.at(*own, from_block, from_part, addend, ky, kx, lane, channel)
        return reduce_sum(cast(value, INT32) * cast(weight, INT32), *axes)

    shape_of_sums = (output[0], *shape.phases, *output[1:])
    return compute(shape_of_sums, product, "acc")


def schedule_interleaved(
    shape: InterleavedShape, tiling: MatrixTiling, config: AcceleratorConfig
) -> Schedule:
    """Arrange it: the phases of a tile one after the other from one input tile.

    The blocks of the tiling are those of all phases together.
    """
    s = Schedule(interleaved_convolution(shape, config), intrinsics=instruction_set(config))
    s.set_scope("inp", scope_of(Memory.INP))
    s.set_scope("acc", scope_of(Memory.ACC))
    wgt = s.cache_read("w", scope_of(Memory.WGT), name="wgt")
    prm = s.cache_read("prm", scope_of(Memory.PRM), name="scales")
    out = s.cache_write("y", scope_of(Memory.OUT), name="out")
    positions, channels = ("row.outer", "column.outer"), ("block.outer",)
    outer = (*channels, *positions) if tiling.channels_outside else (*positions, *channels)
    rows, columns = shape.phases
    blocks = tiling.out_blocks // (rows * columns)
    phases = ("phase_row", "phase_column")
    tile = tile_output(s, (blocks, tiling.rows, tiling.columns), outer, phases)
    s.split("acc", "from_block", tiling.in_blocks if shape.dense else shape.source.blocks)
    taps = ("from_block.inner", "from_part", "addend", "ky", "kx")
    entry = ("image", "lane", "channel")
    s.reorder("acc", "from_block.outer", *phases, "part", "block", "row", "column", *taps, *entry)
    for tap in taps:
        s.unroll("acc", tap)
    s.compute_at(out, "y", tile)
    s.reorder(out, *phases, "part", "block", "row", "column", "image", "lane")
    s.compute_at("acc", "y", tile)
    for stage in ("inp", wgt):
        s.compute_at(stage, "acc", "from_block.outer")
    parts = config.layout_block // config.block_out
    if rows * columns * shape.output.blocks * parts > config.prm_entries // 2:
        s.compute_at(prm, "y", tile)
    s.tensorize(prm, "i0", constant_load(Memory.PRM, 4))
    s.tensorize("inp", "block", "load_inp")
    s.tensorize(wgt, "i0", constant_load(Memory.WGT, 9))
    s.tensorize("acc", "image", "gemm")
    s.tensorize(out, "image", "requantise_acc")
    s.tensorize("y", "block.inner", "store_interleaved")
    return s
