"""Search for the tile sizes of a lane kernel."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.compiler.lowering.costs import (
    issue_cycles,
    load_cycles,
    overlapped,
    store_cycles,
)
from tilewright.compiler.lowering.emitter import MAX_EXTENT
from tilewright.compiler.lowering.kernels import Window
from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.compiler.lowering.tiling import (
    misfit,
    parts,
    streamed_entries,
    streamed_rows,
)
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import CompileError
from tilewright.isa.memo import memoize


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTiling:
    """Output rows, columns and layout blocks of one tile."""

    rows: int
    columns: int
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneShape:
    """What the search needs to know about a lane kernel."""

    window: Window
    sources: tuple[BlockedTensor, ...]
    output: BlockedTensor
    #: Rows, columns and channels that are computed.
    rows: int
    columns: int
    channels: int
    #: Block, row and column of the output where the result begins.
    target: tuple[int, int, int]
    #: Steps per result.
    taps: int
    micro_ops: int
    coefficients_per_channel: bool
    scales_per_channel: bool
    #: Numbers of covered positions that have a scale of their own.
    scale_counts: tuple[int, ...]
    lookup: bool
    #: Finishes all channels of a few rows before it goes on to the next rows.
    streamed: bool
    #: Rows and columns of equal results that each computed one becomes.
    repeat: tuple[int, int] = (1, 1)


def choose_lane_tiling(shape: LaneShape, config: AcceleratorConfig) -> LaneTiling:
    """Return the tiling with the fewest estimated cycles.

    Raises
    ------
    CompileError
        If no tile fits the scratchpads; the message names the scratchpad that is too small for
        even the smallest tile.
    """
    return legal_lane_tilings(shape, config)[0]


@memoize
def legal_lane_tilings(shape: LaneShape, config: AcceleratorConfig) -> tuple[LaneTiling, ...]:
    """Return every tiling that fits, by estimated cycles; there is at least one.

    Raises
    ------
    CompileError
        As `choose_lane_tiling`.
    """
    estimated = [
        (cycles, tiling)
        for tiling in _candidates(shape, config)
        if (cycles := _estimate(shape, tiling, config)) is not None
    ]
    if not estimated:
        raise CompileError(_misfit(shape, config))
    return tuple(tiling for _, tiling in sorted(estimated, key=lambda one: one[0]))


def _candidates(shape: LaneShape, config: AcceleratorConfig) -> Iterator[LaneTiling]:
    most_rows = streamed_rows(shape.rows) if shape.streamed else shape.rows
    out_entries = streamed_entries(config) if shape.streamed else config.out_entries
    for columns in parts(shape.columns, most=6):
        for blocks in parts(_blocks(shape, config)):
            room = out_entries // (blocks * _per_pixel(config) * columns * math.prod(shape.repeat))
            largest = min(most_rows, room, MAX_EXTENT)
            for rows in parts(shape.rows, most=10, largest=largest):
                yield LaneTiling(rows=rows, columns=columns, blocks=blocks)


def _per_pixel(config: AcceleratorConfig) -> int:
    return config.layout_block // config.block_out


def _blocks(shape: LaneShape, config: AcceleratorConfig) -> int:
    return -(-shape.channels // config.layout_block)


def _reach(shape: LaneShape, rows: int, columns: int, config: AcceleratorConfig) -> int:
    window = shape.window
    return (
        window.span(0, 0, rows, 1 << 30).reach * window.span(1, 0, columns, 1 << 30).reach
    ) * _per_pixel(config)


def _longest_extent(shape: LaneShape, tiling: LaneTiling, config: AcceleratorConfig) -> int:
    """Return the most entries, rows or planes that a load or a store of a tile has."""
    rows = shape.window.span(0, 0, tiling.rows, 1 << 30).reach
    columns = shape.window.span(1, 0, tiling.columns, 1 << 30).reach
    down, across = shape.repeat
    return max(
        rows,
        tiling.rows * down,
        max(columns, tiling.columns * across) * _per_pixel(config),
        tiling.blocks,
    )


def _fits(shape: LaneShape, tiling: LaneTiling, config: AcceleratorConfig) -> bool:
    entries = _reach(shape, tiling.rows, tiling.columns, config) * tiling.blocks
    per_pixel = _per_pixel(config)
    coef = shape.taps * per_pixel * tiling.blocks if shape.coefficients_per_channel else 0
    prm = per_pixel * tiling.blocks if shape.scales_per_channel else 0
    return (
        entries * len(shape.sources) <= config.vec_entries
        and shape.micro_ops <= config.vector_uop_entries
        and coef <= config.coef_entries
        and prm <= config.prm_entries
        and _longest_extent(shape, tiling, config) <= MAX_EXTENT
    )


def _estimate(shape: LaneShape, tiling: LaneTiling, config: AcceleratorConfig) -> float | None:
    """Estimate the cycles of a tiling, or None where a tile does not fit."""
    if not _fits(shape, tiling, config):
        return None
    window, per_pixel = shape.window, _per_pixel(config)
    blocks = _blocks(shape, config)
    entries = _reach(shape, tiling.rows, tiling.columns, config) * tiling.blocks
    count = (
        -(-shape.rows // tiling.rows)
        * -(-shape.columns // tiling.columns)
        * -(-blocks // tiling.blocks)
    )
    pixel = config.batch * config.layout_block
    source = shape.sources[0].shape
    rows = min(window.span(0, 0, tiling.rows, 1 << 30).reach, source.height)
    columns = min(window.span(1, 0, tiling.columns, 1 << 30).reach, source.width)
    padding = max(0, entries - rows * columns * tiling.blocks * per_pixel)
    load = len(shape.sources) * load_cycles(rows * tiling.blocks, columns * pixel, padding, config)
    down, across = shape.repeat
    store = store_cycles(
        tiling.rows * down * tiling.blocks, tiling.columns * across * pixel, config
    )
    steps = shape.rows * down * shape.columns * across * blocks * per_pixel * shape.taps
    vector = issue_cycles(steps, count * per_pixel)
    single = count > 1 and 2 * entries * len(shape.sources) > config.vec_entries
    return shape.output.groups * overlapped(
        (count * load, vector, count * store), count, config, single_buffered=single
    )


def _misfit(shape: LaneShape, config: AcceleratorConfig) -> str:
    per_pixel = _per_pixel(config)
    coef = shape.taps * per_pixel * shape.coefficients_per_channel
    needs = (
        ("vec", _reach(shape, 1, 1, config) * len(shape.sources), config.vec_entries),
        ("vuop", shape.micro_ops, config.vector_uop_entries),
        ("coef", coef, config.coef_entries),
        ("prm", per_pixel * shape.scales_per_channel, config.prm_entries),
        ("out", per_pixel * math.prod(shape.repeat), config.out_entries),
    )
    return misfit(needs)
