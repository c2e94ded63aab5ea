"""Schedule of a pooling over an image too large for `vec`: rows at a time, through `acc`."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tilewright.compiler.lowering.emitter import MAX_EXTENT, Emitter
from tilewright.compiler.lowering.geometry import Tile, source_of, tiles
from tilewright.compiler.lowering.kernels import LaneKernel, Window
from tilewright.compiler.lowering.loops import vector_loop
from tilewright.compiler.lowering.parameters import splat_prm
from tilewright.compiler.lowering.regions import tile_region
from tilewright.compiler.lowering.scratchpads import Span
from tilewright.compiler.lowering.steps import RowRange, TileStep
from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import CompileError
from tilewright.isa.instructions import Vector, VectorOperation, VectorTarget, VectorUop
from tilewright.isa.memories import Memory


def needs_reduction(
    kernel: LaneKernel, tensors: Mapping[str, BlockedTensor], config: AcceleratorConfig
) -> bool:
    """Whether a kernel is a pooling to one position whose window does not fit half of `vec`, or is
    more than one load takes.
    """
    single = kernel.rows == kernel.columns == 1 and len(kernel.sources) == 1
    if not single or kernel.operation is VectorOperation.MAC or kernel.border:
        return False
    rows = kernel.window.kernel[0]
    longest = max(rows, _window_entries(kernel.window, 1, config))
    entries = _window_entries(kernel.window, rows, config)
    return 2 * entries > config.vec_entries or longest > MAX_EXTENT


class ReductionSchedule:
    """Partial results of a few rows each go to `acc`; a last pass combines them."""

    #: There is nothing to choose.
    shape = None

    def __init__(
        self,
        kernel: LaneKernel,
        tensors: Mapping[str, BlockedTensor],
        config: AcceleratorConfig,
    ) -> None:
        self.kernel = kernel
        self.config = config
        self.source = tensors[kernel.sources[0].tensor]
        self.output = tensors[kernel.output]
        self._lanes = config.layout_block // config.block_out
        row = _window_entries(kernel.window, 1, config)
        if row > MAX_EXTENT:
            raise CompileError(
                f"one row of the window has {row} entries, a load takes at most {MAX_EXTENT}"
            )
        self._rows = min(config.vec_entries // 2 // row, MAX_EXTENT)
        if not self._rows:
            raise CompileError(
                f"one row of the window does not fit half of scratchpad vec"
                f" ({row} of {config.vec_entries // 2} entries)"
            )
        self._parts = -(-kernel.window.kernel[0] // self._rows)
        if self._parts * self._lanes > config.acc_bank_entries:
            raise CompileError(
                f"the partial results of the window do not fit a bank of scratchpad acc"
                f" ({self._parts * self._lanes} of {config.acc_bank_entries} entries)"
            )

    @property
    def macs(self) -> int:
        """Pooling multiplies nothing."""
        return 0

    @property
    def ideal_cycles(self) -> int:
        """Pooling does not use the array."""
        return 0

    @property
    def resident_weights(self) -> int:
        """Entries of `wgt` that the kernel holds."""
        return 0

    def steps(self, tensors: Mapping[str, BlockedTensor]) -> tuple[TileStep, ...]:
        """Return the blocks in order, on tensors that have their place in DRAM."""
        self.source = tensors[self.kernel.sources[0].tensor]
        self.output = tensors[self.kernel.output]
        return tuple(
            self._step(group, block)
            for group in range(self.output.groups)
            for block in range(-(-self.kernel.channels // self.config.layout_block))
        )

    def _step(self, group: int, block: int) -> TileStep:
        source = RowRange(
            tensor=self.kernel.sources[0].tensor,
            group=group,
            begin=0,
            count=self.source.shape.height,
        )
        return TileStep(
            reads=(source,),
            writes=RowRange(tensor=self.kernel.output, group=group, begin=0, count=1),
            share=1,
            emit=partial(self._emit_block, group=group, block=block),
        )

    def _emit_block(self, emitter: Emitter, group: int, block: int) -> None:
        acc = emitter.take_bank(self._parts * self._lanes)
        for part in range(self._parts):
            self._emit_part(emitter, group, block, part, acc)
        kernel, config = self.kernel, self.config
        scale = kernel.scale
        reads = [acc]
        prm = None
        if scale is not None:
            prm = emitter.load_constant(Memory.PRM, splat_prm(scale, config))
            reads.append(prm)
        uops = emitter.load_uops(VectorUop, [(0, 0, 0)])
        out = emitter.take_out(self._lanes)
        vector = Vector(
            operation=kernel.operation,
            requantise=scale is not None,
            zero_point=0 if scale is None else scale.zero_point,
            low=kernel.low if scale is None else scale.low,
            high=kernel.high if scale is None else scale.high,
            uop_begin=uops.begin,
            dst=out.begin,
            src=config.acc_operand_base + acc.begin,
            prm=0 if prm is None else prm.begin,
            loops=(
                vector_loop(1),
                vector_loop(self._lanes, dst=1, src=1),
                vector_loop(self._parts, src=self._lanes),
            ),
        )
        emitter.vector(vector, reads=(*reads, uops), write=out)
        region = tile_region(
            self.output,
            group=group,
            block=self.kernel.target[0] + block,
            blocks=1,
            row=0,
            rows=1,
            column=0,
            columns=1,
            entry_bytes=config.lane_entry_bytes,
            merge=True,
        )
        emitter.store(out, region)

    def _emit_part(self, emitter: Emitter, group: int, block: int, part: int, acc: Span) -> None:
        """Combine some rows of the window into one partial result per lane."""
        kernel, whole = self.kernel, self.kernel.window
        first = part * self._rows
        rows = min(self._rows, whole.kernel[0] - first)
        window = replace(
            whole,
            kernel=(rows, whole.kernel[1]),
            before=(whole.before[0] - first * whole.dilation[0], whole.before[1]),
        )
        (tile,) = tiles(window, self.source.shape, (1, 1), (1, 1))
        vec = self._load(emitter, group, block, tile, part)
        uops = emitter.load_uops(VectorUop, [(0, 0, 0)])
        pitch = tile.source_columns.reach * self._lanes
        for lane in range(self._lanes):
            vector = Vector(
                operation=kernel.operation,
                target=VectorTarget.ACC,
                uop_begin=uops.begin,
                dst=acc.begin + part * self._lanes + lane,
                src=vec.begin + lane,
                loops=(
                    vector_loop(1),
                    vector_loop(rows, src=whole.dilation[0] * pitch),
                    vector_loop(whole.kernel[1], src=whole.dilation[1] * self._lanes),
                ),
            )
            emitter.vector(vector, reads=(vec, uops), write=acc)

    def _load(self, emitter: Emitter, group: int, block: int, tile: Tile, part: int) -> Span:
        region, padding = source_of(
            tile,
            self.source,
            group=group,
            block=self.kernel.sources[0].block + block,
            blocks=1,
            entry_bytes=self.config.lane_entry_bytes,
            pad_value=self.kernel.window.pad_value,
        )
        return emitter.load_tile(Memory.VEC, (emitter.kernel, group, block, part), region, padding)


def _window_entries(window: Window, rows: int, config: AcceleratorConfig) -> int:
    """Entries of `vec` that hold `rows` kernel rows of one block."""
    height = (rows - 1) * window.dilation[0] + 1
    width = (window.kernel[1] - 1) * window.dilation[1] + 1
    return height * width * (config.layout_block // config.block_out)
