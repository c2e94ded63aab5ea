"""Convolutions of 3 x 3 by Winograd's minimal filtering, on the processor.

Three kernels: tiles of the image are transformed, the products of each frequency are a matrix
product over the channels, and its results are transformed to outputs. An image is handled in blocks
of tile rows, so that what lies between the kernels stays in the cache.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import TypeAlias

import numpy as np

from tilewright.compiler.operators import FloatConv2d
from tilewright.compiler.tensor.build import cast
from tilewright.compiler.tensor.declare import compute, placeholder
from tilewright.compiler.tensor.expressions import Expr
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.compiler.tensor.statements import LoopNest
from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
from tilewright.cpu_gpu_backends.cpu.builder import Activation
from tilewright.cpu_gpu_backends.cpu.context import Context
from tilewright.cpu_gpu_backends.cpu.convolution import matrix_nest, pack_weights
from tilewright.cpu_gpu_backends.cpu.copies import padded
from tilewright.cpu_gpu_backends.cpu.grouping import Group
from tilewright.cpu_gpu_backends.cpu.layouts import spread_pitch
from tilewright.cpu_gpu_backends.cpu.matrix import tail_of_sums
from tilewright.cpu_gpu_backends.cpu.matrix_schedule import Window, usual_plan
from tilewright.cpu_gpu_backends.cpu.plans import MatrixPlan, Outside, WinogradPlan
from tilewright.cpu_gpu_backends.cpu.program import REGISTER, Home, View, dense_strides
from tilewright.cpu_gpu_backends.cpu.tails import TailInputs
from tilewright.cpu_gpu_backends.cpu.tiles import Panels, choose_panels, lanes, panels_of, tile_rows
from tilewright.cpu_gpu_backends.cpu.winograd_tiles import winograd_pads
from tilewright.cpu_gpu_backends.winograd import (
    Transforms,
    declare_frequencies,
    declare_results,
    transform_weights,
)

_FLOAT = ScalarType.FLOAT32
#: Transformed images and products of a block together, in bytes: most of a second-level cache.
_BLOCK_BYTES = 640 * 1024
#: Weights of all frequencies that stay in a second-level cache, beside a block.
_CACHED_WEIGHT_BYTES, _FLOAT_BYTES = 768 * 1024, 4
#: Nests that are kept for the next block of the same size.
_KEPT_NESTS = 16

#: From a sum and its place ``(y, x, o)`` to the stored element.
ResultEpilogue: TypeAlias = Callable[[Expr, Expr, Expr, Expr], Expr]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Some rows of tiles of one image."""

    image: int
    first_row: int
    rows: int
    tile_rows: int


