"""Instructions of the array for a matrix product in one tile."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.compiler.lowering.buffers import (
    FillLoad,
    Placed,
    TileLoad,
    WeightLoad,
    WeightTileLoad,
)
from tilewright.compiler.lowering.emitter import Emitter
from tilewright.compiler.lowering.loops import Level, instructions, levels
from tilewright.compiler.lowering.nests import Access, InnerLoop, Operation
from tilewright.compiler.lowering.operands import locate
from tilewright.compiler.lowering.runs import Run, group_runs
from tilewright.compiler.lowering.scratchpads import Span
from tilewright.compiler.lowering.tables import Indices
from tilewright.compiler.lowering.tiling import product_parts
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import CompileError
from tilewright.isa.instructions import LOOP_LEVELS, Gemm, GemmLoop, GemmUop
from tilewright.isa.memories import Memory

_Grid = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tiles:
    """Tiles of weights in a tensor: blocks of outputs in their order, and those of inputs."""

    outputs: tuple[int, ...]
    inputs: range


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """Products that one load of weights serves: the weights, and the instructions' runs."""

    weights: bytes | _Tiles
    runs: tuple[Run, ...]


#: Of all products of a tile: constant ones of each block, or tiles of a tensor.
_Weights: TypeAlias = Sequence[npt.NDArray[np.int8]] | _Tiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """All products of a tile, in passes, and the planes of the input tile that they read."""

    passes: tuple[_Pass, ...]
    planes: range


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductLoops:
    """The loops of a matrix product: over blocks of weights, positions, and products."""

    blocks: tuple[InnerLoop, ...]
    positions: tuple[InnerLoop, ...]
    products: tuple[InnerLoop, ...]

    @staticmethod
    def of(operation: Operation) -> "ProductLoops":
        """Tell the loops of an operation apart.

        Raises
        ------
        CompileError
            If positions are outside of blocks of weights.
        """
        data = {name for steps in operation.output.steps for name in steps}
        weights = {name for steps in operation.inputs["wgt"].steps for name in steps}
        outer = [loop for loop in operation.loops if loop.name in data]
        blocks = tuple(loop for loop in outer if loop.name in weights)
        if tuple(outer[: len(blocks)]) != blocks:
            raise CompileError(
                "the loops over positions must lie within those that change the weights",
                hint="bring them inside with reorder",
            )
        return ProductLoops(
            blocks=blocks,
            positions=tuple(outer[len(blocks) :]),
            products=tuple(loop for loop in operation.loops if loop.name not in data),
        )


