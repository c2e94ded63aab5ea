"""The schedule of a matrix product on tensor cores: a tile for each warp, held in its registers."""

from tilewright.compiler.tensor.build import cast, reduce_sum
from tilewright.compiler.tensor.declare import compute, placeholder, reduce_axis
from tilewright.compiler.tensor.expressions import Expr
from tilewright.compiler.tensor.intrinsics import Intrinsic
from tilewright.compiler.tensor.realisation import SHARED_SCOPE
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.compiler.tensor.statements import LoopKind
from tilewright.cpu_gpu_backends.gpu.intrinsics import (
    FRAGMENT_SCOPE,
    WARP_COLUMNS,
    WARP_DEPTH_BYTES,
    WARP_ROWS,
    Emitter,
)
from tilewright.cpu_gpu_backends.gpu.matrix_form import MatrixForm
from tilewright.cpu_gpu_backends.gpu.matrix_schedule import align_rows, output_loops
from tilewright.cpu_gpu_backends.gpu.row_schedule import fuse_loops
from tilewright.cpu_gpu_backends.gpu.tiles import WARP_THREADS, WarpTile
from tilewright.cpu_gpu_backends.gpu.vectors import VECTOR_BYTES

#: Results that a thread brings to memory at once.
_LANES = 4


def warp_intrinsics(dtype: ScalarType) -> tuple[Intrinsic, ...]:
    """Return a product of two tiles of `dtype` by a warp, and the way out of its registers."""
    total = ScalarType.FLOAT32 if dtype.is_float else ScalarType.INT32
    depth = WARP_DEPTH_BYTES // int(dtype.numpy.itemsize)
    left = placeholder((WARP_ROWS, depth), dtype, "left", scope=SHARED_SCOPE)
    right = placeholder((WARP_COLUMNS, depth), dtype, "right", scope=SHARED_SCOPE)
    k = reduce_axis(depth, "k")

    def product(m: Expr, n: Expr) -> Expr:
        return reduce_sum(cast(left[m, k.var], total) * cast(right[n, k.var], total), k)

    shape = (WARP_ROWS, WARP_COLUMNS)
    fragment = placeholder(shape, total, "fragment", scope=FRAGMENT_SCOPE)
    return (
        Intrinsic(
            name="multiply",
            pattern=compute(shape, product, "product", scope=FRAGMENT_SCOPE),
            emitter=Emitter.MATRIX_MULTIPLY.value,
        ),
        Intrinsic(
            name="store",
            pattern=compute(shape, lambda m, n: fragment[m, n], "tile", scope=SHARED_SCOPE),
            emitter=Emitter.STORE_FRAGMENT.value,
        ),
    )


def arrange_warps(s: Schedule, form: MatrixForm, tile: WarpTile) -> None:
    """Schedule the product of `form`; all stages but it and its operands have been inlined."""
    (out,) = s.state.outputs
    total = form.total.name
    s.set_scope(total, FRAGMENT_SCOPE)
    results = s.cache_read(total, SHARED_SCOPE)
    right = form.right.name
    if form.right.definition is None:
        right = s.cache_read(right, SHARED_SCOPE)
    columns = _arrange_output(s, out, form, tile)
    s.compute_at(results, out, columns)
    warp = _arrange_results(s, results, tile)
    s.compute_at(total, results, warp)
    depth = WARP_DEPTH_BYTES // int(form.left.dtype.numpy.itemsize)
    s.split(total, "k", tile.block_k, names=("k.block", "k.rest"))
    s.split(total, "k.rest", depth, names=("k.step", "k.own"))
    s.split(total, "m", WARP_ROWS, names=("m.tile", "m.own"))
    s.split(total, "n", WARP_COLUMNS, names=("n.tile", "n.own"))
    order = ("k.block", "k.step", "b", "m.tile", "n.tile", "m.own", "n.own", "k.own")
    s.reorder(total, *order)
    for loop in ("k.step", "m.tile", "n.tile"):
        s.unroll(total, loop)
    for stage, tensor in ((form.left.name, form.left), (right, form.right)):
        s.set_scope(stage, SHARED_SCOPE)
        s.compute_at(stage, total, "k.block")
        align_rows(s, stage, s.loops(stage)[1], tensor.dtype)
        if tile.fetches_ahead:
            s.double_buffer(stage)
        lanes = max(VECTOR_BYTES) // int(tensor.dtype.numpy.itemsize)
        _share(s, stage, fuse_loops(s, stage, s.loops(stage)[1:], "elements"), lanes, tile)
    s.tensorize(total, "m.own", "multiply")
    s.tensorize(results, "m.own", "store")


def _arrange_output(s: Schedule, out: str, form: MatrixForm, tile: WarpTile) -> str:
    """Let a block bring a tile of results to memory; return the loop over columns of tiles."""
    *leading, rows, columns = output_loops(s, out, form)
    m, mi = s.split(out, rows, tile.block_m, names=("m.block", "m.rest"))
    n, ni = s.split(out, columns, tile.block_n, names=("n.block", "n.rest"))
    s.reorder(out, *leading, m, n, mi, ni)
    s.bind(out, m, LoopKind.BLOCK_X)
    s.bind(out, n, LoopKind.BLOCK_Y)
    if leading:
        s.bind(out, leading[0], LoopKind.BLOCK_Z)
    _share(s, out, s.fuse(out, mi, ni, name="elements"), _LANES, tile)
    return n


def _arrange_results(s: Schedule, results: str, tile: WarpTile) -> str:
    """Let each warp write its registers to shared memory; return the loop over warps."""
    _, rows, columns = s.loops(results)
    wm, mi = s.split(results, rows, tile.warp_m, names=("m.warp", "m.rest"))
    wn, ni = s.split(results, columns, tile.warp_n, names=("n.warp", "n.rest"))
    mt, mi = s.split(results, mi, WARP_ROWS, names=("m.tile", "m.own"))
    nt, ni = s.split(results, ni, WARP_COLUMNS, names=("n.tile", "n.own"))
    s.reorder(results, wm, wn, mt, nt, mi, ni)
    s.bind(results, wm, LoopKind.THREAD_Y)
    s.bind(results, wn, LoopKind.THREAD_Z)
    for loop in (mt, nt):
        s.unroll(results, loop)
    return wn


def _share(s: Schedule, stage: str, elements: str | None, lanes: int, tile: WarpTile) -> None:
    """Share the elements of a tile among all threads of a block."""
    assert elements is not None, "a tile has elements"
    rest, lane = s.split(stage, elements, lanes, names=("rest", "lane"))
    rest, tx = s.split(stage, rest, WARP_THREADS, names=("warps", "x"))
    rest, ty = s.split(stage, rest, tile.warps_m, names=("others", "y"))
    _, tz = s.split(stage, rest, tile.warps_n, names=("turn", "z"))
    s.bind(stage, tz, LoopKind.THREAD_Z)
    s.bind(stage, ty, LoopKind.THREAD_Y)
    s.bind(stage, tx, LoopKind.THREAD_X)
    s.vectorize(stage, lane)
