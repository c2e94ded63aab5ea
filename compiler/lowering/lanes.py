"""Schedule of a lane kernel on the vector engine: loads, one vector pass, stores, tile by tile."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from tilewright.compiler.lowering.choices import NO_CHOICES, Choices
from tilewright.compiler.lowering.emitter import Emitter
from tilewright.compiler.lowering.geometry import Place, Tile, source_of, tiles
from tilewright.compiler.lowering.kernels import LaneKernel
from tilewright.compiler.lowering.lane_tiling import LaneShape, choose_lane_tiling
from tilewright.compiler.lowering.loops import vector_loop
from tilewright.compiler.lowering.parameters import (
    coefficient_entries,
    splat,
)
from tilewright.compiler.lowering.scales import ScaleTable
from tilewright.compiler.lowering.scratchpads import Span
from tilewright.compiler.lowering.steps import RowRange, TileStep
from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import Vector, VectorLoop, VectorOperation, VectorUop
from tilewright.isa.memories import Memory


class LaneSchedule:
    """A lane kernel cut to tiles for one configuration; `emit` appends its tasks."""

    def __init__(
        self,
        kernel: LaneKernel,
        tensors: Mapping[str, BlockedTensor],
        config: AcceleratorConfig,
        *,
        streamed: bool = False,
        choices: Choices = NO_CHOICES,
    ) -> None:
        self.kernel = kernel
        self.sources = tuple(tensors[source.tensor] for source in kernel.sources)
        self.output = tensors[kernel.output]
        self.config = config
        self._per_pixel = config.layout_block // config.block_out
        self._blocks = -(-kernel.channels // config.layout_block)
        self._scales = ScaleTable(kernel, config)
        self._coefficients = (
            b""
            if kernel.coefficients is None
            else coefficient_entries(splat(kernel.coefficients, config), config)
        )
        self.shape = self._shape(streamed=streamed)
        self.tiling = choices.lane_tiling(self.shape) or choose_lane_tiling(self.shape, config)

    @property
    def macs(self) -> int:
        """Multiply-accumulates, without any rounding up."""
        shape = self.output.shape
        return shape.images * self.kernel.rows * self.kernel.columns * shape.channels * self._taps

    @property
    def ideal_cycles(self) -> int:
        """Cycles of the lanes alone, channels rounded up to whole blocks."""
        blocks = -(-self.kernel.channels // self.config.block_out)
        positions = self.output.groups * self.kernel.rows * self.kernel.columns
        return positions * blocks * self._taps

    @property
    def resident_weights(self) -> int:
        """Entries of `wgt` that the kernel holds."""
        return 0

    def steps(self, tensors: Mapping[str, BlockedTensor]) -> tuple[TileStep, ...]:
        """Return the tiles in order, on tensors that have their place in DRAM."""
        self.sources = tuple(tensors[source.tensor] for source in self.kernel.sources)
        self.output = tensors[self.kernel.output]
        size = self.tiling.blocks
        return tuple(
            self._step(
                Place(group=group, block=block, blocks=min(size, self._blocks - block), tile=tile)
            )
            for group in range(self.output.groups)
            for tile in self._tiles()
            for block in range(0, self._blocks, size)
        )

    def _step(self, place: Place) -> TileStep:
        tile, kernel = place.tile, self.kernel
        reads = tuple(
            RowRange(
                tensor=source.tensor,
                group=place.group,
                begin=tile.source_rows.begin,
                count=tile.source_rows.count,
            )
            for source in kernel.sources
        )
        writes = RowRange(
            tensor=kernel.output,
            group=place.group,
            begin=kernel.target[1] + tile.row,
            count=tile.rows,
        )
        return TileStep(
            reads=reads,
            writes=writes,
            share=tile.columns * place.blocks,
            emit=partial(self._emit_tile, place=place),
        )

    def _tiles(self) -> Iterator[Tile]:
        kernel = self.kernel
        size = (kernel.rows, kernel.columns)
        tile = (self.tiling.rows, self.tiling.columns)
        return tiles(kernel.window, self.sources[0].shape, size, tile)

    def _emit_tile(self, emitter: Emitter, place: Place) -> None:
        kernel, config = self.kernel, self.config
        spans: tuple[Span, ...] = ()
        for number in range(len(kernel.sources)):
            spans += (self._load_source(emitter, place, number, spans),)
        reads = spans
        prm, coef = None, None
        if kernel.scale is not None:
            prm, prm_offset = self._load_prm(emitter, place)
            reads += (prm,)
        if kernel.coefficients is not None:
            coef, coef_offset = self._load_coefficients(emitter, place)
            reads += (coef,)
        lut = None if kernel.table is None else emitter.load_table(kernel.table)
        reads += () if lut is None else (lut,)
        uops = emitter.load_uops(VectorUop, self._uops(place.tile, spans))
        out = emitter.take_out(place.blocks * place.tile.positions * self._per_pixel)
        for part in self._parts(place):
            vector = Vector(
                operation=kernel.operation,
                requantise=prm is not None,
                lookup=lut is not None,
                lut=0 if lut is None else lut.begin,
                zero_point=0 if kernel.scale is None else kernel.scale.zero_point,
                low=kernel.low if kernel.scale is None else kernel.scale.low,
                high=kernel.high if kernel.scale is None else kernel.scale.high,
                uop_begin=uops.begin,
                uop_count=uops.entries,
                dst=out.begin + part.dst,
                src=spans[0].begin + part.src,
                coef=0 if coef is None else coef.begin + coef_offset + part.coef,
                prm=0 if prm is None else prm.begin + prm_offset + part.prm,
                loops=part.loops,
            )
            emitter.vector(vector, reads=(*reads, uops), write=out)
        emitter.store(out, place.region(self.output, config, target=kernel.target))

    def _load_source(
        self, emitter: Emitter, place: Place, number: int, pinned: tuple[Span, ...]
    ) -> Span:
        """Load the part of a source that a tile reads, padding included."""
        source, tensor = self.kernel.sources[number], self.sources[number]
        region, padding = source_of(
            place.tile,
            tensor,
            group=place.group,
            block=source.block + place.block,
            blocks=place.blocks,
            entry_bytes=self.config.lane_entry_bytes,
            pad_value=self.kernel.window.pad_value,
        )
        key = (emitter.kernel, number, place.group, place.block, place.tile.row, place.tile.column)
        return emitter.load_tile(Memory.VEC, key, region, padding, pinned)

    def _load_prm(self, emitter: Emitter, place: Place) -> tuple[Span, int]:
        """Load the parameters of all channels at once, or of the tile's where that is too much."""
        if not self._scales.per_channel:
            return emitter.load_constant(Memory.PRM, self._scales.data), 0
        first, count = place.block * self._per_pixel, place.blocks * self._per_pixel
        return emitter.load_part(Memory.PRM, self._scales.data, first, count)

    def _load_coefficients(self, emitter: Emitter, place: Place) -> tuple[Span, int]:
        """Load the coefficients of all channels, or of the tile's where that is too much."""
        if not self._coef_per_channel:
            shared = self._coefficients[: self._taps * self.config.coef_entry_bytes]
            return emitter.load_constant(Memory.COEF, shared), 0
        per_block = self._taps * self._per_pixel
        first, count = place.block * per_block, place.blocks * per_block
        return emitter.load_part(Memory.COEF, self._coefficients, first, count)

    @property
    def _taps(self) -> int:
        return max(self.kernel.window.taps, len(self.kernel.sources))

    def _shape(self, *, streamed: bool) -> LaneShape:
        kernel = self.kernel
        return LaneShape(
            window=replace(kernel.window, pad_value=0),
            sources=self.sources,
            output=self.output,
            rows=kernel.rows,
            columns=kernel.columns,
            channels=kernel.channels,
            target=kernel.target,
            taps=self._taps,
            micro_ops=1 if self._loops_reduce else self._taps,
            coefficients_per_channel=self._coef_per_channel,
            scales_per_channel=self._scales.per_channel,
            scale_counts=tuple(count for count, _ in kernel.border),
            lookup=kernel.table is not None,
            streamed=streamed,
        )

    @property
    def _coef_per_channel(self) -> bool:
        return self.kernel.coefficients is not None and self.kernel.coefficients.shape[1] > 1

    @property
    def _loops_reduce(self) -> bool:
        """Whether the window is walked by loops: one output position and no coefficients."""
        kernel = self.kernel
        single = kernel.rows == kernel.columns == 1 and len(kernel.sources) == 1
        return single and kernel.operation is not VectorOperation.MAC

    def _uops(self, tile: Tile, spans: tuple[Span, ...]) -> list[tuple[int, int, int]]:
        """Return the micro-ops: positions of the window, or the same position of each source."""
        if len(spans) > 1:
            modulus = 1 << self.config.operand_bits
            return [
                (
                    0,
                    (span.begin - spans[0].begin) % modulus,
                    0 if self.kernel.coefficients is None else number,
                )
                for number, span in enumerate(spans)
            ]
        if self._loops_reduce:
            return [(0, 0, 0)]
        window = self.kernel.window
        pitch = tile.source_columns.reach
        return [
            (
                0,
                (row * window.dilation[0] * pitch + column * window.dilation[1]) * self._per_pixel,
                0 if self.kernel.coefficients is None else row * window.kernel[1] + column,
            )
            for row in range(window.kernel[0])
            for column in range(window.kernel[1])
        ]

    def _parts(self, place: Place) -> Iterator["_Part"]:
        """Cut a tile where the scale changes and by entries of a pixel."""
        tile, window, pp = place.tile, self.kernel.window, self._per_pixel
        pitch = tile.source_columns.reach
        source_plane = tile.source_rows.reach * pitch * pp
        plane = tile.positions * pp
        prm = pp if self._scales.per_channel else 0
        coef = self._taps * pp if self._coef_per_channel else 0
        for lane in range(pp):
            for area in self._scales.areas(tile, self.sources[0].shape):
                row, rows, column, columns, index = area
                reduce_rows, reduce_columns = (
                    window.kernel if self._loops_reduce else (rows, columns)
                )
                step = window.dilation if self._loops_reduce else window.stride
                yield _Part(
                    dst=(row * tile.columns + column) * pp + lane,
                    src=(row * window.stride[0] * pitch + column * window.stride[1]) * pp + lane,
                    coef=lane * self._taps if self._coef_per_channel else 0,
                    prm=index + (lane if self._scales.per_channel else 0),
                    loops=(
                        vector_loop(place.blocks, dst=plane, src=source_plane, prm=prm, coef=coef),
                        vector_loop(
                            reduce_rows,
                            dst=0 if self._loops_reduce else tile.columns * pp,
                            src=step[0] * pitch * pp,
                        ),
                        vector_loop(
                            reduce_columns,
                            dst=0 if self._loops_reduce else pp,
                            src=step[1] * pp,
                        ),
                    ),
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Offsets and loops of one vector instruction of a tile."""

    dst: int
    src: int
    coef: int
    prm: int
    loops: tuple[VectorLoop, ...]
