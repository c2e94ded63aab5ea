"""Search for the tile sizes and the loop order of a convolution on the array."""

from collections.abc import Iterable, Iterator
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
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import CompileError
from tilewright.isa.memo import memoize
from tilewright.isa.memories import Memory, memory_shapes
from tilewright.isa.timing import VECTOR_STAGES


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixTiling:
    """Sizes of one tile of a convolution and which loop is outside."""

    #: Output rows and columns.
    rows: int
    columns: int
    #: Blocks of output channels, of `layout_block` channels each.
    out_blocks: int
    #: Blocks of input channels per pass over the accumulators, of `layout_block` channels each.
    in_blocks: int
    #: Channels outside and positions inside (weights stay), else the other way (inputs stay).
    channels_outside: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixShape:
    """What the search needs to know about a convolution."""

    window: Window
    source: BlockedTensor
    output: BlockedTensor
    #: Largest number of products of one block of `block_out` output channels per output pixel.
    products: int
    #: Products of all blocks per output pixel.
    all_products: int
    #: First and last input layout block that each output layout block reads; empty where all read
    #: all, so that a pass can take any of them.
    spans: tuple[tuple[int, int], ...]
    residual: bool
    #: Finishes all channels of a few rows before it goes on to the next rows.
    streamed: bool

    def in_blocks(self, out_blocks: int) -> int:
        """Return the most input blocks that a tile of so many output blocks reads."""
        if not self.spans:
            return self.source.blocks
        tiles = (
            self.spans[begin : begin + out_blocks]
            for begin in range(0, len(self.spans), out_blocks)
        )
        return max(
            max(last for _, last in tile) - min(first for first, _ in tile) + 1 for tile in tiles
        )


#: Bands of rows that a plane is cut to at least where kernels take turns.
_BANDS = 4


