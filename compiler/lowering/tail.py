"""The end of a convolution's tile: requantisation, residual addition, store."""

import numpy as np

from tilewright.compiler.lowering.emitter import Emitter
from tilewright.compiler.lowering.geometry import Place
from tilewright.compiler.lowering.kernels import MatrixKernel, Residual
from tilewright.compiler.lowering.loops import vector_loop
from tilewright.compiler.lowering.parameters import (
    coefficient_entries,
    prm_entries,
    splat,
    splat_prm,
)
from tilewright.compiler.lowering.scratchpads import Span
from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import (
    Vector,
    VectorLoop,
    VectorOperation,
    VectorTarget,
    VectorUop,
)
from tilewright.isa.memories import Memory, memory_shapes


class MatrixTail:
    """What happens to the accumulators of a tile once all products are summed."""

    def __init__(self, kernel: MatrixKernel, config: AcceleratorConfig) -> None:
        self._kernel = kernel
        self._config = config
        self._per_out = config.layout_block // config.block_out
        self._prm = prm_entries(kernel.scale, config)

    def emit(
        self,
        emitter: Emitter,
        place: Place,
        acc: Span,
        output: BlockedTensor,
        residual: BlockedTensor | None,
    ) -> None:
        """Requantise the tile in `acc`, add the residual where there is one, and store it."""
        out = emitter.take_out(acc.entries)
        prm = self._requantise(emitter, place, acc, acc if residual is not None else out)
        if residual is not None:
            assert self._kernel.residual is not None, "the kernel says how to add"
            vec = self._load_residual(emitter, place, residual)
            self._add(emitter, self._kernel.residual, place, (acc, vec, out), prm)
        emitter.store(out, place.region(output, self._config))

    def _requantise(self, emitter: Emitter, place: Place, acc: Span, write: Span) -> Span:
        """Scale the accumulators to int8, in place or to `out`; return the parameters' span."""
        config, scale = self._config, self._kernel.scale
        prm, first = self._load_prm(emitter, place)
        uops = emitter.load_uops(VectorUop, [(0, 0, 0)])
        vector = Vector(
            operation=VectorOperation.SUM,
            target=VectorTarget.ACC if write is acc else VectorTarget.OUT,
            requantise=True,
            zero_point=scale.zero_point,
            low=scale.low,
            high=scale.high,
            uop_begin=uops.begin,
            dst=write.begin,
            src=config.acc_operand_base + acc.begin,
            prm=prm.begin + first,
            loops=self._loops(place, per_channel=True),
        )
        emitter.vector(vector, reads=(acc, prm, uops), write=write)
        return prm

    def _load_residual(self, emitter: Emitter, place: Place, residual: BlockedTensor) -> Span:
        tile = place.tile
        key = (emitter.kernel, "residual", place.group, tile.row, tile.column, place.block)
        return emitter.load_tile(Memory.VEC, key, place.region(residual, self._config))

    def _add(
        self,
        emitter: Emitter,
        residual: Residual,
        place: Place,
        spans: tuple[Span, Span, Span],
        prm: Span,
    ) -> None:
        """Add a stored tensor to the int8 results that wait in `acc`."""
        config, scale = self._config, residual.scale
        acc, vec, out = spans
        pair = splat(np.array([[residual.own_coefficient], [residual.coefficient]]), config)
        data = coefficient_entries(pair, config)
        data = data[: len(pair) * memory_shapes(config)[Memory.COEF].entry_bytes]
        coef = emitter.load_constant(Memory.COEF, data)
        own = emitter.load_constant(Memory.PRM, splat_prm(scale, config), pinned=(prm,))
        base = config.acc_operand_base + acc.begin
        distance = (vec.begin - base) % (1 << config.operand_bits)
        uops = emitter.load_uops(VectorUop, [(0, 0, 0), (0, distance, 1)])
        vector = Vector(
            operation=VectorOperation.MAC,
            requantise=True,
            zero_point=scale.zero_point,
            low=scale.low,
            high=scale.high,
            uop_begin=uops.begin,
            uop_count=uops.entries,
            dst=out.begin,
            src=base,
            coef=coef.begin,
            prm=own.begin,
            loops=self._loops(place, per_channel=False),
        )
        emitter.vector(vector, reads=(acc, vec, coef, own, uops), write=out)

    def _load_prm(self, emitter: Emitter, place: Place) -> tuple[Span, int]:
        """Load the parameters of all channels at once, or of the tile's where that is too much."""
        first, count = place.block * self._per_out, place.blocks * self._per_out
        return emitter.load_part(Memory.PRM, self._prm, first, count)

    def _loops(self, place: Place, *, per_channel: bool) -> tuple[VectorLoop, ...]:
        """Walk over the results of a tile: blocks, positions, entries of a layout block."""
        positions = place.tile.positions
        plane = positions * self._per_out
        prm = 1 if per_channel else 0
        return (
            vector_loop(place.blocks, dst=plane, src=plane, prm=prm * self._per_out),
            vector_loop(positions, dst=self._per_out, src=self._per_out),
            vector_loop(self._per_out, dst=1, src=1, prm=prm),
        )