class ArrayCode:
    """Appends the instructions of a matrix product; remembers how its weights are packed."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._loops = ProductLoops.of(operation)
        self._order = (*self._loops.blocks, *self._loops.products)
        self._packings: dict[tuple[object, ...], Packing] = {}

    def emit(
        self,
        indices: Indices,
        tile: TileLoad | FillLoad,
        weights: WeightLoad | WeightTileLoad,
        output: Placed,
        emitter: Emitter,
    ) -> None:
        """Append the instructions of one tile."""
        operation = self._operation
        packing = self._packing(indices, tile, weights, emitter.config)
        assert operation.first is not None, "a matrix product is a reduction"
        accumulate = not operation.first.at(indices)
        for one in packing.passes:
            match one.weights, weights:
                case _Tiles(outputs=outputs, inputs=inputs), WeightTileLoad():
                    wgt = weights.bring(emitter, outputs, inputs)
                case bytes() as data, _:
                    wgt = emitter.load_constant(Memory.WGT, data)
                case _:
                    raise AssertionError("tiles are those of a tensor")
            inp = tile.bring(emitter, planes=packing.planes)
            for run in one.runs:
                self._emit_run(run, indices, (inp, wgt, output), emitter, accumulate=accumulate)
            accumulate = True

    def _emit_run(
        self,
        run: Run,
        indices: Indices,
        places: tuple[Placed, Span, Placed],
        emitter: Emitter,
        *,
        accumulate: bool,
    ) -> None:
        operation, blocks = self._operation, self._loops.blocks
        inp, wgt, output = places
        src = locate(operation.inputs["inp"], inp, indices)
        dst = locate(operation.output, output, indices)
        uops = emitter.load_uops(GemmUop, run.uops)
        at = np.unravel_index(run.first, tuple(loop.count(indices) for loop in blocks))
        moved = sum(
            dst.step(loop.name) * int(index) for loop, index in zip(blocks, at, strict=True)
        )
        own = dst.step(blocks[-1].name) if blocks else 0
        positions = (
            Level(count=loop.count(indices), steps=(dst.step(loop.name), src.step(loop.name), 0))
            for loop in self._loops.positions
        )
        together = Level(count=run.count, steps=(own, run.src_step, run.wgt_step))
        for added, inner in instructions(levels((together, *positions))):
            more_dst, more_src, more_wgt = added or (0, 0, 0)
            gemm = Gemm(
                accumulate=accumulate,
                uop_begin=uops.begin,
                uop_count=uops.entries,
                dst=dst.entry + moved + more_dst,
                src=src.entry + run.src + more_src,
                wgt=wgt.begin + run.wgt + more_wgt,
                loops=_gemm_loops(inner),
            )
            emitter.gemm(gemm, inp=inp.span, wgt=wgt, uops=uops, acc=output.span)

    def _packing(
        self,
        indices: Indices,
        tile: TileLoad | FillLoad,
        weights: WeightLoad | WeightTileLoad,
        config: AcceleratorConfig,
    ) -> Packing:
        """Return the products of a tile, worked out once for all tiles that are alike."""
        counts = {loop.name: loop.count(indices) for loop in self._operation.loops}
        inp, wgt = self._operation.inputs["inp"], self._operation.inputs["wgt"]
        key = (
            tuple(counts[loop.name] for loop in self._order),
            tile.strides,
            tuple(base.at(indices) for base in inp.bases),
            tuple(base.at(indices) for base in wgt.bases),
            weights.begins,
            isinstance(weights, WeightTileLoad),
        )
        if key not in self._packings:
            self._packings[key] = self._pack(indices, counts, tile, weights, config)
        return self._packings[key]

    def _pack(
        self,
        indices: Indices,
        counts: Mapping[str, int],
        tile: TileLoad | FillLoad,
        weights: WeightLoad | WeightTileLoad,
        config: AcceleratorConfig,
    ) -> Packing:
        loops, names = self._loops, [loop.name for loop in self._order]
        shape = tuple(counts[name] for name in names)
        blocks = math.prod(counts[loop.name] for loop in loops.blocks)
        grid = dict(zip(names, np.indices(shape, sparse=True), strict=True))

        def moved(access: Access, axis: int) -> _Grid:
            """Indices along an axis, from where the loops begin, ``[block, product]``."""
            steps = access.steps[axis].items()
            total = sum(factor * grid[name] for name, factor in steps if name in grid)
            return np.broadcast_to(total, shape).reshape(blocks, -1)

        inp, wgt = self._operation.inputs["inp"], self._operation.inputs["wgt"]
        where = tuple(
            moved(wgt, axis) + wgt.bases[axis].at(indices) + begin
            for axis, begin in enumerate(weights.begins)
        )
        if isinstance(weights, WeightTileLoad):
            present = np.ones((blocks, math.prod(shape) // blocks), dtype=np.bool_)
        else:
            present = weights.weights.present[where]
        source = sum(stride * moved(inp, axis) for axis, stride in enumerate(tile.strides))
        planes = moved(inp, tile.plane_axis)[present] + inp.bases[tile.plane_axis].at(indices)
        group = counts[loops.blocks[-1].name] if loops.blocks else 1
        chosen = [np.asarray(source)[block][mask] for block, mask in enumerate(present)]
        if isinstance(weights, WeightTileLoad):
            packed: _Weights = _tensor_tiles(where, config)
        else:
            packed = [
                weights.weights.tiles[tuple(axis[block][mask] for axis in where)]
                for block, mask in enumerate(present)
            ]
        return Packing(
            passes=tuple(_passes(chosen, packed, group, config)),
            planes=range(int(planes.min()), int(planes.max()) + 1),
        )


def _tensor_tiles(where: tuple[_Grid, ...], config: AcceleratorConfig) -> _Tiles:
    """Return the tiles of all products, which are the same blocks of inputs for all outputs."""
    *_, block, part, from_block, from_part = where
    outputs = block[:, 0] * (config.layout_block // config.block_out) + part[:, 0]
    inputs = from_block[0] * (config.layout_block // config.block_in) + from_part[0]
    assert np.all(np.diff(inputs) == 1), "products go over the parts of blocks in order"
    first = int(inputs[0])
    return _Tiles(outputs=tuple(outputs.tolist()), inputs=range(first, first + len(inputs)))


def _passes(
    sources: Sequence[_Grid],
    weights: _Weights,
    group: int,
    config: AcceleratorConfig,
) -> Iterator[_Pass]:
    """Cut products that are too many for `wgt` or `guop` in several passes."""
    longest = max(map(len, sources))
    parts = product_parts(longest, len(sources), config)
    if parts is None:
        raise CompileError(
            f"{len(sources)} blocks of weights do not fit scratchpad wgt"
            f" of {config.wgt_entries} entries"
        )
    size = -(-longest // parts)
    for first in range(0, longest, size):
        part = slice(first, first + size)
        yield _Pass(
            weights=replace(weights, inputs=weights.inputs[part])
            if isinstance(weights, _Tiles)
            else b"".join(block[part].tobytes() for block in weights),
            runs=group_runs([block[part] for block in sources], group),
        )


def _gemm_loops(inner: tuple[Level, ...]) -> tuple[GemmLoop, ...]:
    missing = (GemmLoop(),) * (LOOP_LEVELS - len(inner))
    loops = []
    for level in inner:
        dst, src, wgt = level.steps
        loops.append(GemmLoop(extent=level.count, dst=dst, src=src, wgt=wgt))
    return (*missing, *loops)