def lower_winograd(context: Context, group: Group, output: Activation, tiles: Transforms) -> None:
    """Add the kernels of a group around a convolution of 3 x 3."""
    node = group.first
    assert isinstance(node.op, FloatConv2d), f"{node.label} is a float convolution"
    batch, height, width, channels = output.shape
    pads = winograd_pads(node.op, (height, width), tiles)
    image = padded(context, node.inputs[0], pads, 0.0)
    tile_columns = -(-width // tiles.outputs)
    plan = group.plan if isinstance(group.plan, WinogradPlan) else None
    block_bytes = _BLOCK_BYTES if plan is None else plan.block_bytes
    blocks = _blocks(batch, height, image.shape[3] + channels, tile_columns, tiles, block_bytes)
    most = max(block.tile_rows for block in blocks) * tile_columns
    if plan is None:
        weight_bytes = tiles.inputs**2 * image.shape[3] * channels * _FLOAT_BYTES
        panels = _usual_panels(channels, most, weight_bytes, context.target)
    else:
        panels = panels_of(channels, plan.panel)
    kept = _Between(context, group, tiles, most, image, panels, plan)
    for block in blocks:
        positions = block.tile_rows * tile_columns
        source = _block_view(image, node.op, block, tiles, tile_columns)
        kept.transform_image(source, block.tile_rows, tile_columns)
        kept.multiply(positions)
        kept.transform_result(block, tile_columns, output)


def _usual_panels(channels: int, positions: int, weight_bytes: int, target: CpuTarget) -> Panels:
    """Return the panels of the products, where no tuner has chosen them.

    Weights that come from memory are best read by a single tile, which has time for each line.
    """
    panels, narrow = choose_panels(channels, positions, target), panels_of(channels, lanes(target))
    in_one_tile = tile_rows(panels.width, target) < positions <= tile_rows(narrow.width, target)
    if _stay_cached(weight_bytes) or not in_one_tile or narrow.channels != panels.channels:
        return panels
    return narrow


def _blocks(
    batch: int,
    height: int,
    channels: int,
    tile_columns: int,
    tiles: Transforms,
    block_bytes: int,
) -> list[_Block]:
    tile_rows = -(-height // tiles.outputs)
    row_bytes = tiles.inputs**2 * tile_columns * channels * 4
    most = max(1, min(tile_rows, block_bytes // row_bytes))
    if (
        block_bytes == _BLOCK_BYTES and tile_rows <= 2 * most
    ):  # a second reading of the weights would cost more
        most = tile_rows
    return [
        _Block(
            image=image,
            first_row=first * tiles.outputs,
            rows=min((first + count) * tiles.outputs, height) - first * tiles.outputs,
            tile_rows=count,
        )
        for image in range(batch)
        for first in range(0, tile_rows, most)
        for count in (min(most, tile_rows - first),)
    ]


def _block_view(
    image: Activation, op: FloatConv2d, block: _Block, tiles: Transforms, tile_columns: int
) -> View:
    step, row, column, _ = image.view.strides
    rows = block.tile_rows * tiles.outputs + 2
    start = (block.first_row - op.pads[0]) * row - op.pads[1] * column
    return View(
        buffer=image.view.buffer,
        offset=image.view.offset + block.image * step + start,
        shape=(rows, tile_columns * tiles.outputs + 2, image.shape[3]),
        strides=(row, column, 1),
    )


class _Between:
    """Transformed images and products of one block after the other."""

    def __init__(
        self,
        context: Context,
        group: Group,
        tiles: Transforms,
        positions: int,
        image: Activation,
        panels: Panels,
        plan: WinogradPlan | None,
    ) -> None:
        self._context, self._group, self._tiles = context, group, tiles
        self._channels, self._dtype, self._panels = image.shape[3], image.dtype, panels
        self._plan = None if plan is None else plan.products
        self._results: dict[tuple[int, int], tuple[TailInputs, LoopNest]] = {}
        frequencies, builder, name = tiles.inputs**2, context.builder, group.first.name
        self._image, self._products = (
            builder.buffer(
                f"{name}.{what}", _FLOAT, frequencies * _pitch(positions * channels), Home.WORKSPACE
            )
            for what, channels in (("image", self._channels), ("products", panels.channels))
        )
        window = self._window(positions)
        weights = transform_weights(context.graph.constants[group.first.inputs[1]], tiles)
        packed = np.stack(
            [pack_weights(part[:, None, None], window, panels, context.target) for part in weights]
        )
        products = self._plan or usual_plan(window, panels, _FLOAT, context.target)
        if products.outside is Outside.POSITIONS:
            self._weights = builder.constant(f"{name}.weights", packed)
        else:
            # All frequencies of a panel are read before the next one.
            view = builder.constant(f"{name}.weights", packed.swapaxes(0, 1))
            panel, frequency, *inner = view.strides
            self._weights = replace(view, shape=packed.shape, strides=(frequency, panel, *inner))

    def transform_image(self, source: View, tile_rows: int, tile_columns: int) -> None:
        """Add the kernel that transforms a block of the image."""
        sizes = (tile_rows, tile_columns, self._channels)
        nest = image_nest(self._tiles, sizes, self._dtype, self._lanes)
        shape = nest.outputs[0].shape
        views = {"image": source, "transformed": _frequencies_view(self._image, shape, 2)}
        self._context.builder.kernel(self._group.output, nest, views)

    def multiply(self, positions: int) -> None:
        """Add the kernel that multiplies a transformed block with the weights."""
        nest = _products_nest(
            self._window(positions), self._panels, self._context.target, self._plan
        )
        frequencies = self._tiles.inputs**2
        image = (frequencies, 1, positions * self._channels)
        views = {
            "image": _frequencies_view(self._image, image, 1),
            "weights": self._weights,
            "out": _frequencies_view(self._products, nest.outputs[0].shape, 1),
        }
        self._context.builder.kernel(self._group.output, nest, views)

    def transform_result(self, block: _Block, tile_columns: int, output: Activation) -> None:
        """Add the kernel that transforms products to outputs, and computes the group's tail."""
        context = self._context
        inputs, nest = self._result(block, tile_columns, output)
        inputs.select_rows(block.image, block.first_row, block.rows)
        views = {
            **inputs.views,
            "products": _frequencies_view(self._products, nest_shape(nest, "products"), 2),
            "out": inputs.view_of(output),
        }
        context.builder.kernel(self._group.output, nest, views)

    def _result(
        self, block: _Block, tile_columns: int, output: Activation
    ) -> tuple[TailInputs, LoopNest]:
        """Return the nest for blocks of that size, and its operands."""
        key = (block.tile_rows, block.rows)
        if key not in self._results:
            context, channels = self._context, self._panels.channels
            inputs = TailInputs.of(context, (*output.shape[:-1], channels))
            inputs.select_rows(block.image, block.first_row, block.rows)
            tail = tail_of_sums(context, self._group, inputs, output)
            nest = result_nest(
                self._tiles,
                (block.tile_rows, tile_columns),
                (block.rows, output.shape[2], channels),
                lambda total, y, x, o: tail(total, (y, x, o)),
                self._lanes,
            )
            self._results[key] = (inputs, nest)
        return self._results[key]

    @property
    def _lanes(self) -> int:
        return lanes(self._context.target)

    def _window(self, positions: int) -> Window:
        return Window(
            batch=self._tiles.inputs**2,
            rows=1,
            columns=positions,
            row_step=1,
            column_step=self._channels,
            kernel_rows=1,
            row_dilation=1,
            kernel_columns=1,
            column_dilation=1,
            length=self._channels,
        )


def _frequencies_view(buffer: str, shape: tuple[int, ...], axes: int) -> View:
    """Return the view of numbers of each frequency, which the first axes count, a pitch apart."""
    own = dense_strides(shape[axes:])
    pitch = _pitch(prod(shape[axes:]))
    outer = tuple(step * pitch for step in dense_strides(shape[:axes]))
    return View(buffer=buffer, offset=0, shape=shape, strides=(*outer, *own))


def _pitch(numbers: int) -> int:
    """Return the distance of frequencies: all of one place are written, and read, together."""
    return spread_pitch(numbers, _FLOAT_BYTES)


def _stay_cached(weight_bytes: int) -> bool:
    """Whether transformed weights stay in the second-level cache from one block to the next."""
    return weight_bytes <= _CACHED_WEIGHT_BYTES


def nest_shape(nest: LoopNest, name: str) -> tuple[int, ...]:
    """Return the shape of an input of a nest."""
    return next(tensor.shape for tensor in nest.inputs if tensor.name == name)


@lru_cache(maxsize=_KEPT_NESTS)
def _products_nest(
    window: Window, panels: Panels, target: CpuTarget, plan: MatrixPlan | None
) -> LoopNest:
    """Return the products of a block, of which most layers have several alike.

    Threads share tiles like the transformations do, if each of them can read all weights.
    """
    weight_bytes = window.batch * panels.channels * window.depth * _FLOAT_BYTES
    return matrix_nest(
        window,
        panels,
        dtype=_FLOAT,
        weight_dtype=_FLOAT,
        epilogue=lambda total, at: total,
        target=target,
        weights_per_image=True,
        same_positions=_stay_cached(weight_bytes),
        plan=plan,
    )


@lru_cache(maxsize=_KEPT_NESTS)
def image_nest(
    tiles: Transforms, sizes: tuple[int, int, int], dtype: ScalarType, width: int
) -> LoopNest:
    """Return the transformation ``transformed[i, j, ty, tx, c]`` of ``image[y, x, c]``.

    Parameters
    ----------
    sizes
        Rows and columns of tiles, channels.
    """
    step = tiles.outputs
    tile_rows, tile_columns, channels = sizes
    shape = (tile_rows * step + 2, tile_columns * step + 2, channels)
    image = placeholder(shape, dtype, "image")

    def pixel(a: Expr, b: Expr, ty: Expr, tx: Expr, c: Expr) -> Expr:
        return cast(image[ty * step + a, tx * step + b, c], _FLOAT)

    s = Schedule(declare_frequencies(sizes, pixel, tiles, "transformed"))
    s.split("transformed", "c", _group(channels, width))
    s.reorder("transformed", "ty", "tx", "c.outer", "i", "j", "c.inner")
    s.parallel("transformed", s.fuse("transformed", "ty", "tx"))
    _in_registers(s, "transformed.half", "transformed", "c.outer", ("i", "b"), "c")
    s.unroll("transformed", "i")
    s.unroll("transformed", "j")
    s.vectorize("transformed", "c.inner")
    return lower(s)


def result_nest(
    tiles: Transforms,
    tile_counts: tuple[int, int],
    shape: tuple[int, int, int],
    epilogue: ResultEpilogue,
    width: int,
) -> LoopNest:
    """Return the transformation ``out[y, x, o]`` of ``products[i, j, ty, tx, o]``."""
    size, step, channels = tiles.inputs, tiles.outputs, shape[2]
    products = placeholder((size, size, *tile_counts, channels), _FLOAT, "products")

    def product(i: Expr, j: Expr, ty: Expr, tx: Expr, o: Expr) -> Expr:
        return products[i, j, ty, tx, o]

    whole = declare_results((*tile_counts, channels), product, tiles, "sums")

    def element(y: Expr, x: Expr, o: Expr) -> Expr:
        return epilogue(whole[y % step, x % step, y // step, x // step, o], y, x, o)

    s = Schedule(compute(shape, element, "out"))
    s.split("out", "y", step)
    s.split("out", "x", step)
    s.split("out", "o", _group(channels, width))
    s.reorder("out", "y.outer", "x.outer", "o.outer", "y.inner", "x.inner", "o.inner")
    s.parallel("out", s.fuse("out", "y.outer", "x.outer"))
    _in_registers(s, "sums", "out", "o.outer", ("i", "j"), "c")
    _in_registers(s, "sums.half", "out", "o.outer", ("i", "b"), "c")
    s.unroll("out", "y.inner")
    s.unroll("out", "x.inner")
    s.vectorize("out", "o.inner")
    return lower(s)


def _in_registers(
    s: Schedule, stage: str, consumer: str, at: str, unrolled: tuple[str, ...], lane: str
) -> None:
    s.compute_at(stage, consumer, at)
    s.set_scope(stage, REGISTER)
    for loop in unrolled:
        s.unroll(stage, loop)
    s.vectorize(stage, lane)


def _group(channels: int, width: int) -> int:
    """Return how many channels are transformed at once: a vector, or what divides them."""
    return next(count for count in range(min(width, channels), 0, -1) if channels % count == 0)
