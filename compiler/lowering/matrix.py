"""Schedule of a convolution on the array: loads, products, requantisation, stores, tile by tile."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tilewright.compiler.lowering.choices import NO_CHOICES, Choices
from tilewright.compiler.lowering.emitter import Emitter
from tilewright.compiler.lowering.geometry import Place, Tile, source_of, tiles
from tilewright.compiler.lowering.kernels import MatrixKernel
from tilewright.compiler.lowering.loops import gemm_loop
from tilewright.compiler.lowering.products import BlockProducts, pack_weights
from tilewright.compiler.lowering.runs import Run, SourceTile, group_runs
from tilewright.compiler.lowering.scratchpads import Span
from tilewright.compiler.lowering.steps import RowRange, TileStep
from tilewright.compiler.lowering.tail import MatrixTail
from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.compiler.lowering.tiling import MatrixShape, choose_tiling, product_parts
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import (
    Gemm,
    GemmUop,
)
from tilewright.isa.memories import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """One pass over the accumulators of a tile: some input blocks, all output blocks."""

    in_begin: int
    in_count: int
    weights: bytes
    blocks: tuple[BlockProducts, ...]


class MatrixSchedule:
    """A convolution cut to tiles for one configuration; `emit` appends its tasks."""

    def __init__(
        self,
        kernel: MatrixKernel,
        tensors: Mapping[str, BlockedTensor],
        config: AcceleratorConfig,
        *,
        streamed: bool = False,
        choices: Choices = NO_CHOICES,
    ) -> None:
        self.kernel = kernel
        self._place(tensors)
        self.config = config
        self.packed = pack_weights(kernel.weights, kernel.groups, config)
        self._per_in = config.layout_block // config.block_in
        self._per_out = config.layout_block // config.block_out
        self._tail = MatrixTail(kernel, config)
        self._grouped: dict[tuple[int, SourceTile], list[Run]] = {}
        self.shape = self._shape(streamed=streamed)
        self.tiling = choices.matrix_tiling(self.shape) or choose_tiling(self.shape, config)

    @property
    def macs(self) -> int:
        """Multiply-accumulates, without any rounding up."""
        shape = self.output.shape
        return shape.images * shape.height * shape.width * self.kernel.weights.size

    @property
    def ideal_cycles(self) -> int:
        """Cycles of the array alone: channels rounded up to whole blocks, the window folded in
        where the input has too few channels to fill a block.
        """
        shape, config = self.output.shape, self.config
        per_position = self.packed.products
        if self.packed.dense:
            outputs, rows, columns, inputs = self.kernel.weights.shape
            taps = rows * columns
            reduction = min(
                -(-taps * inputs // config.block_in), taps * -(-inputs // config.block_in)
            )
            per_position = reduction * -(-outputs // config.block_out)
        return self.output.groups * shape.height * shape.width * per_position

    def _place(self, tensors: Mapping[str, BlockedTensor]) -> None:
        self.source = tensors[self.kernel.source]
        self.output = tensors[self.kernel.output]
        residual = self.kernel.residual
        self.residual = None if residual is None else tensors[residual.tensor]

    @property
    def resident_weights(self) -> int:
        """Entries of `wgt` that hold all weights, and a part of them once more to be on the safe
        side where the ring wraps around.
        """
        return self.packed.products + self.tiling.out_blocks * self._per_out * max(
            len(block.positions) for block in self.packed.blocks
        )

    def steps(self, tensors: Mapping[str, BlockedTensor]) -> tuple[TileStep, ...]:
        """Return the tiles in order, on tensors that have their place in DRAM."""
        self._place(tensors)
        self._grouped = {}
        passes = [self._passes(begin) for begin in self._channel_begins()]
        return tuple(
            self._step(group, tile, number, passes[number])
            for group in range(self.output.groups)
            for tile, number in self._order()
        )

    def _step(self, group: int, tile: Tile, number: int, passes: tuple[_Pass, ...]) -> TileStep:
        begin = number * self.tiling.out_blocks
        blocks = min(self.tiling.out_blocks, self.output.blocks - begin)
        source = RowRange(
            tensor=self.kernel.source,
            group=group,
            begin=tile.source_rows.begin,
            count=tile.source_rows.count,
        )
        reads: tuple[RowRange, ...] = (source,)
        if self.kernel.residual is not None:
            name = self.kernel.residual.tensor
            reads += (RowRange(tensor=name, group=group, begin=tile.row, count=tile.rows),)
        return TileStep(
            reads=reads,
            writes=RowRange(
                tensor=self.kernel.output, group=group, begin=tile.row, count=tile.rows
            ),
            share=tile.columns * blocks,
            emit=partial(
                self._emit_tile, group=group, tile=tile, begin=begin, blocks=blocks, passes=passes
            ),
        )

    def _shape(self, *, streamed: bool) -> MatrixShape:
        packed, per_out = self.packed, self._per_out
        return MatrixShape(
            window=replace(self.kernel.window, pad_value=0),
            source=self.source,
            output=self.output,
            products=max(len(block.positions) for block in packed.blocks),
            all_products=packed.products,
            spans=()
            if packed.dense
            else tuple(
                self._layout_span(packed.blocks[begin : begin + per_out])
                for begin in range(0, len(packed.blocks), per_out)
            ),
            residual=self.kernel.residual is not None,
            streamed=streamed,
        )

    def _layout_span(self, blocks: Sequence[BlockProducts]) -> tuple[int, int]:
        """First and last layout block of input channels that some output blocks read."""
        inputs = [block.positions[:, 0] for block in blocks]
        return (
            int(min(one.min() for one in inputs)) // self._per_in,
            int(max(one.max() for one in inputs)) // self._per_in,
        )

    def _channel_begins(self) -> range:
        return range(0, self.output.blocks, self.tiling.out_blocks)

    def _order(self) -> Iterator[tuple[Tile, int]]:
        shape = self.output.shape
        cut = tuple(
            tiles(
                self.kernel.window,
                self.source.shape,
                (shape.height, shape.width),
                (self.tiling.rows, self.tiling.columns),
            )
        )
        numbers = range(len(self._channel_begins()))
        if self.tiling.channels_outside:
            return ((tile, number) for number in numbers for tile in cut)
        return ((tile, number) for tile in cut for number in numbers)

    def _passes(self, begin: int) -> tuple[_Pass, ...]:
        """Split the products of a tile's output channels by input blocks, then by number."""
        end = min(begin + self.tiling.out_blocks, self.output.blocks)
        blocks = self.packed.blocks[begin * self._per_out : end * self._per_out]
        if not self.packed.dense:
            first, last = self._layout_span(blocks)
            return tuple(self._split(first, last + 1 - first, blocks))
        result: list[_Pass] = []
        for first in range(0, self.source.blocks, self.tiling.in_blocks):
            count = min(self.tiling.in_blocks, self.source.blocks - first)
            chosen = tuple(
                block.within(first * self._per_in, (first + count) * self._per_in)
                for block in blocks
            )
            result.extend(self._split(first, count, chosen))
        return tuple(result)

    def _split(self, begin: int, count: int, blocks: tuple[BlockProducts, ...]) -> Iterator[_Pass]:
        """Cut products that are too many for `wgt` or `guop` in several passes."""
        longest = max(len(block.positions) for block in blocks)
        parts = product_parts(longest, len(blocks), self.config)
        assert parts is not None, "the tiling fits"
        size = -(-longest // parts)
        for first in range(0, longest, size):
            chosen = tuple(block.part(first, first + size) for block in blocks)
            weights = b"".join(block.tiles.tobytes() for block in chosen)
            yield _Pass(in_begin=begin, in_count=count, weights=weights, blocks=chosen)

    def _emit_tile(
        self,
        emitter: Emitter,
        *,
        group: int,
        tile: Tile,
        begin: int,
        blocks: int,
        passes: tuple[_Pass, ...],
    ) -> None:
        place = Place(group=group, block=begin, blocks=blocks, tile=tile)
        acc = emitter.take_bank(blocks * self._per_out * tile.positions)
        for order, one in enumerate(passes):
            self._emit_pass(emitter, group, tile, one, acc, accumulate=order > 0)
        self._tail.emit(emitter, place, acc, self.output, self.residual)

    def _emit_pass(
        self, emitter: Emitter, group: int, tile: Tile, one: _Pass, acc: Span, *, accumulate: bool
    ) -> None:
        wgt = emitter.load_constant(Memory.WGT, one.weights)
        rows, columns = tile.source_rows, tile.source_columns
        region, padding = source_of(
            tile,
            self.source,
            group=group,
            block=one.in_begin,
            blocks=one.in_count,
            entry_bytes=self.config.inp_entry_bytes,
            pad_value=self.kernel.window.pad_value,
        )
        key = (emitter.kernel, group, tile.row, tile.column, one.in_begin, one.in_count)
        inp = emitter.load_tile(Memory.INP, key, region, padding)
        source_tile = SourceTile(
            per_pixel=self._per_in,
            plane=rows.reach * columns.reach * self._per_in,
            kernel_row=self.kernel.window.dilation[0] * columns.reach * self._per_in,
            kernel_column=self.kernel.window.dilation[1] * self._per_in,
            first_block=one.in_begin,
        )
        for run in self._runs(one, source_tile):
            uops = emitter.load_uops(GemmUop, run.uops)
            gemm = self._gemm(run, tile, (inp, wgt, uops, acc), accumulate=accumulate)
            emitter.gemm(gemm, inp=inp, wgt=wgt, uops=uops, acc=acc)

    def _runs(self, one: _Pass, tile: SourceTile) -> list[Run]:
        """Group the output blocks of a pass, once for all tiles of one shape."""
        key = (id(one), tile)
        if key not in self._grouped:
            self._grouped[key] = group_runs(one.blocks, tile, self._per_out)
        return self._grouped[key]

    def _gemm(
        self, run: Run, tile: Tile, spans: tuple[Span, Span, Span, Span], *, accumulate: bool
    ) -> Gemm:
        inp, wgt, uops, acc = spans
        stride_rows, stride_columns = self.kernel.window.stride
        plane = tile.positions * self._per_out
        block, lane = divmod(run.first, self._per_out)
        row_pitch = tile.source_columns.reach * self._per_in
        return Gemm(
            accumulate=accumulate,
            uop_begin=uops.begin,
            uop_count=uops.entries,
            dst=acc.begin + block * plane + lane,
            src=inp.begin + run.src,
            wgt=wgt.begin + run.wgt,
            loops=(
                gemm_loop(run.count, dst=plane, src=run.src_step, wgt=run.wgt_step),
                gemm_loop(tile.rows, dst=tile.columns * self._per_out, src=stride_rows * row_pitch),
                gemm_loop(tile.columns, dst=self._per_out, src=stride_columns * self._per_in),
            ),
        )
