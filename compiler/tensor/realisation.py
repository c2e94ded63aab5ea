"""Where each stage of a schedule runs: its loops, the part it computes, its guards, its storage."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.compiler.tensor.expressions import Const, Expr, Load, Tensor, Var
from tilewright.compiler.tensor.intervals import Interval, Ranges
from tilewright.compiler.tensor.primitives import ScheduleError
from tilewright.compiler.tensor.regions import Span, clamp, span_of, union
from tilewright.compiler.tensor.relations import size_loops, undo_relations
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.simplify import prove, simplify
from tilewright.compiler.tensor.stages import Alignment, Stage, State
from tilewright.compiler.tensor.statements import LoopKind
from tilewright.compiler.tensor.traversal import substitute, transform

#: The scope that all threads of a block share; in every other one each thread has its own copy.
SHARED_SCOPE = "shared"
#: The scope of a register that one instruction fills and reads.
RUN_SCOPE = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One loop of a stage; `opened` says that an enclosing stage runs the same thread axis."""

    name: str
    var: Var
    extent: int
    kind: LoopKind
    reduces: bool
    opened: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Realisation:
    """A stage in its place.

    Attributes
    ----------
    enclosing
        The loops around the stage, outermost first.
    loops
        Its own loops, outermost first.
    bases, storage
        The element of the tensor at index ``bases`` is the first one of `storage`.
    values
        The index along each axis, reduce axes included, by the axis's name.
    guards, reduce_guards
        Conditions for an iteration to be carried out: on the result's axes, on reduce axes.
    """

    stage: Stage
    enclosing: tuple[Loop, ...]
    loops: tuple[Loop, ...]
    bases: tuple[Expr, ...]
    storage: Tensor
    values: Mapping[str, Expr]
    guards: tuple[Expr, ...]
    reduce_guards: tuple[Expr, ...]

    @property
    def ranges(self) -> Ranges:
        """The ranges of all loop variables in force."""
        return loop_ranges((*self.enclosing, *self.loops))

    @property
    def indices(self) -> tuple[Expr, ...]:
        """The element of `storage` that an iteration computes."""
        places = zip(self.stage.axes, self.bases, strict=True)
        return tuple(self.values[axis.name] - base for axis, base in places)


def loop_ranges(loops: tuple[Loop, ...]) -> dict[str, Interval]:
    """Return the ranges of the variables of `loops`; of one opened again, that of the outer."""
    return {loop.var.name: Interval(0, loop.extent - 1) for loop in reversed(loops)}


def realise(state: State) -> dict[str, Realisation]:
    """Place every stage, consumers before what they read.

    Raises
    ------
    ScheduleError
        If a stage needs more threads than the loop around it has, or its threads do not share
        its storage.
    """
    loops = replace(state, stages=tuple(replace(one, tensorized=None) for one in state.stages))
    return {
        name: replace(place, stage=state.stage(name)) for name, place in _realise(loops).items()
    }


@lru_cache(maxsize=8)
def _realise(state: State) -> Mapping[str, Realisation]:
    """Place every stage, whatever intrinsics do: the same while a schedule is tensorized."""
    counts = Counter(loop for stage in state for loop in stage.loops)
    unique = frozenset(loop for loop, count in counts.items() if count == 1)
    placed: dict[str, Realisation] = {}
    for stage in reversed(state.stages):
        placed[stage.name] = _place(state, stage, placed, unique)
    return placed


def _place(
    state: State, stage: Stage, placed: Mapping[str, Realisation], unique: frozenset[str]
) -> Realisation:
    enclosing = _enclosing(stage, placed)
    spans = _needed(state, stage, enclosing, placed)
    sizes = {axis.name: span.extent for axis, span in zip(stage.axes, spans, strict=True)}
    sizes |= {axis.name: axis.extent for axis in stage.reduce_axes}
    size_loops(stage.relations, sizes)
    loops = tuple(_loop(stage, name, sizes[name], enclosing, unique) for name in stage.loops)
    if stage.is_rolled:
        loops = (_carrier(stage, placed), *loops[1:])
    ranges = loop_ranges((*enclosing, *loops))
    values: dict[str, Expr] = {loop.name: loop.var for loop in loops}
    guards = [loop.var < loop.extent for loop in loops if loop.opened]
    reduce_guards: list[Expr] = []
    for name, condition in undo_relations(stage.relations, sizes, values, ranges):
        (reduce_guards if name in stage.reduce_loops else guards).append(condition)
    for axis, span in zip(stage.axes, spans, strict=True):
        values[axis.name] = simplify(span.base + values[axis.name], ranges)
        guards.append(values[axis.name] < axis.extent)
    reduce_guards += [substitute(condition, values) for condition in stage.conditions]
    storage = stage.tensor
    if stage.name not in state.outputs:
        storage = _storage(stage, tuple(span.extent for span in spans))
    return Realisation(
        stage=stage,
        enclosing=enclosing,
        loops=loops,
        bases=tuple(span.base for span in spans),
        storage=storage,
        values=values,
        guards=_unproved(guards, loops, ranges),
        reduce_guards=_unproved(reduce_guards, loops, ranges),
    )


