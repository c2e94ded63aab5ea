"""The schedule of an attention: a block for some queries, one pass over the keys.

The loop over blocks of keys carries the maximum, the sum and the weighted values of each query
along (FlashAttention, arXiv 2205.14135); scores exist in registers only, weights in shared memory.
"""

from dataclasses import dataclass

from tilewright.compiler.tensor.realisation import SHARED_SCOPE
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.compiler.tensor.statements import LoopKind
from tilewright.cpu_gpu_backends.gpu.attention_form import AttentionForm
from tilewright.cpu_gpu_backends.gpu.device import Capability
from tilewright.cpu_gpu_backends.gpu.matrix_form import rounded_up
from tilewright.cpu_gpu_backends.gpu.row_schedule import LOCAL_SCOPE, fuse_loops

#: Elements along the depth of a product that are written out together.
_DEPTH = 4
#: Elements that a thread moves at once.
_LANES = 4
#: Most threads along the columns of a tile.
_COLUMNS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTile:
    """What a block of threads handles at a time: queries, keys, and queries of one thread."""

    queries: int
    keys: int
    thread_queries: int

    def threads(self, length: int, head: int) -> tuple[int, int]:
        """Return the threads along the columns and the queries, `length` in all."""
        rows = min(self.queries, length)
        return thread_columns(head), -(-rows // self.thread_queries)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSizes:
    """Extents of an attention: how many, queries, length of a key and of a value."""

    count: int
    queries: int
    key_length: int
    value_length: int


_TILES = tuple(
    AttentionTile(queries=queries, keys=keys, thread_queries=own)
    for queries, keys, own in (
        (64, 64, 4),
        (64, 32, 4),
        (32, 64, 2),
        (32, 32, 4),
        (32, 32, 2),
        (16, 32, 2),
        (16, 16, 1),
    )
)


def attention_tiles(sizes: AttentionSizes, capability: Capability) -> tuple[AttentionTile, ...]:
    """Return the tiles that fit a device: the search space, the default one first.

    A block reads all keys and values: the more queries it has, the less is read; but there shall
    be a block for every unit.
    """
    fitting = [tile for tile in _TILES if _shared_bytes(tile, sizes) <= capability.shared_bytes]

    def idle(tile: AttentionTile) -> bool:
        return sizes.count * -(-sizes.queries // tile.queries) < capability.units

    # The smallest one stands for a device that has too little: it says what is missing.
    return tuple(sorted(fitting, key=idle)) or _TILES[-1:]


def _shared_bytes(tile: AttentionTile, sizes: AttentionSizes) -> int:
    """Return the shared memory of a tile: operands, weights, and what threads tell each other."""
    elements = (
        tile.queries * sizes.key_length
        + tile.keys * (sizes.key_length + sizes.value_length)
        + tile.queries * (tile.keys + 2 * _COLUMNS)
    )
    return 4 * rounded_up(elements, 32)


def thread_columns(head: int) -> int:
    """Return how many threads share columns evenly: a power of two."""
    count = _COLUMNS
    while -(-head // -(-head // count)) != count:
        count //= 2
    return count


def arrange_attention(s: Schedule, form: AttentionForm, tile: AttentionTile) -> None:
    """Schedule the attention of `form`; all stages but its own have been inlined."""
    (out,) = s.state.outputs
    *_, length, head = form.result.shape
    columns, rows = tile.threads(length, head)
    weighted, block = form.weighted.name, "k.block"
    s.compute_at(weighted, out, _arrange_output(s, out, tile, columns))
    s.set_scope(weighted, LOCAL_SCOPE)
    *leading, i, d = (axis.name for axis in s.state.stage(weighted).axes)
    s.split(weighted, "k", tile.keys, names=(block, "k.rest"))
    s.split(weighted, "k.rest", _DEPTH, names=("k.step", "k.lane"))
    s.reorder(weighted, block, "k.step", *leading, i, d, "k.lane")
    for loop in (i, d, "k.lane"):
        s.unroll(weighted, loop)
    # Readers first: what is read outside of a loop cannot move into it.
    _carry(s, form.total.name, weighted, tile, columns)
    _by_threads(s, form.weights.name, weighted, tile, columns)
    repaired = _carry(s, form.peak.name, weighted, tile, columns)
    assert repaired is not None, "sums depend on the largest score"
    for stage in repaired:
        s.unroll(stage, s.loops(stage)[-1])
    for stage in (form.scores.name, form.products.name):
        s.set_scope(stage, LOCAL_SCOPE)
        s.compute_at(stage, weighted, block)
    for loop in s.loops(form.scores.name)[-2:]:
        s.unroll(form.scores.name, loop)
    _arrange_products(s, form.products.name)
    for stage in (form.key.name, form.value.name):
        s.compute_at(stage, weighted, block)
        _fill(s, stage, columns, rows)
    s.compute_at(form.query.name, out, "d.thread")
    _fill(s, form.query.name, columns, rows)


def _arrange_output(s: Schedule, out: str, tile: AttentionTile, columns: int) -> str:
    """Give each block some queries of one matrix; return the innermost loop over threads."""
    *leading, i, d = s.loops(out)
    extents = {axis.name: axis.extent for axis in s.state.stage(out).axes}
    # An axis of one element may be read as element 0: then it must not be part of a fused loop.
    single = tuple(loop for loop in leading if extents[loop] == 1)
    stacked = tuple(loop for loop in leading if extents[loop] > 1)
    s.reorder(out, *single, *stacked, i, d)
    matrices = fuse_loops(s, out, stacked, "matrices")
    s.split(out, i, tile.queries, names=("i.block", "i.rest"))
    s.split(out, "i.rest", tile.thread_queries, names=("i.thread", "i.own"))
    s.split(out, d, parts=columns, names=("d.thread", "d.own"))
    s.reorder(out, "i.block", "i.thread", "d.thread", "i.own", "d.own")
    if matrices is not None:
        s.bind(out, matrices, LoopKind.BLOCK_Y)
    s.bind(out, "i.block", LoopKind.BLOCK_X)
    s.bind(out, "i.thread", LoopKind.THREAD_Y)
    s.bind(out, "d.thread", LoopKind.THREAD_X)
    s.unroll(out, "i.own")
    s.vectorize(out, "d.own")
    return "d.thread"


def _carry(
    s: Schedule, stage: str, weighted: str, tile: AttentionTile, columns: int
) -> tuple[str, str] | None:
    """Let the loop over blocks of keys carry on a reduction of rows.

    Each thread reduces its own columns, and then those of all threads for its own rows.
    """
    own = -(-tile.keys // columns)
    s.split(stage, "k", tile.keys, names=("k.block", "k.rest"))
    s.split(stage, "k.rest", own, names=("k.part", "k.own"))
    s.fuse(stage, "k.block", "k.part", name="k.parts")
    parts = s.reduce_factor(stage, "k.parts", name=f"{stage}.parts")
    *leading, i = (axis.name for axis in s.state.stage(stage).axes)
    s.split(stage, "k.parts", columns, names=("k.block", "k.part"))
    s.reorder(stage, "k.block", *leading, i, "k.part")
    s.unroll(stage, i)
    s.unroll(stage, "k.part")
    s.set_scope(stage, LOCAL_SCOPE)
    repaired = s.roll(stage, weighted, "k.block")
    s.set_scope(parts, SHARED_SCOPE)
    s.compute_at(parts, weighted, "k.block")
    s.reorder(parts, *leading, i, "k.parts")
    _, rest = s.split(parts, i, tile.thread_queries, names=("i.thread", "i.own"))
    s.reorder(parts, "i.thread", "k.parts", rest, "k.own")
    s.bind(parts, "i.thread", LoopKind.THREAD_Y)
    s.bind(parts, "k.parts", LoopKind.THREAD_X)
    s.unroll(parts, rest)
    s.unroll(parts, "k.own")
    return repaired


def _by_threads(
    s: Schedule, weights: str, weighted: str, tile: AttentionTile, columns: int
) -> None:
    """Let each thread compute the weights of its own rows and columns for all threads."""
    s.set_scope(weights, SHARED_SCOPE)
    s.compute_at(weights, weighted, "k.block")
    *leading, i, j = s.loops(weights)
    s.split(weights, i, tile.thread_queries, names=("i.thread", "i.own"))
    s.split(weights, j, -(-tile.keys // columns), names=("j.thread", "j.own"))
    s.reorder(weights, *leading, "i.thread", "j.thread", "i.own", "j.own")
    s.bind(weights, "i.thread", LoopKind.THREAD_Y)
    s.bind(weights, "j.thread", LoopKind.THREAD_X)
    s.unroll(weights, "i.own")
    s.unroll(weights, "j.own")


def _arrange_products(s: Schedule, products: str) -> None:
    *leading, i, j, k = s.loops(products)
    s.split(products, k, _DEPTH, names=("k.step", "k.lane"))
    s.reorder(products, "k.step", *leading, i, j, "k.lane")
    for loop in (i, j, "k.lane"):
        s.unroll(products, loop)


def _fill(s: Schedule, stage: str, columns: int, rows: int) -> None:
    """Let all threads of a block bring a tile to shared memory, each neighbouring elements."""
    s.set_scope(stage, SHARED_SCOPE)
    elements = fuse_loops(s, stage, s.loops(stage)[-2:], "elements")
    assert elements is not None, "a tile has two axes"
    rest, lane = s.split(stage, elements, _LANES, names=("rest", "lane"))
    rest, tx = s.split(stage, rest, columns, names=("rows", "x"))
    _, ty = s.split(stage, rest, rows, names=("turn", "y"))
    s.bind(stage, ty, LoopKind.THREAD_Y)
    s.bind(stage, tx, LoopKind.THREAD_X)
    s.vectorize(stage, lane)
