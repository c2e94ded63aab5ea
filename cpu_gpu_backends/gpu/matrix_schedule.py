"""The schedule of a matrix product: tiles in shared memory, tiles in registers, one thread each."""

from tilewright.compiler.tensor.build import cast, reduce_sum
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.intrinsics import Intrinsic
from tilewright.compiler.tensor.realisation import SHARED_SCOPE
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.compiler.tensor.statements import LoopKind
from tilewright.cpu_gpu_backends.gpu.intrinsics import Emitter
from tilewright.cpu_gpu_backends.gpu.matrix_form import MatrixForm
from tilewright.cpu_gpu_backends.gpu.row_schedule import LOCAL_SCOPE, fuse_loops
from tilewright.cpu_gpu_backends.gpu.tiles import ROW_UNIT_BYTES, MatrixTile
from tilewright.cpu_gpu_backends.gpu.vectors import VECTOR_BYTES

#: Products along the depth that are written out together, or that one dot product adds.
_DEPTH = 4


def dot4() -> Intrinsic:
    """Return the intrinsic that adds four products of int8 in shared memory."""
    int8, int32 = ScalarType.INT8, ScalarType.INT32
    left = placeholder((_DEPTH,), int8, "left", scope=SHARED_SCOPE)
    right = placeholder((_DEPTH,), int8, "right", scope=SHARED_SCOPE)
    k = reduce_axis(_DEPTH, "k")
    pattern = compute(
        (),
        lambda: reduce_sum(cast(left[k.var], int32) * cast(right[k.var], int32), k),
        "dot4",
        scope=LOCAL_SCOPE,
    )
    return Intrinsic(name="dot4", pattern=pattern, emitter=Emitter.DOT4.value, overwrites=False)


def arrange_matrix(s: Schedule, form: MatrixForm, tile: MatrixTile, out: str) -> None:
    """Schedule the product of `form`, whose sums stage `out` reads; others have been inlined."""
    total, left = form.total.name, form.left.name
    *leading, rows, columns = output_loops(s, out, form)
    m, mt = s.split(out, rows, tile.block_m, names=("m.block", "m.rest"))
    n, nt = s.split(out, columns, tile.block_n, names=("n.block", "n.rest"))
    ty, mi = s.split(out, mt, tile.thread_m, names=("m.thread", "m.own"))
    tx, ni = s.split(out, nt, tile.thread_n, names=("n.thread", "n.own"))
    s.reorder(out, *leading, m, n, ty, tx, mi, ni)
    kinds = (LoopKind.BLOCK_X, LoopKind.BLOCK_Y, LoopKind.THREAD_Y, LoopKind.THREAD_X)
    for axis, kind in zip((m, n, ty, tx), kinds, strict=True):
        s.bind(out, axis, kind)
    if leading:
        s.bind(out, leading[0], LoopKind.BLOCK_Z)
    s.unroll(out, mi)
    s.vectorize(out, ni)
    s.set_scope(total, LOCAL_SCOPE)
    s.compute_at(total, out, tx)
    right = form.right.name
    if form.right.definition is None:
        right = s.cache_read(right, SHARED_SCOPE)
    lane = _arrange_total(s, form, tile)
    for stage, tensor in ((left, form.left), (right, form.right)):
        s.set_scope(stage, SHARED_SCOPE)
        s.compute_at(stage, total, "k.block")
        _arrange_tile(s, stage, tensor.dtype, tile)
        if tile.fetches_ahead:
            s.double_buffer(stage)
    if form.left.dtype is form.right.dtype is ScalarType.INT8:
        s.tensorize(total, lane, "dot4")
    else:
        s.unroll(total, lane)


def output_loops(s: Schedule, out: str, form: MatrixForm) -> tuple[str, ...]:
    """Return the loops over matrices, if there are several, over rows and over columns."""
    *leading, columns = s.loops(out)
    stacked = form.total.shape[0] > 1
    batch = tuple(leading[:-1]) if stacked else ()
    extents = {axis.name: axis.extent for axis in s.state.stage(out).axes}
    # An axis of one element may be read as element 0: then it must not be part of a fused loop.
    single = tuple(loop for loop in leading[len(batch) :] if extents[loop] == 1)
    rows = tuple(loop for loop in leading[len(batch) :] if extents[loop] > 1)
    s.reorder(out, *single, *batch, *rows, columns)
    fused = (fuse_loops(s, out, batch, "matrices"), fuse_loops(s, out, rows, "rows"))
    return (*(loop for loop in fused if loop is not None), columns)


def _arrange_total(s: Schedule, form: MatrixForm, tile: MatrixTile) -> str:
    total = form.total.name
    block, rest = s.split(total, "k", tile.block_k, names=("k.block", "k.rest"))
    step, lane = s.split(total, rest, _DEPTH, names=("k.step", "k.lane"))
    s.reorder(total, block, step, "b", "m", "n", lane)
    for loop in ("m", "n"):
        s.unroll(total, loop)
    return lane


def align_rows(s: Schedule, stage: str, rows: str, dtype: ScalarType) -> None:
    """Let rows of a tile begin in different banks."""
    size = int(dtype.numpy.itemsize)
    s.storage_align(stage, rows, 2 * ROW_UNIT_BYTES // size, ROW_UNIT_BYTES // size)


def _arrange_tile(s: Schedule, stage: str, dtype: ScalarType, tile: MatrixTile) -> None:
    """Let all threads of a block fill a tile, each some neighbouring elements of a row."""
    size = int(dtype.numpy.itemsize)
    rows = s.loops(stage)[1]
    align_rows(s, stage, rows, dtype)
    lanes = max(VECTOR_BYTES) // size
    elements = s.fuse(stage, *s.loops(stage)[1:], name="elements")
    rest, lane = s.split(stage, elements, lanes, names=("rest", "lane"))
    rest, tx = s.split(stage, rest, tile.block_n // tile.thread_n, names=("rows", "x"))
    rest, ty = s.split(stage, rest, tile.block_m // tile.thread_m, names=("turn", "y"))
    s.bind(stage, ty, LoopKind.THREAD_Y)
    s.bind(stage, tx, LoopKind.THREAD_X)
    s.vectorize(stage, lane)
