"""Loads and stores of an operation in one tile: the part of a tensor that moves, and its border."""

from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import assert_never

from tilewright.compiler.lowering.bindings import (
    Binding,
    ConstantEntries,
    DramView,
    Fill,
    PairView,
    Terms,
    WeightBlocks,
    WeightTerms,
    WeightTiles,
)
from tilewright.compiler.lowering.buffers import (
    Buffer,
    ConstantLoad,
    FillLoad,
    Placed,
    TileLoad,
    WeightLoad,
    WeightTileLoad,
)
from tilewright.compiler.lowering.emitter import NO_PADDING, Emitter, Padding
from tilewright.compiler.lowering.nests import Access, Operation
from tilewright.compiler.lowering.regions import tile_region
from tilewright.compiler.lowering.tables import Indices
from tilewright.compiler.tensor.accelerator import memory_of
from tilewright.isa.errors import CompileError

#: Axes of activations in DRAM: group, block, row, column, part, image, lane.
_RANK = 7
#: The axis of blocks where terms and groups are in front.
_TERM_PLANES = 2
#: Axes of weights with terms: term, group, row, block, part, block of inputs, part of inputs.
_WEIGHT_AXES = 7
#: With rows and columns given by two axes each.
_INTERLEAVED_RANK = 9


def evaluate_load(
    operation: Operation,
    indices: Indices,
    numbers: Mapping[str, int],
    binding: Binding,
    origins: tuple[int, ...],
) -> Buffer:
    """Return what a load brings into a tensor whose first entry is the one at `origins`.

    `numbers` holds the parameters of its intrinsic.
    """
    extents = tuple(extent.at(indices) for extent in operation.extents)
    source, target = operation.inputs["source"], operation.output
    begins = tuple(base.at(indices) for base in source.bases)
    sizes = _sizes(target, extents, len(origins))
    match binding:
        case ConstantEntries():
            return ConstantLoad(
                memory=memory_of(target.tensor.scope),
                constant=binding,
                begins=begins[: binding.entries.ndim - 1],
                sizes=_sizes(source, extents, binding.entries.ndim - 1),
                layout=sizes,
                origins=origins,
            )
        case WeightBlocks():
            count = binding.present.ndim
            return WeightLoad(weights=binding, begins=begins[:count])
        case PairView():
            return _pair_load(operation, begins, extents, binding, sizes, origins)
        case Fill():
            memory = memory_of(target.tensor.scope)
            return FillLoad(
                memory=memory,
                value=binding.value,
                sizes=sizes,
                origins=origins,
                plane_axis=target.axes[0],
            )
        case DramView():
            return _tile_load(operation, indices, numbers, binding, extents, sizes, origins)
        case Terms():
            return _term_load(operation, begins, extents, binding, sizes, origins)
        case WeightTerms():
            return _weight_load(begins, binding)
        case WeightTiles():
            raise CompileError(f"{source.tensor.name!r} must have an axis of terms")
        case _:
            assert_never(binding)


def _pair_load(
    operation: Operation,
    begins: tuple[int, ...],
    extents: tuple[int, ...],
    binding: PairView,
    sizes: tuple[int, ...],
    origins: tuple[int, ...],
) -> TileLoad:
    """Return the load of blocks, rows and columns of factors; two pixels hold one of them."""
    group, block, row, column, *_ = begins
    _, blocks, rows, columns, *_ = extents
    return TileLoad(
        memory=memory_of(operation.output.tensor.scope),
        view=binding.pairs,
        group=group,
        block=block,
        blocks=blocks,
        row=row,
        rows=rows,
        column=2 * column,
        columns=2 * columns,
        padding=NO_PADDING,
        sizes=sizes,
        origins=origins,
        plane_axis=1,
    )


