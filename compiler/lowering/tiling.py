"""Search for the tile sizes and the loop order of a convolution on the array."""

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
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import CompileError
from tilewright.isa.memo import memoize


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
    #: Blocks of input channels that one block of output channels reads.
    in_blocks: int
    #: Products of one pass can be any subset of the input blocks.
    divisible: bool
    residual: bool


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
def choose_tiling(
    shape: MatrixShape, config: AcceleratorConfig, *, streamed: bool = False
) -> MatrixTiling:
    """Return the tiling with the fewest estimated cycles.

    A `streamed` kernel finishes all channels of a few rows before it goes on to the next rows.

    Raises
    ------
    CompileError
        If no tile fits the scratchpads; the message names the scratchpad that is too small for
        even the smallest tile.
    """
    best: tuple[float, MatrixTiling] | None = None
    for tiling in _candidates(shape, config, streamed=streamed):
        if streamed and tiling.channels_outside:
            continue
        cycles = _estimate(shape, tiling, config)
        if cycles is not None and (best is None or cycles < best[0]):
            best = (cycles, tiling)
    if best is None:
        raise CompileError(_misfit(shape, config))
    return best[1]


def _candidates(
    shape: MatrixShape, config: AcceleratorConfig, *, streamed: bool
) -> Iterator[MatrixTiling]:
    height, width = shape.output.shape.height, shape.output.shape.width
    per_block = config.layout_block // config.block_out
    most_rows = streamed_rows(height) if streamed else height
    out_entries = streamed_entries(config) if streamed else config.out_entries
    in_counts = parts(shape.in_blocks) if shape.divisible else [shape.in_blocks]
    for columns in parts(width, most=8):
        for out_blocks in parts(shape.output.blocks):
            room = min(config.acc_bank_entries, out_entries) // (out_blocks * per_block)
            largest = min(most_rows, room // columns, MAX_EXTENT // columns)
            for rows in parts(height, most=12, largest=largest):
                for in_blocks in in_counts:
                    for channels_outside in (False, True):
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


def _estimate(shape: MatrixShape, tiling: MatrixTiling, config: AcceleratorConfig) -> float | None:
    """Estimate the cycles of a tiling, or None where a tile does not fit."""
    output, source = shape.output, shape.source
    per_out = config.layout_block // config.block_out
    per_in = config.layout_block // config.block_in
    rows = shape.window.span(0, 0, tiling.rows, 1 << 30).reach
    columns = shape.window.span(1, 0, tiling.columns, 1 << 30).reach
    positions = -(-output.shape.height // tiling.rows) * -(-output.shape.width // tiling.columns)
    channels = -(-output.blocks // tiling.out_blocks)
    slices = -(-shape.in_blocks // tiling.in_blocks)
    uops = -(-shape.products * tiling.in_blocks // shape.in_blocks)
    in_blocks = tiling.in_blocks
    if not shape.divisible:
        in_blocks = min(source.blocks, in_blocks * tiling.out_blocks)
    inp = rows * columns * in_blocks * per_in
    splits = product_parts(uops, tiling.out_blocks * per_out, config)
    if splits is None:
        return None
    wgt = tiling.out_blocks * per_out * -(-uops // splits)
    results = tiling.rows * tiling.columns * tiling.out_blocks * per_out
    if not _fits(inp, results, shape, config):
        return None
    passes = slices * splits
    if tiling.channels_outside:
        inputs_stay = inp * positions * slices <= config.inp_entries
        inp_loads = positions * slices * (1 if inputs_stay else channels)
        weights_stay = passes == 1 or wgt * passes <= config.wgt_entries
        wgt_loads = channels * passes * (1 if weights_stay else positions)
    else:
        inputs_stay = slices == 1 or inp * slices <= config.inp_entries
        inp_loads = positions * slices * (1 if inputs_stay else channels)
        weights_stay = wgt * channels * passes <= config.wgt_entries
        wgt_loads = channels * passes * (1 if weights_stay else positions)
    pixel = config.batch * config.layout_block
    wgt_bytes = config.block_in * config.block_out
    inner_rows = min(rows, source.shape.height)
    inner_columns = min(columns, source.shape.width)
    padding = max(0, rows * columns - inner_rows * inner_columns) * in_blocks * per_in
    load = inp_loads * load_cycles(
        in_blocks * inner_rows, inner_columns * pixel, padding, config
    ) + wgt_loads * load_cycles(1, wgt * wgt_bytes, 0, config)
    tiles = positions * channels
    area = output.shape.height * output.shape.width
    gemm = issue_cycles(area * shape.all_products, tiles * passes * per_out)
    outputs = area * output.blocks * per_out
    vector = issue_cycles(
        outputs * (3 if shape.residual else 1), tiles * (10 if shape.residual else 1)
    )
    if shape.residual:
        load += tiles * load_cycles(
            tiling.out_blocks * tiling.rows, tiling.columns * pixel, 0, config
        )
    store = tiles * store_cycles(tiling.out_blocks * tiling.rows, tiling.columns * pixel, config)
    single = (inp_loads > 1 and 2 * inp > config.inp_entries) or (
        wgt_loads > 1 and 2 * wgt > config.wgt_entries
    )
    return output.groups * overlapped(
        (load, gemm, vector, store), tiles * passes, config, single_buffered=single
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


def _fits(inp: int, results: int, shape: MatrixShape, config: AcceleratorConfig) -> bool:
    return (
        inp <= config.inp_entries
        and results <= min(config.acc_bank_entries, config.out_entries)
        and (not shape.residual or results <= config.vec_entries)
    )


def _misfit(shape: MatrixShape, config: AcceleratorConfig) -> str:
    """Say which scratchpad the smallest tile does not fit."""
    in_blocks = 1 if shape.divisible else shape.in_blocks
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
    )
    lacking = [f"{name} ({need} of {have} entries)" for name, need, have in needs if need > have]
    return f"the smallest tile does not fit scratchpad {', '.join(lacking)}"
