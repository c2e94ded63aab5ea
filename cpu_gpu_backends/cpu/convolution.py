"""Convolutions and matrix products: panels of packed weights times tiles of rows in registers.

An image row lies as ``columns * channels`` numbers in memory, with its border. The window of one
output position is then ``kernel rows`` stretches of ``kernel columns * channels`` numbers, so the
sum runs over two loops and reads without a copy. Weights are packed to ``[panel][row][stretch]
[column]`` when the network is compiled; of bytes four of a stretch lie side by side, of bfloat16
numbers two, as the instructions for sums of products want them.
"""

from collections.abc import Callable

import numpy as np

from tilewright.compiler.tensor.build import cast, constant, reduce_sum
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.compiler.tensor.statements import LoopNest
from tilewright.cpu_gpu_backends.codegen.dot_products import DotProducts, dot_products
from tilewright.cpu_gpu_backends.codegen.peeling import peel_uneven_tiles
from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
from tilewright.cpu_gpu_backends.cpu.matrix_schedule import (
    Window,
    arrange_matrix,
    fetch_weights_ahead,
    usual_plan,
)
from tilewright.cpu_gpu_backends.cpu.plans import MatrixPlan
from tilewright.cpu_gpu_backends.cpu.program import REGISTER, Array, element_type
from tilewright.cpu_gpu_backends.cpu.sums import sums_of
from tilewright.cpu_gpu_backends.cpu.tiles import Panels

#: From the int32 or float32 sum at ``(n, y, x, o)`` and its place to the stored element.
Epilogue = Callable[[Expr, tuple[Expr, ...]], Expr]


def matrix_nest(
    window: Window,
    panels: Panels,
    *,
    dtype: ScalarType,
    weight_dtype: ScalarType,
    epilogue: Epilogue,
    target: CpuTarget,
    weights_per_image: bool = False,
    same_positions: bool = False,
    packed: bool = True,
    plan: MatrixPlan | None = None,
) -> LoopNest:
    """Return the loops of a matrix kernel with operands ``image`` and ``weights``.

    The result is ``out[n, y, x, o]``, channels padded to whole panels.

    Parameters
    ----------
    dtype, weight_dtype
        Of image and weights: uint8 with int8 or int16, summed in int32; or float32 for both, or
        bfloat16, summed in float32.
    weights_per_image
        Whether each image of the batch has weights of its own.
    same_positions
        Whether a thread computes the same positions of all images, where the plan lets threads
        share positions: for kernels that share them so before and behind this one.
    packed
        Whether weights are constants as `pack_weights` returns them, and come from memory.
    plan
        What a tuner has chosen, for panels of this width.
    """
    sums = sums_of(weight_dtype, panels, window.length, target, packed=packed)
    image = placeholder(window.image, dtype, "image")
    if sums.dots is not None:
        total = _dot_sums(window, panels, image, sums.dots, weights_per_image)
    elif sums.in_pairs:
        total = _pair_sums(window, panels, image, weight_dtype, weights_per_image)
    else:
        total = _plain_sums(window, panels, image, weight_dtype, weights_per_image)

    def element(n: Expr, y: Expr, x: Expr, o: Expr) -> Expr:
        panel, within = o // panels.width, o % panels.width
        if not sums.in_pairs:
            return epilogue(total[n, y, x, panel, within], (n, y, x, o))
        even, odd = (total[n, y, x, panel, within * 2 + place] for place in range(2))
        return epilogue(even + odd, (n, y, x, o))

    out = compute((window.batch, window.rows, window.columns, panels.channels), element, "out")
    schedule = Schedule(out, intrinsics=[dot_products(kind, REGISTER) for kind in DotProducts])
    plan = plan or usual_plan(window, panels, weight_dtype, target)
    arrange_matrix(schedule, window, panels, sums, target, plan, same_positions)
    if packed:
        fetch_weights_ahead(schedule, window, panels, weight_dtype)
    return peel_uneven_tiles(lower(schedule))


