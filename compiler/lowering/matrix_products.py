"""Products of two activation matrices on the array: expression, schedule and tiles.

The second matrix lies in DRAM as tiles of weights, which `attention.py` sees to. The array
multiplies bytes as they are; what zero points make of that comes from further terms of the sum, in
which one of the operands is a constant:

    (a - z) @ (b - y) = a @ b + (-z) @ b + a @ (-y) + k * z * y

The second of them is the same for all rows of a: where it is long, it is summed once for a tile,
and the vector engine adds it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from tilewright.compiler.lowering.bindings import (
    Binding,
    DramView,
    Fill,
    Terms,
    WeightBlocks,
    WeightTerms,
    WeightTiles,
)
from tilewright.compiler.lowering.declarations import Plane, limits, scaled, tile_output
from tilewright.compiler.lowering.emitter import MAX_EXTENT
from tilewright.compiler.lowering.kernels import MatrixProductKernel, Window
from tilewright.compiler.lowering.lane_products import corrections_of
from tilewright.compiler.lowering.nest_code import NESTS_KEPT, NestCode, NestTiles
from tilewright.compiler.lowering.parameters import scales_of_all
from tilewright.compiler.lowering.steps import TileStep
from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.compiler.lowering.tiling import MatrixShape, MatrixTiling, legal_tilings, misfit
from tilewright.compiler.tensor.accelerator import (
    INDEX,
    INT8,
    INT32,
    constant_load,
    instruction_set,
    scope_of,
    shared_sum,
)
from tilewright.compiler.tensor.build import cast, constant, reduce_sum
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import CompileError
from tilewright.isa.memories import Memory

_INP, _WGT, _ACC, _OUT, _PRM = map(
    scope_of, (Memory.INP, Memory.WGT, Memory.ACC, Memory.OUT, Memory.PRM)
)


#: What an instruction of the vector engine costs beside its steps. Adding sums that all rows share
#: takes one for each row, multiplying them takes their products again.
_INSTRUCTION_CYCLES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixProduct:
    """Everything about a product of matrices but its numbers.

    Rows of activations are stacks of matrices, columns the rows of a matrix.
    """

    source: Plane
    output: Plane
    #: Groups and rows of the second matrix: those of the output, or 1 for the same in all.
    weights: tuple[int, int]
    terms: int
    #: How often the sums of weights times a constant, the same for all rows of a matrix, are added.
    shared: int
    #: The first matrix has only the blocks on its diagonal, all as the source says.
    diagonal: bool


def matrix_product(shape: MatrixProduct, config: AcceleratorConfig) -> Tensor:
    """Declare a product of matrices: stages ``acc``, ``same`` where sums are shared, and ``y``.

    Inputs are ``x[term, ...]``, an activation tensor for each term, the weights ``w[term, group,
    row, block, part, block of x, part of x, lane, lane of x]`` and ``prm[1, lane, field]``; for
    shared sums ``fill``, one pixel of an activation tensor, and ``v`` like ``w``.
    """
    output = shape.output.shape(config, config.block_out)
    total = _products(shape, config)
    same = _shared_sums(shape, config) if shape.shared else None
    prm = placeholder((1, config.block_out, 3), INT32, "prm")

    def result(
        group: Expr, block: Expr, row: Expr, column: Expr, part: Expr, image: Expr, lane: Expr
    ) -> Expr:
        value: Expr = total[group, row, column, block, part, image, lane]
        if same is not None:
            for _ in range(shape.shared):
                value = value + same[group, row, block, part, image, lane]
        return scaled(value, prm, (constant(0, INDEX), lane))

    return compute(output, result, "y")


def _products(shape: MatrixProduct, config: AcceleratorConfig) -> Tensor:
    source = shape.source.shape(config, config.block_in)
    output = shape.output.shape(config, config.block_out)
    layout = config.layout_block
    from_blocks = -(-shape.output.columns // layout) if shape.diagonal else source[1]
    term, from_part = reduce_axis(shape.terms, "term"), reduce_axis(source[4], "from_part")
    channel = reduce_axis(config.block_in, "channel")
    from_block = reduce_axis(from_blocks, "from_block")
    summed = () if shape.diagonal else (from_block,)
    blocks = (output[1], output[4], from_blocks, source[4])
    entry = (config.block_out, config.block_in)
    x = placeholder((shape.terms, *source), INT8, "x")
    w = placeholder((shape.terms, *shape.weights, *blocks, *entry), INT8, "w")
    x_steps = (int(source[0] > 1), int(source[2] > 1))
    w_steps = tuple(int(extent > 1) for extent in shape.weights)

    # Blocks behind positions, as in the shared sums: so both advance evenly from block to block.
    def product(
        group: Expr, row: Expr, column: Expr, block: Expr, part: Expr, image: Expr, lane: Expr
    ) -> Expr:
        x_block: Expr = from_block.var
        w_block, at = x_block, column
        if shape.diagonal:
            x_block, w_block, at = constant(0, INDEX), column // layout, column % layout
        own = (group * x_steps[0], x_block, row * x_steps[1], at, from_part.var, image)
        value = x.at(term.var, *own, channel.var)
        stack = (group * w_steps[0], row * w_steps[1], block, part, w_block, from_part.var)
        weight = w.at(term.var, *stack, lane, channel.var)
        terms = cast(value, INT32) * cast(weight, INT32)
        return reduce_sum(terms, term, *summed, from_part, channel)

    groups, out_blocks, rows, columns, *rest = output
    return compute((groups, rows, columns, out_blocks, *rest), product, "acc")


def _shared_sums(shape: MatrixProduct, config: AcceleratorConfig) -> Tensor:
    """Declare the product of a constant row with the weights."""
    source = shape.source.shape(config, config.block_in)
    groups, blocks, rows, _, parts, *entry = shape.output.shape(config, config.block_out)
    names = ("from_block", "from_part", "channel")
    axes = tuple(map(reduce_axis, (source[1], source[4], config.block_in), names))
    from_block, from_part, channel = (axis.var for axis in axes)
    fill = placeholder((1, source[1], 1, 1, *source[4:]), INT8, "fill")
    tiles = (blocks, parts, source[1], source[4], config.block_out, config.block_in)
    v = placeholder((1, *shape.weights, *tiles), INT8, "v")
    steps = tuple(int(extent > 1) for extent in shape.weights)
    zero = constant(0, INDEX)

    def product(group: Expr, row: Expr, block: Expr, part: Expr, image: Expr, lane: Expr) -> Expr:
        value = fill[zero, from_block, zero, zero, from_part, image, channel]
        stack = (zero, group * steps[0], row * steps[1])
        weight = v.at(*stack, block, part, from_block, from_part, lane, channel)
        return reduce_sum(cast(value, INT32) * cast(weight, INT32), *axes)

    return compute((groups, rows, blocks, parts, *entry), product, "same")


def schedule_matrix_product(
    shape: MatrixProduct, tiling: MatrixTiling, config: AcceleratorConfig
) -> Schedule:
    """Arrange a product: matrix after matrix, its terms one after the other in `acc`."""
    s = Schedule(matrix_product(shape, config), intrinsics=instruction_set(config))
    s.set_scope("acc", _ACC)
    inp, wgt = s.cache_read("x", _INP, name="inp"), s.cache_read("w", _WGT, name="wgt")
    prm = s.cache_read("prm", _PRM)
    out = s.cache_write("y", _OUT, name="out")
    inner = ("block.outer", "column.outer")
    outer = inner if tiling.channels_outside else inner[::-1]
    tile = tile_output(s, (tiling.out_blocks, 1, tiling.columns), ("row.outer", *outer))
    slices: tuple[str, ...] = ("term",)
    taps: tuple[str, ...] = ("from_part",)
    if not shape.diagonal:
        s.split("acc", "from_block", tiling.in_blocks)
        slices, taps = ("term", "from_block.outer"), ("from_block.inner", "from_part")
    within = ("part", "block", "row", "column", *taps, "image", "lane", "channel")
    s.reorder("acc", *slices, *within)
    for tap in taps:
        s.unroll("acc", tap)
    s.compute_at(out, "y", tile)
    s.compute_at("acc", "y", tile)
    for stage in (inp, wgt):
        s.compute_at(stage, "acc", slices[-1])
    s.tensorize(prm, "i0", constant_load(Memory.PRM, 1))
    s.tensorize(inp, "i0", constant_load(Memory.INP, 6))
    s.tensorize(wgt, "i0", constant_load(Memory.WGT, 7))
    s.tensorize("acc", "image", "gemm")
    if shape.shared:
        _schedule_shared(s, tile, tiling)
    s.tensorize(out, "image", shared_sum(shape.shared) if shape.shared else "requantise_acc")
    s.tensorize("y", "block.inner", "store")
    return s


def _schedule_shared(s: Schedule, tile: str, tiling: MatrixTiling) -> None:
    s.set_scope("same", _ACC)
    fill, weights = s.cache_read("fill", _INP), s.cache_read("v", _WGT)
    s.compute_at("same", "y", tile)
    s.split("same", "from_block", tiling.in_blocks)
    taps = ("from_block.inner", "from_part")
    within = ("part", "block", "row", *taps, "image", "lane", "channel")
    s.reorder("same", "from_block.outer", *within)
    for tap in taps:
        s.unroll("same", tap)
    for stage in (fill, weights):
        s.compute_at(stage, "same", "from_block.outer")
    s.tensorize(fill, "i0", constant_load(Memory.INP, 5))
    s.tensorize(weights, "i0", constant_load(Memory.WGT, 7))
    s.tensorize("same", "image", "gemm")


class MatrixProductSchedule:
    """A product of matrices cut to tiles for one configuration."""

    #: There is nothing for a tuner to choose.
    shape = None

    def __init__(
        self,
        kernel: MatrixProductKernel,
        tensors: Mapping[str, BlockedTensor],
        config: AcceleratorConfig,
    ) -> None:
        self.kernel = kernel
        self.config = config
        self._source, self._output = tensors[kernel.source], tensors[kernel.output]
        weights = tensors[kernel.weights]
        rows, self._row_value = corrections_of(kernel.source_zero_point)
        self._column_terms = corrections_of(kernel.weights_zero_point)
        shared = rows if rows * self._products_per_row > _INSTRUCTION_CYCLES else 0
        self._row_terms = rows - shared
        self._product = MatrixProduct(
            source=Plane.of(self._source),
            output=Plane.of(self._output),
            weights=(weights.groups, weights.shape.height),
            terms=1 + self._row_terms + self._column_terms[0],
            shared=shared,
            diagonal=kernel.diagonal,
        )
        self._tiling = self._diagonal_tiling() if kernel.diagonal else self._chosen_tiling()

    @property
    def macs(self) -> int:
        """Multiply-accumulates, without any rounding up; zero points are none."""
        shape = self._output.shape
        positions = shape.images * shape.height * shape.width
        return positions * shape.channels * self._source.shape.channels

    @property
    def ideal_cycles(self) -> int:
        """Cycles of the array alone without zero points, channels rounded up to whole blocks."""
        shape, config = self._output.shape, self.config
        blocks = -(-shape.channels // config.block_out)
        reduction = -(-self._source.shape.channels // config.block_in)
        return self._output.groups * shape.height * shape.width * blocks * reduction

    @property
    def _products_per_row(self) -> int:
        """Products of the array for one row of the first matrix."""
        parts = self.config.layout_block // self.config.block_out
        inputs = self.config.layout_block // self.config.block_in
        return self._output.blocks * parts * self._source.blocks * inputs

    @property
    def resident_weights(self) -> int:
        """Entries of `wgt` that the kernel holds: none that stay for other kernels."""
        return 0

    def declared(self) -> Tensor:
        """Return the kernel's tensor expression."""
        return matrix_product(self._product, self.config)

    def tensor_schedule(self) -> Schedule:
        """Return the schedule of the kernel's tensor expression."""
        return schedule_matrix_product(self._product, self._tiling, self.config)

    def scalars(self) -> dict[str, int]:
        """Return the scalars of the tensor expression."""
        return limits(self.kernel.scale)

    def bindings(self, tensors: Mapping[str, BlockedTensor]) -> dict[str, Binding]:
        """Return what the inputs and the output of the tensor expression stand for."""
        x, w, y = (
            DramView(name=name, tensor=tensors[name])
            for name in (self.kernel.source, self.kernel.weights, self.kernel.output)
        )
        rows, fill = self._row_terms, Fill(value=self._row_value)
        columns, column_value = self._column_terms
        tiles = WeightTiles(view=w, config=self.config)
        constants = self._constant_weights(column_value)
        return {
            "x": Terms(terms=(x, *(fill,) * rows, *(x,) * columns)),
            "w": WeightTerms(terms=(*(tiles,) * (1 + rows), *(constants,) * columns)),
            "fill": fill,
            "v": WeightTerms(terms=(tiles,)),
            "prm": scales_of_all([self.kernel.scale], self.config),
            "y": y,
        }

    def steps(self, tensors: Mapping[str, BlockedTensor]) -> tuple[TileStep, ...]:
        """Return the tiles in order, on tensors that have their place in DRAM."""
        code = _code(self._product, self._tiling, self.config)
        return tuple(NestTiles(code, self.bindings(tensors), self.scalars()).steps())

    def _constant_weights(self, value: int) -> WeightBlocks:
        """Return weights that are `value` for every channel that there is."""
        config, source, output = self.config, self._source, self._output
        channels = np.arange(source.blocks * source.block) < source.shape.channels
        entries = np.where(channels, value, 0).astype(np.int8)
        split = entries.reshape(source.blocks, -1, 1, config.block_in)
        parts = config.layout_block // config.block_out
        lead = (1, 1, 1, output.blocks, parts)
        tiles = np.broadcast_to(split, (*lead, *split.shape[:2], config.block_out, config.block_in))
        return WeightBlocks(tiles=tiles, present=np.ones(tiles.shape[:-2], dtype=np.bool_))

    def _diagonal_tiling(self) -> MatrixTiling:
        """Return the tiling by blocks on the diagonal or even parts of them, as large as fit.

        Raises
        ------
        CompileError
            If not even one fits.
        """
        config, output = self.config, self._output
        layout, parts = config.layout_block, config.layout_block // config.block_out
        inputs = layout // config.block_in
        needs = (
            ("inp", inputs, config.inp_entries),
            ("wgt", inputs * parts, config.wgt_entries),
            ("acc", 2 * parts, config.acc_entries),
            ("out", parts, config.out_entries),
            ("guop", inputs, config.gemm_uop_entries),
        )
        if any(need > have for _, need, have in needs):
            raise CompileError(misfit(needs))
        results = min(config.acc_bank_entries, config.out_entries) // parts
        longest = min(results, config.inp_entries // inputs)
        even = max(size for size in range(1, layout + 1) if layout % size == 0 and size <= longest)
        columns = min(even, output.shape.width)
        weights = max(config.wgt_entries // 2 // (inputs * parts), 1)
        blocks = min(output.blocks, results // columns, weights, MAX_EXTENT)
        return MatrixTiling(
            rows=1, columns=columns, out_blocks=blocks, in_blocks=1, channels_outside=True
        )

    def _chosen_tiling(self) -> MatrixTiling:
        """Return the best tiling of one matrix of the stack, with shared sums the best of those
        with the most blocks of outputs, which one instruction adds them to.
        """
        config = self.config
        source, output = (
            replace(tensor, shape=replace(tensor.shape, images=1, height=1))
            for tensor in (self._source, self._output)
        )
        products = source.blocks * (config.layout_block // config.block_in)
        shape = MatrixShape(
            window=Window(),
            source=source,
            output=output,
            products=products,
            all_products=products * math.ceil(output.shape.channels / config.block_out),
            spans=(),
            residual=False,
            streamed=False,
        )
        found = legal_tilings(shape, config)
        if not self._product.shared:
            return found[0]
        parts = config.layout_block // config.block_out
        for tiling in sorted(found, key=lambda one: -one.out_blocks):
            if (tiling.columns + 1) * tiling.out_blocks * parts <= config.acc_bank_entries:
                return tiling
        raise CompileError(misfit([("acc", 4 * parts, config.acc_entries)]))


@lru_cache(maxsize=NESTS_KEPT)
def _code(shape: MatrixProduct, tiling: MatrixTiling, config: AcceleratorConfig) -> NestCode:
    return NestCode(lower(schedule_matrix_product(shape, tiling, config)))