def _unproved(guards: list[Expr], loops: tuple[Loop, ...], ranges: Ranges) -> tuple[Expr, ...]:
    """Return the guards that do not always hold, those of opened loops being there anyway."""
    own = {loop.var.name: Interval(0, loop.extent - 1) for loop in loops if loop.opened}
    limits = [loop.var < loop.extent for loop in loops if loop.opened]
    return tuple(
        guard
        for guard in dict.fromkeys(guards)
        if not prove(guard, ranges if guard in limits else {**ranges, **own})
    )


def _enclosing(stage: Stage, placed: Mapping[str, Realisation]) -> tuple[Loop, ...]:
    if stage.attachment is None:
        return ()
    consumer = placed[stage.attachment.consumer]
    if stage.is_rolled:
        # It exists around the loop that carries it on, which is the consumer's outermost one.
        return consumer.enclosing
    depth = consumer.stage.loops.index(stage.attachment.axis) + 1
    return (*consumer.enclosing, *consumer.loops[:depth])


def _carrier(stage: Stage, placed: Mapping[str, Realisation]) -> Loop:
    """Return the loop that carries the stage's reduction on, in place of its outermost one."""
    assert stage.attachment is not None, "only called for rolled stages"
    return replace(placed[stage.attachment.consumer].loops[0], name=stage.loops[0], opened=True)


def _needed(
    state: State, stage: Stage, enclosing: tuple[Loop, ...], placed: Mapping[str, Realisation]
) -> tuple[Span, ...]:
    """Return what one iteration of the enclosing loops reads of `stage`, axis by axis."""
    if stage.attachment is None:
        return tuple(Span(Const(0, ScalarType.INDEX), axis.extent) for axis in stage.axes)
    fixed = {
        loop.var.name
        for loop in enclosing
        if not (loop.kind.is_thread and stage.tensor.scope == SHARED_SCOPE)
    }
    spans: list[list[Span]] = [[] for _ in stage.axes]
    for reader in state.readers(stage.name):
        if reader.name not in placed:
            # It stands in front of what it reads: `Roll.before`, of which no more is read.
            continue
        place = placed[reader.name]
        ranges = place.ranges
        inner = frozenset(ranges).difference(fixed)
        for load in reader.reads(stage.name):
            for axis, index in enumerate(load.indices):
                read = substitute(index, place.values)
                spans[axis].append(span_of(read, inner, ranges))
    ranges = loop_ranges(enclosing)
    return tuple(
        clamp(union(found, ranges), axis.extent, ranges)
        for axis, found in zip(stage.axes, spans, strict=True)
    )


def _loop(
    stage: Stage, name: str, extent: int, enclosing: tuple[Loop, ...], unique: frozenset[str]
) -> Loop:
    kind = stage.kind(name)
    reduces = name in stage.reduce_loops
    if not (kind.is_block or kind.is_thread):
        var = Var(name if name in unique else f"{stage.name}.{name}")
        return Loop(name=name, var=var, extent=extent, kind=kind, reduces=reduces)
    var = Var(kind.value)
    around = [loop for loop in enclosing if loop.var == var]
    if around and (kind.is_block or stage.tensor.scope != SHARED_SCOPE):
        raise ScheduleError(
            f"stage {stage.name!r} binds {name!r} to {kind.value} within a loop bound to it, but "
            f"scope {stage.tensor.scope!r} is not shared among its iterations",
            hint=f"give the stage the scope {SHARED_SCOPE!r}, which a block's threads share",
        )
    if around and around[0].extent < extent:
        raise ScheduleError(
            f"stage {stage.name!r} binds {extent} iterations of {name!r} to {kind.value}, "
            f"which has {around[0].extent}"
        )
    return Loop(name=name, var=var, extent=extent, kind=kind, reduces=reduces, opened=bool(around))


def _storage(stage: Stage, extents: tuple[int, ...]) -> Tensor:
    shape = list(extents)
    for alignment in stage.alignments:
        stride = 1
        for extent in shape[alignment.axis + 2 :]:
            stride *= extent
        row = alignment.axis + 1
        shape[row] = _aligned(stage, shape[row], stride, alignment)
    return replace(stage.tensor, shape=tuple(shape), definition=None)


def _aligned(stage: Stage, extent: int, stride: int, alignment: Alignment) -> int:
    """Return the least extent from `extent` on whose rows have the stride asked for."""
    # Remainders repeat after `factor` extents at the latest.
    for candidate in range(extent, extent + alignment.factor):
        if (candidate * stride - alignment.offset) % alignment.factor == 0:
            return candidate
    raise ScheduleError(
        f"storage_align of stage {stage.name!r}: no multiple of {stride} is {alignment.offset} "
        f"modulo {alignment.factor}"
    )


def redirect(expr: Expr, placed: Mapping[str, Realisation], ranges: Ranges) -> Expr:
    """Turn loads of tensors into loads of the storage that holds what is needed of them."""

    def step(node: Expr) -> Expr:
        if not isinstance(node, Load) or node.tensor.name not in placed:
            return node
        place = placed[node.tensor.name]
        pairs = zip(node.indices, place.bases, strict=True)
        return Load(place.storage, tuple(simplify(index - base, ranges) for index, base in pairs))

    return transform(expr, step)