def _sizes(access: Access, extents: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return how many indices along the first `rank` axes an access covers."""
    sizes = [1] * rank
    for axis, extent in zip(access.axes, extents, strict=True):
        if axis < rank:
            sizes[axis] = extent
    return tuple(sizes)


def _tile_load(
    operation: Operation,
    indices: Indices,
    border: Mapping[str, int],
    view: DramView,
    extents: tuple[int, ...],
    sizes: tuple[int, ...],
    origins: tuple[int, ...],
) -> TileLoad:
    source, target = operation.inputs["source"], operation.output
    _check_tile(source)
    group, block, row, column, *_ = (base.at(indices) for base in source.bases)
    planes, rows, columns, parts, *_ = extents
    top, bottom = _inside(border.get("top", 0), border.get("bottom", rows), rows)
    left, right = _inside(border.get("left", 0), border.get("right", columns), columns)
    return TileLoad(
        memory=memory_of(target.tensor.scope),
        view=view,
        group=group,
        block=block,
        blocks=planes,
        row=row + top,
        rows=bottom - top,
        column=column + left,
        columns=right - left,
        padding=Padding(
            left=left * parts,
            right=(columns - right) * parts,
            top=top,
            bottom=rows - bottom,
            value=border.get("fill", 0),
        ),
        sizes=sizes,
        origins=origins,
        plane_axis=target.axes[0],
    )


def _term_load(
    operation: Operation,
    begins: tuple[int, ...],
    extents: tuple[int, ...],
    binding: Terms,
    sizes: tuple[int, ...],
    origins: tuple[int, ...],
) -> TileLoad | FillLoad:
    """Return the load of blocks, rows and columns of the tensor of one term."""
    term, group, block, row, column, *_ = begins
    _, _, blocks, rows, columns, *_ = extents
    memory = memory_of(operation.output.tensor.scope)
    match binding.terms[term]:
        case Fill(value=value):
            return FillLoad(
                memory=memory, value=value, sizes=sizes, origins=origins, plane_axis=_TERM_PLANES
            )
        case DramView() as view:
            return TileLoad(
                memory=memory,
                view=view,
                group=group,
                block=block,
                blocks=blocks,
                row=row,
                rows=rows,
                column=column,
                columns=columns,
                padding=NO_PADDING,
                sizes=sizes,
                origins=origins,
                plane_axis=_TERM_PLANES,
            )


def _weight_load(begins: tuple[int, ...], binding: WeightTerms) -> WeightLoad | WeightTileLoad:
    """Return the load of the weights of one term."""
    term, group, row, *blocks = begins[:_WEIGHT_AXES]
    match binding.terms[term]:
        case WeightBlocks() as constants:
            return WeightLoad(weights=constants, begins=(0, 0, 0, *blocks))
        case WeightTiles() as tiles:
            return WeightTileLoad(weights=tiles, begins=(0, group, row, *blocks))


def _inside(begin: int, end: int, extent: int) -> tuple[int, int]:
    """Return the first index of an axis inside the image and the one after the last."""
    first = min(max(begin, 0), extent)
    return first, min(max(end, first), extent)


def _check_tile(access: Access) -> None:
    if len(access.tensor.shape) != _RANK or access.axes != tuple(range(1, _RANK)):
        raise CompileError(
            f"{access.tensor.name!r} must have the axes group, block, row, column, part, image,"
            " lane, and be moved by blocks, rows and columns"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTile:
    """What a store writes: some blocks of a group, rows and columns, of a view's tensor."""

    group: int
    block: int
    blocks: int
    row: int
    rows: int
    column: int
    columns: int
    parts: int


def stored_tile(operation: Operation, indices: Indices, view: DramView) -> StoredTile:
    """Return what a store writes in a tile; rows and columns may be given by two axes each."""
    target = operation.output
    begins = [base.at(indices) for base in target.bases]
    extents = [extent.at(indices) for extent in operation.extents]
    if len(begins) == _INTERLEAVED_RANK and target.axes == tuple(range(1, _INTERLEAVED_RANK)):
        group, block, row, phase_row, column, phase_column, *_ = begins
        blocks, rows, phase_rows, columns, phase_columns, parts, *_ = extents
        whole = (target.tensor.shape[3], target.tensor.shape[5])
        if (phase_row, phase_column, phase_rows, phase_columns) != (0, 0, *whole):
            raise CompileError(f"a store must take all phases of {target.tensor.name!r}")
        row, rows = row * whole[0], rows * whole[0]
        column, columns = column * whole[1], columns * whole[1]
    else:
        _check_tile(target)
        group, block, row, column, *_ = begins
        blocks, rows, columns, parts, *_ = extents
    return StoredTile(
        group=group,
        block=view.block + block,
        blocks=blocks,
        row=view.row + row,
        rows=rows,
        column=view.column + column,
        columns=columns,
        parts=parts,
    )


def emit_store(
    operation: Operation, indices: Indices, view: DramView, source: Placed, emitter: Emitter
) -> None:
    """Append the store of a tile."""
    tile = stored_tile(operation, indices, view)
    if source.span.entries != tile.blocks * tile.rows * tile.columns * tile.parts:
        raise CompileError(f"a store must take all of {operation.inputs['source'].tensor.name!r}")
    region = tile_region(
        view.tensor,
        group=tile.group,
        block=tile.block,
        blocks=tile.blocks,
        row=tile.row,
        rows=tile.rows,
        column=tile.column,
        columns=tile.columns,
        entry_bytes=emitter.config.lane_entry_bytes,
        merge=True,
    )
    emitter.store(source.span, region)
