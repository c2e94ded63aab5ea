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
    body = sequence(*(_computed(state, placed, stage) for stage in roots))
    for stage in reversed(roots):
        body = _allocated(state, placed, stage, body)
    return LoopNest(
        inputs=state.inputs,
        outputs=tuple(placed[name].storage for name in state.outputs),
        body=body,
        ahead=state.ahead,
    )


def check_intrinsics(state: State, *names: str) -> None:
    """Raise as `build_nest` unless intrinsics do what the tensorized stages `names` compute."""
    placed = realise(state) if names else {}
    for name in names:
        _call(placed, placed[name])


def _allocate(place: Realisation, body: Statement) -> Statement:
    return Allocate(tensor=place.storage, double_buffer=place.stage.double_buffer, body=body)


def _allocated(
    state: State, placed: Mapping[str, Realisation], stage: Stage, body: Statement
) -> Statement:
    """Return `body` with the storage of a stage, and of the reductions that it carries on."""
    for own in reversed((*state.rolled(stage.name), stage)):
        if own.name not in state.outputs:
            body = _allocate(placed[own.name], body)
    return body


def _computed(state: State, placed: Mapping[str, Realisation], stage: Stage) -> Statement:
    """Return what computes a stage and the reductions that it carries on."""
    carried = (placed[own.name] for own in state.rolled(stage.name))
    resets = (_reset(place, place.loops[1:]) for place in carried)
    return sequence(*resets, _stage(state, placed, stage))


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
    if depth == 0:
        body = sequence(*_repaired(placed, place), body)
    for producer in reversed(state.attached(stage.name, place.loops[depth].name)):
        if producer.is_rolled:
            own = placed[producer.name]
            body = sequence(*_repaired(placed, own), _loops(state, placed, own, 1, -1), body)
            continue
        filled = sequence(_computed(state, placed, producer), body)
        body = _allocated(state, placed, producer, filled)
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
    return _elements(place, loops, identity)


def _repaired(placed: Mapping[str, Realisation], place: Realisation) -> tuple[Statement, ...]:
    """Return the loops that multiply what a reduction has so far by its repairs."""
    value: Expr = Load(place.storage, place.indices)
    for factor in place.stage.repairs:
        value = value * redirect(substitute(factor, place.values), placed, place.ranges)
    return (_elements(place, place.loops[1:], value),) if place.stage.repairs else ()


def _elements(place: Realisation, loops: tuple[Loop, ...], value: Expr) -> Statement:
    """Return those of the loops `loops` that run over elements, setting each to `value`."""
    body: Statement = Store(tensor=place.storage, indices=place.indices, value=value)
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
