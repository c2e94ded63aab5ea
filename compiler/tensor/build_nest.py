"""The first pass of lowering: from the state of a schedule to a loop nest."""

from collections.abc import Mapping

from tilewright.compiler.tensor.build import all_of
from tilewright.compiler.tensor.expressions import Binary, Const, Expr, Load
from tilewright.compiler.tensor.realisation import Loop, Realisation, realise, redirect
from tilewright.compiler.tensor.stages import Stage, State
from tilewright.compiler.tensor.statements import (
    Allocate,
    For,
    If,
    IntrinsicCall,
    LoopNest,
    Statement,
    Store,
    sequence,
)
from tilewright.compiler.tensor.tensorizing import match_intrinsic, unguarded
from tilewright.compiler.tensor.traversal import substitute


def build_nest(state: State) -> LoopNest:
    """Return the loop nest of a schedule, every loop and guard written out.

    Raises
    ------
    ScheduleError
        If an intrinsic does not do what the loops it stands for do.
    """
    placed = realise(state)
    roots = [stage for stage in state if stage.attachment is None]
    body = sequence(*(_stage(state, placed, stage) for stage in roots))
    for stage in reversed(roots):
        if stage.name not in state.outputs:
            body = _allocate(placed[stage.name], body)
    return LoopNest(
        inputs=state.inputs,
        outputs=tuple(placed[name].storage for name in state.outputs),
        body=body,
    )


def check_intrinsics(state: State, *names: str) -> None:
    """Raise as `build_nest` unless intrinsics do what the tensorized stages `names` compute."""
    placed = realise(state) if names else {}
    for name in names:
        _call(placed, placed[name])


def _allocate(place: Realisation, body: Statement) -> Statement:
    return Allocate(tensor=place.storage, double_buffer=place.stage.double_buffer, body=body)


def _stage(state: State, placed: Mapping[str, Realisation], stage: Stage) -> Statement:
    place = placed[stage.name]
    reduces = [loop.reduces for loop in place.loops]
    first = reduces.index(True) if True in reduces else len(reduces)
    return _loops(state, placed, place, 0, first if _needs_reset(stage) else -1)


def _needs_reset(stage: Stage) -> bool:
    overwritten = stage.tensorized is not None and stage.tensorized.intrinsic.overwrites
    return stage.reduce is not None and not overwritten


def _loops(
    state: State,
    placed: Mapping[str, Realisation],
    place: Realisation,
    depth: int,
    reset: int,
) -> Statement:
    """Return the loops from `depth` inwards, the result being reset in front of loop `reset`."""
    stage = place.stage
    tensorized = len(place.loops) - len(stage.tensorized_loops)
    if depth == reset or (depth == tensorized < reset):
        main = _loops(state, placed, place, depth, -1)
        return sequence(_reset(place, place.loops[depth:]), main)
    if stage.tensorized is not None and depth == tensorized:
        return _guarded(unguarded(place, depth), _call(placed, place))
    if depth == len(place.loops):
        return _guarded((*place.guards, *place.reduce_guards), _store(placed, place))
    body = _loops(state, placed, place, depth + 1, reset)
    for producer in reversed(state.attached(stage.name, place.loops[depth].name)):
        filled = sequence(_stage(state, placed, producer), body)
        body = _allocate(placed[producer.name], filled)
    return _for(place.loops[depth], body)


def _for(loop: Loop, body: Statement) -> Statement:
    if loop.opened:
        return body
    return For(var=loop.var, extent=loop.extent, kind=loop.kind, body=body)


def _guarded(guards: tuple[Expr, ...], body: Statement) -> Statement:
    return If(condition=all_of(*guards), body=body) if guards else body


def _reset(place: Realisation, loops: tuple[Loop, ...]) -> Statement:
    """Return the loops that set what the loops `loops` reduce to the reduction's identity."""
    stage = place.stage
    assert stage.reduce is not None, "only reductions are reset"
    identity = Const(stage.reduce.reduction.identity(stage.tensor.dtype), stage.tensor.dtype)
    body: Statement = Store(tensor=place.storage, indices=place.indices, value=identity)
    body = _guarded(place.guards, body)
    for loop in reversed(loops):
        if not loop.reduces:
            body = _for(loop, body)
    return body


def _store(placed: Mapping[str, Realisation], place: Realisation) -> Statement:
    value = _element(placed, place)
    indices = place.indices
    if place.stage.reduce is not None:
        so_far = Load(place.storage, indices)
        value = Binary(place.stage.reduce.reduction.operator, so_far, value)
    return Store(tensor=place.storage, indices=indices, value=value)


def _element(placed: Mapping[str, Realisation], place: Realisation) -> Expr:
    return redirect(substitute(place.stage.element, place.values), placed, place.ranges)


def _call(placed: Mapping[str, Realisation], place: Realisation) -> IntrinsicCall:
    tensorized = place.stage.tensorized
    assert tensorized is not None, "only called for tensorized stages"
    depth = place.stage.loops.index(tensorized.axis)
    return match_intrinsic(tensorized.intrinsic, place, _element(placed, place), depth)
