"""Schedules of everything but products: element by element, or a block for each row."""

from dataclasses import dataclass, replace
from math import prod

from tilewright.compiler.tensor.realisation import SHARED_SCOPE
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.compiler.tensor.stages import Stage
from tilewright.compiler.tensor.statements import LoopKind
from tilewright.cpu_gpu_backends.gpu.device import Capability

LOCAL_SCOPE = "local"
#: Terms that one thread of a tree adds.
_RADIX = 8
#: From so many terms on, the threads of a block share a reduction ...
_SHARED_TERMS = 64
#: ... unless there are so many rows that each thread has one of its own.
_ROWS_PER_UNIT = 1024
#: Reductions of up to so many terms are written out.
_UNROLLED_TERMS = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChoice:
    """How rows are shared out: threads of a block, neighbouring elements of a thread."""

    threads: int
    lanes: int


#: The search space of a row schedule, the default first.
ROW_CHOICES = tuple(
    RowChoice(threads=threads, lanes=lanes) for lanes in (4, 8, 1) for threads in (128, 256, 64)
)


def arrange_rows(s: Schedule, capability: Capability, choice: RowChoice) -> None:
    """Schedule a computation of whose stages none but reductions and the result are left.

    A reduction that is read where its own axes are the first ones of the result, which share a
    row, is computed with that row. Any other one is a kernel of its own.
    """
    (out,) = s.state.outputs
    if s.state.stage(out).reduce is not None:
        s.cache_write(out, LOCAL_SCOPE, name=f"{out}.sums")
    sums = [stage.name for stage in s.state if stage.reduce is not None]
    rank = max((len(s.state.stage(name).axes) for name in sums), default=0)
    joined = _joined(s, out, sums, rank)
    for name in sums:
        if name not in joined:
            _arrange_elements(s, name, replace(choice, lanes=1))
    if not joined:
        _arrange_elements(s, out, choice)
    elif _is_shared(s, out, joined, rank, capability):
        _arrange_shared(s, out, joined, rank, choice)
    else:
        _arrange_own(s, out, joined, rank, choice)


def arrange_sums(s: Schedule, *sums: str) -> None:
    """Schedule reductions that are kernels of their own: one thread for each result."""
    for name in sums:
        _arrange_elements(s, name, replace(ROW_CHOICES[0], lanes=1))


def _joined(s: Schedule, out: str, sums: list[str], rank: int) -> list[str]:
    """Return the reductions that belong to rows of the result: leading axes, `rank` of them."""
    joined: list[str] = []
    for name in reversed(sums):
        readers = s.state.readers(name)
        fits = len(s.state.stage(name).axes) == rank and all(
            reader.name in (out, *joined) and _reads_own_row(reader, name, rank)
            for reader in readers
        )
        if fits:
            joined.insert(0, name)
    return joined


def _reads_own_row(reader: Stage, name: str, rank: int) -> bool:
    row = tuple(axis.var for axis in reader.axes[:rank])
    return all(load.indices == row for load in reader.reads(name))


def _terms(stage: Stage) -> int:
    return prod(axis.extent for axis in stage.reduce_axes)


def _is_shared(s: Schedule, out: str, sums: list[str], rank: int, capability: Capability) -> bool:
    shape = s.state.stage(out).tensor.shape
    rows = prod(shape[:rank])
    terms = min(_terms(s.state.stage(name)) for name in sums)
    columns = prod(shape[rank:])
    if rank < len(shape):
        return min(terms, columns) >= _SHARED_TERMS // 2
    return terms >= _SHARED_TERMS and rows < capability.units * _ROWS_PER_UNIT


def fuse_loops(s: Schedule, stage: str, loops: tuple[str, ...], name: str) -> str | None:
    """Fuse neighbouring loops to one, which is called `name`; None if there are none."""
    if not loops:
        return None
    if len(loops) == 1:
        return loops[0]
    fused = loops[0]
    for number, other in enumerate(loops[1:], start=1):
        fused = s.fuse(
            stage, fused, other, name=name if number == len(loops) - 1 else f"{name}{number}"
        )
    return fused


