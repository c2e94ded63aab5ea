"""Grouping of output blocks into gemm instructions: equal products, evenly shifted operands."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.compiler.lowering.products import BlockProducts

UopArray: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTile:
    """How an input tile lies in the scratchpad."""

    #: Entries per pixel of one layout block.
    per_pixel: int
    #: Entries from plane to plane.
    plane: int
    #: Entries from one kernel row, and from one kernel column, to the next.
    kernel_row: int
    kernel_column: int
    #: First layout block of the tile.
    first_block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Output blocks that one gemm instruction computes."""

    #: First output block of `block_out` channels, counted within the tile.
    first: int
    #: Number of output blocks, each at the same position within its layout block.
    count: int
    #: int64 ``[n, 3]``, the fields of `GemmUop`.
    uops: UopArray
    #: Offset into the weights, and what each further output block adds.
    wgt: int
    wgt_step: int
    #: Offset into the input tile, and what each further output block adds.
    src: int
    src_step: int


def group_runs(blocks: Sequence[BlockProducts], tile: SourceTile, per_out: int) -> list[Run]:
    """Join output blocks, those of equal position within a layout block, as far as they agree."""
    starts = np.cumsum([0, *(len(block.positions) for block in blocks)])
    runs: list[Run] = []
    for lane in range(per_out):
        open_run: Run | None = None
        for number in range(lane, len(blocks), per_out):
            if not len(blocks[number].positions):
                continue
            src, uops = _uops(blocks[number].positions, tile)
            wgt = int(starts[number])
            joined = None
            if open_run is not None and number == open_run.first + open_run.count * per_out:
                joined = _join(open_run, uops, wgt, src)
            if joined is None:
                if open_run is not None:
                    runs.append(open_run)
                joined = Run(
                    first=number,
                    count=1,
                    uops=uops,
                    wgt=wgt,
                    wgt_step=0,
                    src=src,
                    src_step=0,
                )
            open_run = joined
        if open_run is not None:
            runs.append(open_run)
    return runs


def _join(run: Run, uops: UopArray, wgt: int, src: int) -> Run | None:
    """Extend a run by one output block, or return None where it does not fit the pattern."""
    if not np.array_equal(uops, run.uops):
        return None
    wgt_step, src_step = wgt - run.wgt, src - run.src
    if run.count > 1:
        even = wgt_step == run.count * run.wgt_step and src_step == run.count * run.src_step
        return replace(run, count=run.count + 1) if even else None
    if src_step < 0:
        return None
    return replace(run, count=2, wgt_step=wgt_step, src_step=src_step)


def _uops(positions: UopArray, tile: SourceTile) -> tuple[int, UopArray]:
    """Return the offset of an output block's first input block, and its products relative to it."""
    blocks, lanes = np.divmod(positions[:, 0], tile.per_pixel)
    first = int(blocks.min())
    src = (
        (blocks - first) * tile.plane
        + lanes
        + positions[:, 1] * tile.kernel_row
        + positions[:, 2] * tile.kernel_column
    )
    uops = np.stack([np.zeros_like(src), src, np.arange(len(src))], axis=1)
    return (first - tile.first_block) * tile.plane, uops