def streamed_rows(rows: int) -> int:
    """Return the most rows of a tile of a kernel that takes turns with its neighbours."""
    return -(-rows // _BANDS)


def streamed_entries(config: AcceleratorConfig) -> int:
    """Return the most entries of `out` of a tile of a kernel that takes turns: both kernels have
    one tile being written and one being stored.
    """
    return config.out_entries // 4


@memoize
def legal_tilings(shape: MatrixShape, config: AcceleratorConfig) -> tuple[MatrixTiling, ...]:
    """Return every tiling that fits, by estimated cycles; there is at least one.

    Raises
    ------
    CompileError
        If no tile fits the scratchpads; the message names the scratchpad that is too small for
        even the smallest tile.
    """
    estimated = [
        (cycles, tiling)
        for tiling in _candidates(shape, config)
        if (cycles := _estimate(shape, tiling, config)) is not None
    ]
    if not estimated:
        raise CompileError(_misfit(shape, config))
    return tuple(tiling for _, tiling in sorted(estimated, key=lambda one: one[0]))


def _candidates(shape: MatrixShape, config: AcceleratorConfig) -> Iterator[MatrixTiling]:
    height, width = shape.output.shape.height, shape.output.shape.width
    per_block = config.layout_block // config.block_out
    most_rows = streamed_rows(height) if shape.streamed else height
    out_entries = streamed_entries(config) if shape.streamed else config.out_entries
    orders = (False,) if shape.streamed else (False, True)
    for columns in parts(width, most=8):
        for out_blocks in parts(shape.output.blocks):
            whole = shape.in_blocks(out_blocks)
            in_counts = [whole] if shape.spans else parts(whole)
            room = min(config.acc_bank_entries, out_entries) // (out_blocks * per_block)
            largest = min(most_rows, room // columns, MAX_EXTENT // columns)
            for rows in parts(height, most=12, largest=largest):
                for in_blocks in in_counts:
                    for channels_outside in orders:
                        yield MatrixTiling(
                            rows=rows,
                            columns=columns,
                            out_blocks=out_blocks,
                            in_blocks=in_blocks,
                            channels_outside=channels_outside,
                        )


def parts(size: int, *, most: int = 16, largest: int | None = None) -> list[int]:
    """Return sizes that split `size` evenly, in at most `most` more parts than needed, and 1."""
    limit = size if largest is None else largest
    if limit < 1:
        return []
    fewest = -(-size // limit)
    sizes = {-(-size // count) for count in range(fewest, min(size, fewest + most) + 1)}
    return sorted(sizes | {1}, reverse=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """Entries and repetitions that follow from a tiling."""

    #: Rows and columns of an input tile, padding included.
    source_rows: int
    source_columns: int
    #: Layout blocks of an input tile.
    source_blocks: int
    #: Entries of `inp`, `wgt`, `acc` that a tile needs.
    inp: int
    wgt: int
    results: int
    #: Tiles of positions, and of channels.
    positions: int
    channels: int
    #: Input tiles, and passes over the accumulators, per output tile.
    slices: int
    passes: int


def _count(shape: MatrixShape, tiling: MatrixTiling, config: AcceleratorConfig) -> _Counts | None:
    """Return the counts of a tiling, or None where a tile does not fit."""
    output = shape.output
    out_entries = tiling.out_blocks * (config.layout_block // config.block_out)
    in_blocks = shape.in_blocks(tiling.out_blocks)
    uops = -(-shape.products * tiling.in_blocks // in_blocks)
    splits = product_parts(uops, out_entries, config)
    if splits is None:
        return None
    rows = shape.window.span(0, 0, tiling.rows, 1 << 30).reach
    columns = shape.window.span(1, 0, tiling.columns, 1 << 30).reach
    slices = -(-in_blocks // tiling.in_blocks)
    counts = _Counts(
        source_rows=rows,
        source_columns=columns,
        source_blocks=tiling.in_blocks,
        inp=rows * columns * tiling.in_blocks * (config.layout_block // config.block_in),
        wgt=out_entries * -(-uops // splits),
        results=tiling.rows * tiling.columns * out_entries,
        positions=-(-output.shape.height // tiling.rows) * -(-output.shape.width // tiling.columns),
        channels=-(-output.blocks // tiling.out_blocks),
        slices=slices,
        passes=slices * splits,
    )
    fits = (
        counts.inp <= config.inp_entries
        and counts.results <= min(config.acc_bank_entries, config.out_entries)
        and _parameters(shape, out_entries, config) <= config.prm_entries
        and (not shape.residual or counts.results <= config.vec_entries)
        and _longest_extent(counts, tiling, config) <= MAX_EXTENT
    )
    return counts if fits else None


def _longest_extent(counts: _Counts, tiling: MatrixTiling, config: AcceleratorConfig) -> int:
    """Return the most entries in a row, rows or planes that a load or a store of a tile has."""
    return max(
        counts.source_rows,
        counts.source_columns * (config.layout_block // config.block_in),
        counts.source_blocks,
        tiling.columns * (config.layout_block // config.block_out),
        tiling.out_blocks,
    )


def _parameters(shape: MatrixShape, out_entries: int, config: AcceleratorConfig) -> int:
    """Entries of `prm` that the end of a tile needs at once."""
    everything = shape.output.blocks * (config.layout_block // config.block_out)
    own = everything if everything <= config.prm_entries // 2 else out_entries
    return own + (1 if shape.residual else 0)


def _loads(
    counts: _Counts, config: AcceleratorConfig, *, channels_outside: bool
) -> tuple[int, int]:
    """Return how often an input tile and how often a tile of weights is loaded."""
    inp = counts.positions * counts.slices
    wgt = counts.channels * counts.passes
    if channels_outside:
        inputs_stay = counts.inp * inp <= config.inp_entries
        weights_stay = counts.passes == 1 or counts.wgt * counts.passes <= config.wgt_entries
    else:
        inputs_stay = counts.slices == 1 or counts.inp * counts.slices <= config.inp_entries
        weights_stay = counts.wgt * wgt <= config.wgt_entries
    return (
        inp * (1 if inputs_stay else counts.channels),
        wgt * (1 if weights_stay else counts.positions),
    )


def _estimate(shape: MatrixShape, tiling: MatrixTiling, config: AcceleratorConfig) -> float | None:
    """Estimate the cycles of a tiling, or None where a tile does not fit."""
    counts = _count(shape, tiling, config)
    if counts is None:
        return None
    output = shape.output
    per_out = config.layout_block // config.block_out
    inp_loads, wgt_loads = _loads(counts, config, channels_outside=tiling.channels_outside)
    tiles = counts.positions * counts.channels
    area = output.shape.height * output.shape.width
    results = area * output.blocks * per_out
    row_bytes = tiling.columns * output.pixel_bytes
    load = inp_loads * _input_cycles(shape, counts, config) + wgt_loads * load_cycles(
        1, counts.wgt * memory_shapes(config)[Memory.WGT].entry_bytes, 0, config
    )
    vector = issue_cycles(results, tiles)
    if shape.residual:
        load += tiles * load_cycles(tiling.out_blocks * tiling.rows, row_bytes, 0, config)
        vector += issue_cycles(2 * results, tiles) + tiles * VECTOR_STAGES
    gemm = issue_cycles(area * shape.all_products, tiles * counts.passes * per_out)
    store = tiles * store_cycles(tiling.out_blocks * tiling.rows, row_bytes, config)
    single_buffered = (inp_loads > 1 and 2 * counts.inp > config.inp_entries) or (
        wgt_loads > 1 and 2 * counts.wgt > config.wgt_entries
    )
    return output.groups * overlapped(
        (load, gemm, vector, store), tiles * counts.passes, config, single_buffered=single_buffered
    )


def _input_cycles(shape: MatrixShape, counts: _Counts, config: AcceleratorConfig) -> float:
    """Estimate the cycles of the load of an input tile."""
    rows = min(counts.source_rows, shape.source.shape.height)
    columns = min(counts.source_columns, shape.source.shape.width)
    per_in = config.layout_block // config.block_in
    padding = counts.source_rows * counts.source_columns - rows * columns
    return load_cycles(
        counts.source_blocks * rows,
        columns * shape.source.pixel_bytes,
        padding * counts.source_blocks * per_in,
        config,
    )


def product_parts(products: int, out_entries: int, config: AcceleratorConfig) -> int | None:
    """Return in how many parts the products of `out_entries` output blocks pass through `wgt`.

    None where not even one product each fits.
    """
    largest = min(config.wgt_entries // out_entries, config.gemm_uop_entries)
    if products <= largest:
        return 1
    half = min(config.wgt_entries // 2 // out_entries, config.gemm_uop_entries // 2)
    return -(-products // half) if half else None


def _misfit(shape: MatrixShape, config: AcceleratorConfig) -> str:
    """Say which scratchpad the smallest tile does not fit."""
    in_blocks = shape.in_blocks(1) if shape.spans else 1
    per_in = config.layout_block // config.block_in
    rows = shape.window.span(0, 0, 1, 1 << 30).reach
    columns = shape.window.span(1, 0, 1, 1 << 30).reach
    inp = rows * columns * in_blocks * per_in
    per_out = config.layout_block // config.block_out
    needs = (
        ("inp", inp, config.inp_entries),
        ("wgt", 2 * per_out, config.wgt_entries),
        ("acc", 2 * per_out, config.acc_entries),
        ("out", per_out, config.out_entries),
        ("vec", per_out, config.vec_entries),
        ("prm", _parameters(shape, per_out, config), config.prm_entries),
    )
    return misfit(needs)


def misfit(needs: Iterable[tuple[str, int, int]]) -> str:
    """Say which scratchpads are too small, each given with the entries needed and those it has."""
    lacking = [f"{name} ({need} of {have} entries)" for name, need, have in needs if need > have]
    if not lacking:
        return f"the smallest tile has more than {MAX_EXTENT} entries in a row, rows or planes"
    return f"the smallest tile does not fit scratchpad {', '.join(lacking)}"
