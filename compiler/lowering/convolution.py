"""A convolution on the array: its tensor expression, and its schedule."""

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.compiler.lowering.declarations import (
    SUM,
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
    INDEX,
    INT8,
    INT16,
    INT32,
    constant_load,
    instruction_set,
    narrowed,
    scope_of,
)
from tilewright.compiler.tensor.build import cast, constant, reduce_sum
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Axis, Expr, Tensor
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.memories import Memory

_INP, _WGT, _ACC, _OUT, _VEC, _PRM = map(
    scope_of, (Memory.INP, Memory.WGT, Memory.ACC, Memory.OUT, Memory.VEC, Memory.PRM)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionShape:
    """Everything about a convolution on the array but its numbers, which are inputs and scalars."""

    source: Plane
    output: Plane
    window: Window
    #: Addends of the weights.
    addends: int
    #: Every output block reads every input block, so that a pass can take any of them.
    dense: bool
    #: Another tensor is added to the result.
    residual: bool


def convolution(shape: ConvolutionShape, config: AcceleratorConfig) -> Tensor:
    """Declare a convolution: stages ``inp``, ``acc``, ``own`` with a residual, and ``y``.

    Inputs are ``x``, the weights ``w[block, part, block of x, part of x, addend, ky, kx, lane,
    lane of x]``, the parameters ``prm[block, part, lane, field]``, and for a residual ``r``,
    ``coef[2, lane]`` and ``prm_r[1, lane, field]``. Scalars are the padding value and the limits of
    the results, of the addition with prefix `SUM`.
    """
    lanes, output = config.block_out, shape.output
    parts = config.layout_block // lanes
    x = activations("x", shape.source, config, config.block_in)
    prm = placeholder((output.blocks, parts, lanes, 3), INT32, "prm")
    total = _products(x, shape, config)

    def result(
        group: Expr, block: Expr, row: Expr, column: Expr, part: Expr, image: Expr, lane: Expr
    ) -> Expr:
        value = total[group, block, row, column, part, image, lane]
        return scaled(value, prm, (block, part, lane))

    if not shape.residual:
        return compute(output.shape(config, lanes), result, "y")
    return _with_residual(result, output, config)


def product_axes(
    x: Tensor, addends: int, window: Window, config: AcceleratorConfig
) -> tuple[Axis, ...]:
    """Return what a convolution of `x` sums over."""
    names = ("from_block", "from_part", "addend", "ky", "kx", "channel")
    extents = (x.shape[1], x.shape[4], addends, *window.kernel, config.block_in)
    return tuple(map(reduce_axis, extents, names))


def _products(x: Tensor, shape: ConvolutionShape, config: AcceleratorConfig) -> Tensor:
    window, size = shape.window, (shape.output.rows, shape.output.columns)
    inp = bordered(x, window, size, "inp")
    output = shape.output.shape(config, config.block_out)
    axes = product_axes(x, shape.addends, window, config)
    reduced = tuple(axis.extent for axis in axes[:-1])
    entry = (config.block_out, config.block_in)
    w = placeholder((output[1], output[4], *reduced, *entry), INT8, "w")
    from_block, from_part, addend, ky, kx, channel = (axis.var for axis in axes)

    def product(
        group: Expr, block: Expr, row: Expr, column: Expr, part: Expr, image: Expr, lane: Expr
    ) -> Expr:
        y, x = position(window, (row, column), (ky, kx))
        value = inp[group, from_block, y, x, from_part, image, channel]
        weight = w[block, part, from_block, from_part, addend, ky, kx, lane, channel]
        return reduce_sum(cast(value, INT32) * cast(weight, INT32), *axes)

    return compute(output, product, "acc")


def _with_residual(result: Callable[..., Expr], output: Plane, config: AcceleratorConfig) -> Tensor:
    lanes = config.block_out
    shape = output.shape(config, lanes)
    r = activations("r", output, config, lanes)
    coef = placeholder((2, lanes), INT16, "coef")
    prm = placeholder((1, lanes, 3), INT32, "prm_r")

    def kept(
        group: Expr, block: Expr, row: Expr, column: Expr, part: Expr, image: Expr, lane: Expr
    ) -> Expr:
        return cast(result(group, block, row, column, part, image, lane), INT32)

    own = compute(shape, kept, "own")

    def total(
        group: Expr, block: Expr, row: Expr, column: Expr, part: Expr, image: Expr, lane: Expr
    ) -> Expr:
        at = (group, block, row, column, part, image, lane)
        factors = tuple(cast(coef[number, lane], INT32) for number in (0, 1))
        value = narrowed(own[at]) * factors[0] + cast(r[at], INT32) * factors[1]
        return scaled(value, prm, (constant(0, INDEX), lane), SUM)

    return compute(shape, total, "y")


def schedule_convolution(
    shape: ConvolutionShape, tiling: MatrixTiling, config: AcceleratorConfig
) -> Schedule:
    """Arrange a convolution: accumulators of a tile in `acc`, input and weights slice by slice."""
    y = convolution(shape, config)
    s = Schedule(y, intrinsics=instruction_set(config))
    for stage, scope in (("inp", _INP), ("acc", _ACC)):
        s.set_scope(stage, scope)
    wgt = s.cache_read("w", _WGT, name="wgt")
    out = s.cache_write("y", _OUT, name="out")
    positions, channels = ("row.outer", "column.outer"), ("block.outer",)
    outer = (*channels, *positions) if tiling.channels_outside else (*positions, *channels)
    tile = tile_output(s, (tiling.out_blocks, tiling.rows, tiling.columns), outer)
    s.split("acc", "from_block", tiling.in_blocks if shape.dense else shape.source.blocks)
    taps = ("from_block.inner", "from_part", "addend", "ky", "kx")
    entry = ("image", "lane", "channel")
    s.reorder("acc", "from_block.outer", "part", "block", "row", "column", *taps, *entry)
    for tap in taps:
        s.unroll("acc", tap)
    s.compute_at(out, "y", tile)
    if shape.residual:
        s.set_scope("own", _ACC)
        s.compute_at("own", "y", tile)
    s.compute_at("acc", "y", tile)
    for stage in ("inp", wgt):
        s.compute_at(stage, "acc", "from_block.outer")
    loads = _load_parameters(s, shape, tile, config)
    for copy, axis, load in loads:
        s.tensorize(copy, axis, load)
    s.tensorize("inp", "block", "load_inp")
    s.tensorize(wgt, "i0", constant_load(Memory.WGT, 7))
    s.tensorize("acc", "image", "gemm")
    if not shape.residual:
        s.tensorize(out, "image", "requantise_acc")
    else:
        s.tensorize("own", "image", "requantise_keep_acc")
        s.tensorize(out, "image", "requantise_acc_vec")
    s.tensorize("y", "block.inner", "store")
    return s


def _load_parameters(
    s: Schedule, shape: ConvolutionShape, tile: str, config: AcceleratorConfig
) -> list[tuple[str, str, str]]:
    """Copy what the result needs to scratchpads; return each copy, its axis and its load.

    The parameters of all channels are loaded at once, those of the tile where that is too much.
    """
    entries = shape.output.blocks * (config.layout_block // config.block_out)
    prm = s.cache_read("prm", _PRM, name="scales")
    if entries > config.prm_entries // 2:
        s.compute_at(prm, "y", tile)
    loads = [(prm, "i0", constant_load(Memory.PRM, 2))]
    if shape.residual:
        coef = s.cache_read("coef", scope_of(Memory.COEF))
        own = s.cache_read("prm_r", _PRM)
        vec = s.cache_read("r", _VEC)
        s.compute_at(vec, "y", tile)
        loads += [
            (coef, "i0", constant_load(Memory.COEF, 1)),
            (own, "i0", constant_load(Memory.PRM, 1)),
            (vec, "i1", "copy_vec"),
        ]
    return loads
