"""Schedules of matrix kernels: the windows they read, tiles in registers, what threads share."""

from dataclasses import dataclass

from typing_extensions import assert_never

from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
from tilewright.cpu_gpu_backends.cpu.plans import MatrixPlan, Outside
from tilewright.cpu_gpu_backends.cpu.program import REGISTER
from tilewright.cpu_gpu_backends.cpu.sums import Sums
from tilewright.cpu_gpu_backends.cpu.tiles import Panels, lanes, tile_rows

#: Weights up to this size stay in the second-level cache while rows are streamed past them.
_CACHED_WEIGHT_BYTES = 512 * 1024
#: Weights up to this size stay in the nearest cache; of others so many bytes are fetched ahead.
_NEAR_WEIGHT_BYTES, _AHEAD_BYTES = 16 * 1024, 12 * 1024
#: Positions that read so many bytes together stay there while panels are streamed past them, in the
#: cache of the one processor that also wrote them: not worth it for fewer tiles than these, nor
#: where a position reads fewer bytes.
_CACHED_BLOCK_BYTES, _FEWEST_TILES, _FEWEST_READ_BYTES = 1024 * 1024, 4, 1024
#: Kernels of fewer tasks are shared among threads by parts of a row, too.
_FEWEST_TASKS = 8
#: Iterations of the innermost loop that are written out.
_UNROLL = 4
#: Code of a tile is written out up to so many vector operations per iteration.
_MOST_OPERATIONS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The stretches of memory that one output position of a matrix kernel reads.

    Attributes
    ----------
    batch, rows, columns
        Output positions.
    row_step, column_step
        From one output position to the next: in rows, and in numbers along a row.
    kernel_rows, row_dilation
        Rows of the window, and the step between them.
    kernel_columns, column_dilation
        Stretches in a row of the window, and the numbers between their beginnings.
    length
        Numbers in a stretch.
    planes, plane_rows
        Times that the rows of the window are read, and how many rows further each time.
    """

    batch: int
    rows: int
    columns: int
    row_step: int
    column_step: int
    kernel_rows: int
    row_dilation: int
    kernel_columns: int
    column_dilation: int
    length: int
    planes: int = 1
    plane_rows: int = 0

    @property
    def stretched_rows(self) -> int:
        """Rows that one output position reads, in all planes."""
        return self.planes * self.kernel_rows

    @property
    def depth(self) -> int:
        """Numbers that one output position reads."""
        return self.stretched_rows * self.kernel_columns * self.length

    @property
    def image(self) -> tuple[int, int, int]:
        """Batch, rows and numbers along a row that all positions together read."""
        rows = (self.rows - 1) * self.row_step + (self.kernel_rows - 1) * self.row_dilation + 1
        rows += (self.planes - 1) * self.plane_rows
        row = (self.columns - 1) * self.column_step
        row += (self.kernel_columns - 1) * self.column_dilation + self.length
        return self.batch, rows, row


def positions_plan(panel: int, columns: int, target: CpuTarget) -> MatrixPlan:
    """Return the plan of a kernel that threads share by rows of its result, `columns` wide."""
    return MatrixPlan(
        panel=panel,
        positions=min(tile_rows(panel, target), columns),
        outside=Outside.POSITIONS,
        unroll=_UNROLL,
    )


def usual_plan(
    window: Window, panels: Panels, weight_dtype: ScalarType, target: CpuTarget
) -> MatrixPlan:
    """Return the plan of a kernel that no tuner has seen."""
    most = tile_rows(panels.width, target)
    block = 0
    if min(window.rows, most // window.columns) < 2:
        block = _tiles_per_panel(window, panels, most, int(weight_dtype.numpy.itemsize))
    return MatrixPlan(
        panel=panels.width,
        positions=most,
        outside=Outside.POSITIONS if block else Outside.PANELS,
        block=max(1, block),
        unroll=_UNROLL,
    )


def _tiles_per_panel(window: Window, panels: Panels, most: int, size_bytes: int) -> int:
    """Return how many tiles of positions are computed for a panel before the next; 0 for all.

    Weights that stay in the second-level cache are read anew for each tile. Of others each panel
    is read for so many tiles as the cache holds, if these are enough to be worth it.
    """
    columns = _even_columns(window, most)
    in_row = window.columns // columns
    tasks = window.batch * window.rows * in_row
    if tasks < _FEWEST_TASKS:
        return 0
    if panels.channels * window.depth * size_bytes <= _CACHED_WEIGHT_BYTES:
        return 1
    read_bytes = window.depth * size_bytes
    block = min(_CACHED_BLOCK_BYTES // (columns * read_bytes), tasks // _FEWEST_TASKS, in_row)
    worth_it = block >= _FEWEST_TILES and read_bytes >= _FEWEST_READ_BYTES
    return _divisor(in_row, block) if worth_it else 0


def arrange_matrix(
    s: Schedule,
    window: Window,
    panels: Panels,
    sums: Sums,
    target: CpuTarget,
    plan: MatrixPlan,
    same_positions: bool,
) -> None:
    """Schedule: tiles in registers, panels or rows outermost, that loop shared by the threads."""
    width = sums.width(panels)
    positions = min(plan.positions, tile_rows(width, target))
    columns = _tile_columns(window, positions)
    rows = max(1, min(window.rows, positions // window.columns))
    s.split("out", "o", panels.width)
    match plan.outside:
        case Outside.POSITIONS:
            rows = _divisor(window.rows, rows)
            if same_positions and _even_columns(window, columns) < window.columns:
                columns = _parts_outside(s, window, columns)
            else:
                columns = _positions_outside(s, window, rows, columns, plan.block)
        case Outside.PANELS:
            columns = _panels_outside(s, window, panels, rows, columns)
        case _:
            assert_never(plan.outside)
    s.set_scope("sum", REGISTER)
    for stage, loops in (("out", ("y.inner", "x.inner")), ("sum", ("y", "x"))):
        for loop in loops:
            s.unroll(stage, loop)
    s.vectorize("out", "o.inner")
    operations = rows * columns * -(-width // lanes(target))
    _arrange_sums(s, window, sums, operations, plan.unroll)


def fetch_weights_ahead(
    s: Schedule, window: Window, panels: Panels, weight_dtype: ScalarType
) -> None:
    """Schedule: packed weights are asked for before they are read, if they are many.

    They are read in the order in which they lie, each panel for some tiles: the first of these
    would wait for memory or for a cache far away.
    """
    size_bytes = int(weight_dtype.numpy.itemsize)
    if panels.channels * window.depth * size_bytes > _NEAR_WEIGHT_BYTES:
        s.prefetch("weights", _AHEAD_BYTES // size_bytes)


def _divisor(extent: int, most: int) -> int:
    """Return the largest divisor up to `most`."""
    return next(part for part in range(min(most, extent), 0, -1) if extent % part == 0)


def _tile_columns(window: Window, most: int) -> int:
    """Return the columns of as few tiles of at most `most` as there can be, all alike but one."""
    return -(-window.columns // -(-window.columns // most))


def _even_columns(window: Window, most: int) -> int:
    """Return the columns of tiles without a remainder; those of all, if they would be small.

    In a loop that threads share no last iteration stands apart.
    """
    columns = _tile_columns(window, most)
    even = _divisor(window.columns, columns)
    return even if 2 * even > columns else window.columns


def _positions_outside(s: Schedule, window: Window, rows: int, columns: int, block: int) -> int:
    """Arrange the loops and return the columns of a tile.

    Few rows are shared among threads by parts of a row, too.
    """
    even = _even_columns(window, columns)
    shares_parts = window.batch * window.rows // rows < _FEWEST_TASKS and even < window.columns
    if shares_parts:
        columns = even
    s.split("out", "x", columns)
    s.split("out", "y", rows)
    s.split("out", "x.outer", _divisor(-(-window.columns // columns), block))
    tile = ("x.outer.inner", "y.inner", "x.inner", "o.inner")
    s.reorder("out", "n", "y.outer", "x.outer.outer", "o.outer", *tile)
    s.fuse("out", "n", "y.outer", name="task")
    if shares_parts:
        s.fuse("out", "task", "x.outer.outer", name="tasks")
    s.parallel("out", s.loops("out")[0])
    s.compute_at("sum", "out", "x.outer.inner")
    return columns


def _parts_outside(s: Schedule, window: Window, columns: int) -> int:
    """Arrange the loops so that a task is a part of all images; return the columns of a tile."""
    columns = _even_columns(window, columns)
    s.split("out", "x", columns)
    s.split("out", "y", 1)
    s.reorder("out", "x.outer", "n", "y.outer", "o.outer", "y.inner", "x.inner", "o.inner")
    s.fuse("out", "x.outer", "n", name="task")
    s.parallel("out", s.fuse("out", "task", "y.outer", name="tasks"))
    s.compute_at("sum", "out", "o.outer")
    return columns


def _panels_outside(s: Schedule, window: Window, panels: Panels, rows: int, columns: int) -> int:
    """Arrange the loops and return the columns of a tile.

    Few panels of one row are shared among threads by parts of the row, too.
    """
    even = _even_columns(window, columns)
    few = panels.count * window.batch < _FEWEST_TASKS and window.rows == 1
    shares_parts = few and even < window.columns
    if shares_parts:
        columns = even
    s.split("out", "x", columns)
    s.split("out", "y", rows)
    tile = ("x.outer", "y.inner", "x.inner", "o.inner")
    s.reorder("out", "o.outer", "n", "y.outer", *tile)
    s.fuse("out", "o.outer", "n", name="task")
    if window.rows % rows == 0:
        s.fuse("out", "task", "y.outer", name="tasks")
    if shares_parts:
        s.fuse("out", "tasks", "x.outer", name="parts")
    s.parallel("out", s.loops("out")[0])
    s.compute_at("sum", "out", s.loops("out")[s.loops("out").index("y.inner") - 1])
    return columns


def _arrange_sums(s: Schedule, window: Window, sums: Sums, operations: int, unroll: int) -> None:
    steps = window.length // sums.depth
    most = max(1, _MOST_OPERATIONS // operations)
    if window.columns > 1:
        # What two positions share would be kept from one step to another, for want of registers.
        most = min(most, (max(1, window.column_step) - 1) // sums.depth + 1)
    s.split("sum", "k", _divisor(steps, min(most, unroll)))
    loops = ["ky", "kx", "k.outer", "k.inner"]
    if window.planes > 1:
        loops[0], within = s.split("sum", "ky", window.kernel_rows)
        loops.append(within)
        if operations * window.kernel_rows <= _MOST_OPERATIONS:
            s.unroll("sum", within)
    s.reorder("sum", *loops, "n", "y", "x", "p", "o", *(() if sums.dots is None else ("t",)))
    s.unroll("sum", "k.inner")
    if sums.dots is None:
        s.vectorize("sum", "o")
    else:
        s.tensorize("sum", "o", sums.dots.value)