def _fitting_lanes(s: Schedule, stage: str, lanes: int) -> int:
    """Return how many lanes divide the last axis."""
    shape = s.state.stage(stage).tensor.shape
    return next(count for count in (lanes, 4, 2, 1) if count <= lanes and shape[-1] % count == 0)


def _arrange_elements(s: Schedule, name: str, choice: RowChoice) -> str | None:
    """One thread for every few neighbouring elements; return the loop over threads."""
    stage = s.state.stage(name)
    data = tuple(axis.name for axis in stage.axes)
    elements = fuse_loops(s, name, data, "elements")
    if elements is None:
        return None
    lanes = _fitting_lanes(s, name, choice.lanes)
    if lanes > 1:
        elements, lane = s.split(name, elements, lanes, names=("groups", "lane"))
        s.vectorize(name, lane)
    block, thread = s.split(name, elements, choice.threads, names=("block", "thread"))
    s.bind(name, block, LoopKind.BLOCK_X)
    s.bind(name, thread, LoopKind.THREAD_X)
    return thread


def _arrange_own(s: Schedule, out: str, sums: list[str], rank: int, choice: RowChoice) -> None:
    """Each thread computes rows of its own, or where a row is one element, some neighbours."""
    stage = s.state.stage(out)
    if rank == len(stage.axes):
        thread = _arrange_elements(s, out, choice)
    else:
        rows = fuse_loops(s, out, s.loops(out)[:rank], "row")
        thread = None
        if rows is not None:
            block, thread = s.split(out, rows, choice.threads, names=("block", "thread"))
            s.bind(out, block, LoopKind.BLOCK_X)
            s.bind(out, thread, LoopKind.THREAD_X)
    for name in reversed(sums):
        own = s.state.stage(name)
        s.set_scope(name, LOCAL_SCOPE)
        if thread is not None:
            s.compute_at(name, out, thread)
        reduced = tuple(axis.name for axis in own.reduce_axes)
        data = tuple(axis.name for axis in own.axes)
        s.reorder(name, *reduced, *data)
        if _terms(own) <= _UNROLLED_TERMS:
            for loop in reduced:
                s.unroll(name, loop)
        if data and thread is not None:
            s.vectorize(name, data[-1])


def _arrange_shared(s: Schedule, out: str, sums: list[str], rank: int, choice: RowChoice) -> None:
    """A block of threads computes each row: reductions as trees, then its elements."""
    partial = {name: _factored(s, name, choice.threads) for name in sums}
    columns = fuse_loops(s, out, s.loops(out)[rank:], "column")
    row = fuse_loops(s, out, s.loops(out)[:rank], "row")
    if row is None:
        assert columns is not None, "a result without axes has one thread"
        row, columns = s.split(out, columns, parts=1, names=("row", "column.rest"))
    s.bind(out, row, LoopKind.BLOCK_X)
    if columns is not None:
        _, thread = s.split(out, columns, choice.threads, names=("turn", "thread"))
        s.bind(out, thread, LoopKind.THREAD_X)
    # Readers first: what is read outside of the row cannot move into it.
    for name in reversed(sums):
        s.set_scope(name, SHARED_SCOPE)
        s.compute_at(name, out, row)
        for level, kept in reversed(partial[name]):
            s.set_scope(level, SHARED_SCOPE)
            s.compute_at(level, out, row)
            s.bind(level, kept, LoopKind.THREAD_X)


def _factored(s: Schedule, name: str, threads: int) -> list[tuple[str, str]]:
    """Turn a reduction into levels of partial ones; return each with the loop over its results."""
    stage = s.state.stage(name)
    terms = _terms(stage)
    loop = fuse_loops(s, name, tuple(axis.name for axis in stage.reduce_axes), "terms")
    assert loop is not None, "a reduction has terms"
    count = min(threads, 1 << (terms.bit_length() - 1))
    levels: list[tuple[str, str]] = []
    if count < terms:
        _, loop = s.split(name, loop, count, names=("share", "part"))
        levels.append((s.reduce_factor(name, loop, name=f"{name}.parts"), loop))
    while count > _RADIX:
        loop, _ = s.split(name, loop, _RADIX, names=(f"branch{count}", f"leaf{count}"))
        level = s.reduce_factor(name, loop, name=f"{name}.level{count}")
        levels.append((level, loop))
        count = -(-count // _RADIX)
    return levels