def _plain_sums(
    window: Window, panels: Panels, image: Tensor, weight_dtype: ScalarType, per_image: bool
) -> Tensor:
    rows, columns = window.stretched_rows, window.kernel_columns
    own = (panels.count, rows, columns, window.length, panels.width)
    shape = (window.batch, *own) if per_image else own
    weights = placeholder(shape, weight_dtype, "weights")
    dtype = image.dtype if image.dtype.is_float else ScalarType.INT32
    ky = reduce_axis(window.stretched_rows, "ky")
    kx = reduce_axis(window.kernel_columns, "kx")
    k = reduce_axis(window.length, "k")

    def product(n: Expr, y: Expr, x: Expr, p: Expr, o: Expr) -> Expr:
        element = image.at(n, *_place(window, y, x, ky.var, kx.var, k.var))
        place = (p, ky.var, kx.var, k.var, o)
        weight = weights.at(n, *place) if per_image else weights[place]
        return reduce_sum(cast(element, dtype) * cast(weight, dtype), ky, kx, k)

    sums = (window.batch, window.rows, window.columns, panels.count, panels.width)
    return compute(sums, product, "sum")


def _pair_sums(
    window: Window, panels: Panels, image: Tensor, dtype: ScalarType, per_image: bool
) -> Tensor:
    """Return sums over even and over odd places of stretches, side by side."""
    pairs, width = window.length // 2, panels.width * 2
    own = (panels.count, window.stretched_rows, window.kernel_columns, pairs, width)
    weights = placeholder((window.batch, *own) if per_image else own, dtype, "weights")
    ky = reduce_axis(window.stretched_rows, "ky")
    kx = reduce_axis(window.kernel_columns, "kx")
    k = reduce_axis(pairs, "k")

    def product(n: Expr, y: Expr, x: Expr, p: Expr, o: Expr) -> Expr:
        element = image.at(n, *_place(window, y, x, ky.var, kx.var, k.var * 2 + o % 2))
        place = (p, ky.var, kx.var, k.var, o)
        weight = weights.at(n, *place) if per_image else weights[place]
        return reduce_sum(element * weight, ky, kx, k)

    sums = (window.batch, window.rows, window.columns, panels.count, width)
    return compute(sums, product, "sum")


def _dot_sums(
    window: Window, panels: Panels, image: Tensor, dots: DotProducts, per_image: bool
) -> Tensor:
    assert window.length % dots.depth == 0, "stretches are padded"
    groups, (_, weight_dtype) = window.length // dots.depth, dots.factors
    rows, columns = window.stretched_rows, window.kernel_columns
    own = (panels.count, rows, columns, groups, panels.width, dots.depth)
    packed = (window.batch, *own) if per_image else own
    weights = placeholder(packed, weight_dtype, "weights")
    ky = reduce_axis(window.stretched_rows, "ky")
    kx = reduce_axis(window.kernel_columns, "kx")
    k, t = reduce_axis(groups, "k"), reduce_axis(dots.depth, "t")

    def product(n: Expr, y: Expr, x: Expr, p: Expr, o: Expr) -> Expr:
        along = k.var * dots.depth + t.var
        element = image.at(n, *_place(window, y, x, ky.var, kx.var, along))
        place = (p, ky.var, kx.var, k.var, o, t.var)
        weight = weights.at(n, *place) if per_image else weights[place]
        return reduce_sum(cast(element, dots.total) * cast(weight, dots.total), ky, kx, k, t)

    sums = (window.batch, window.rows, window.columns, panels.count, panels.width)
    return compute(sums, product, "sum")


def _place(window: Window, y: Expr, x: Expr, ky: Expr, kx: Expr, along: Expr) -> tuple[Expr, Expr]:
    plane, within = ky // window.kernel_rows, ky % window.kernel_rows
    if window.planes == 1:
        plane, within = constant(0, ScalarType.INDEX), ky
    row = y * window.row_step + within * window.row_dilation + plane * window.plane_rows
    return row, x * window.column_step + kx * window.column_dilation + along


def pack_weights(weights: Array, window: Window, panels: Panels, target: CpuTarget) -> Array:
    """Return ``[O, rows, columns, length]`` as a matrix kernel reads it; what is padded is 0."""
    outputs = weights.shape[0]
    shape = (panels.channels, window.stretched_rows, window.kernel_columns, window.length)
    padded = np.zeros(shape, weights.dtype)
    stretches = weights.reshape(outputs, window.stretched_rows, window.kernel_columns, -1)
    padded[:outputs, :, :, : stretches.shape[3]] = stretches
    split = padded.reshape(panels.count, panels.width, *shape[1:])
    sums = sums_of(element_type(weights.dtype), panels, window.length, target)
    if sums.depth == 1:
        return np.ascontiguousarray(split.transpose(0, 2, 3, 4, 1))
    groups = split.reshape(*split.shape[:-1], -1, sums.depth)
    packed = np.ascontiguousarray(groups.transpose(0, 2, 3, 4, 1, 5))
    return packed.reshape(*packed.shape[:4], -1) if sums.in_pairs else packed
