"""A schedule for any computation: outer loops shared by threads, the innermost one in lanes."""

from math import prod

from tilewright.compiler.tensor.expressions import Expr, Load, Var
from tilewright.compiler.tensor.linear import to_linear
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.compiler.tensor.stages import Stage
from tilewright.compiler.tensor.traversal import loads, variables
from tilewright.cpu_gpu_backends.codegen.byte_tables import is_byte_table
from tilewright.cpu_gpu_backends.cpu.program import REGISTER

#: Below so many elements or terms of sums a stage is not worth handing out to threads.
_FEWEST_SHARED = 4096
#: A reduction is cut into so many partial ones.
_REDUCTION_LANES = 16


def arrange(schedule: Schedule) -> None:
    """Arrange the loops of every stage that has been left as declared."""
    for stage in schedule.state:
        if stage.attachment is None:
            _arrange_stage(schedule, stage)


def _arrange_stage(s: Schedule, stage: Stage) -> None:
    rank = len(stage.axes)
    loops = s.loops(stage.name)
    data, reduces = loops[:rank], loops[rank:]
    if not data:
        return
    lane = reduces[-1] if reduces else ""
    if reduces and not runs_along_memory(stage.body, data[-1]) and _splits(stage, lane):
        _reduce_in_lanes(s, stage, data, lane)
        return
    if runs_along_memory(stage.body, data[-1]):
        if reduces:
            s.reorder(stage.name, *reduces, data[-1])
        s.vectorize(stage.name, data[-1])
        data = data[:-1]
    elif not reduces and (other := _lane_elsewhere(stage, data)) is not None:
        data = tuple(axis for axis in data if axis != other)
        s.reorder(stage.name, *data, other)
        s.vectorize(stage.name, other)
    if data:
        _share(s, stage, data)


def _share(s: Schedule, stage: Stage, data: tuple[str, ...]) -> str:
    """Join loops, and let threads share the result if there is enough to do; return its name."""
    task = data[0]
    for axis in data[1:]:
        task = s.fuse(stage.name, task, axis)
    axes = (*stage.axes, *stage.reduce_axes)
    if prod(axis.extent for axis in axes) >= _FEWEST_SHARED:
        s.parallel(stage.name, task)
    return task


def _lane_elsewhere(stage: Stage, data: tuple[str, ...]) -> str | None:
    """Return an axis along which a stage reads memory in order, though it writes in another."""
    reads = loads(stage.body)
    suits = (
        axis
        for axis in data
        if runs_along_memory(stage.body, axis)
        and any(axis in variables(index) for load in reads for index in load.indices)
    )
    return next(suits, None)


def _splits(stage: Stage, axis: str) -> bool:
    """Whether a reduction can be carried out in lanes: along memory, in whole vectors."""
    reduce = stage.reduce
    if reduce is None or not runs_along_memory(reduce.body, axis):
        return False
    extent = next(one.extent for one in reduce.axes if one.name == axis)
    return extent % _REDUCTION_LANES == 0 and extent > _REDUCTION_LANES


def _reduce_in_lanes(s: Schedule, stage: Stage, data: tuple[str, ...], axis: str) -> None:
    """Reduce each lane by itself, then the lanes; the order of a floating-point sum changes."""
    _, inner = s.split(stage.name, axis, _REDUCTION_LANES)
    partial = s.reduce_factor(stage.name, inner)
    s.compute_at(partial, stage.name, _share(s, stage, data))
    s.set_scope(partial, REGISTER)
    lane, *own, rest = s.loops(partial)
    s.reorder(partial, rest, *own, lane)
    s.vectorize(partial, lane)
    s.unroll(stage.name, s.loops(stage.name)[-1])


def runs_along_memory(body: Expr, axis: str) -> bool:
    """Whether neighbouring values of `axis` read neighbouring elements, or the same one.

    Tables of bytes do not count: the kernels have them where instructions look up bytes.
    """
    return all(_steps_by_one(load, axis) for load in loads(body))


def _steps_by_one(load: Load, axis: str) -> bool:
    if not load.indices or is_byte_table(load.tensor):
        return True
    *outer, last = load.indices
    if any(axis in variables(index) for index in outer):
        return False
    if axis not in variables(last):
        return True
    varying = [(atom, factor) for atom, factor in to_linear(last).terms if axis in variables(atom)]
    return varying == [(Var(axis), 1)]
