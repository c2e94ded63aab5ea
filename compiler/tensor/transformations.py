"""What each schedule primitive does to the state of a schedule, and when it is legal."""

from collections.abc import Mapping
from dataclasses import replace

from typing_extensions import assert_never

from tilewright.compiler.tensor.build_nest import check_intrinsics
from tilewright.compiler.tensor.data_movement import (
    cache_read,
    cache_write,
    compute_at,
    compute_inline,
    reduce_factor,
)
from tilewright.compiler.tensor.intrinsics import Intrinsic
from tilewright.compiler.tensor.legality import (
    check_free,
    check_loop,
    check_not_rolled,
    check_plain_loop,
    refuse,
    require_attachments,
)
from tilewright.compiler.tensor.primitives import (
    Annotate,
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeInline,
    DoubleBuffer,
    Fuse,
    Prefetch,
    Primitive,
    ReduceFactor,
    Reorder,
    Roll,
    ScheduleError,
    SetScope,
    Split,
    StorageAlign,
    Tensorize,
)
from tilewright.compiler.tensor.rolling import roll
from tilewright.compiler.tensor.stages import Alignment, State, Tensorized
from tilewright.compiler.tensor.statements import LoopKind


def apply_primitive(
    state: State, primitive: Primitive, intrinsics: Mapping[str, Intrinsic]
) -> State:
    """Return the state after `primitive`.

    Raises
    ------
    ScheduleError
        If the primitive is not legal; the state is left as it was.
    """
    after = _apply(state, primitive, intrinsics)
    if isinstance(primitive, Tensorize):
        # The loops that one stage leaves to an intrinsic change nothing for the others.
        check_intrinsics(after, primitive.stage)
        return after
    try:
        check_intrinsics(after, *(stage.name for stage in after if stage.tensorized is not None))
    except ScheduleError as error:
        raise refuse(primitive, f"then {error}") from error
    return after


def _apply(state: State, primitive: Primitive, intrinsics: Mapping[str, Intrinsic]) -> State:
    match primitive:
        case Split() | Fuse() | Reorder() | Annotate():
            return _apply_to_loops(state, primitive)
        case ComputeAt() | ComputeInline() | CacheRead() | CacheWrite() | ReduceFactor() | Roll():
            return _apply_to_stages(state, primitive)
        case SetScope():
            return _set_scope(state, primitive)
        case Tensorize():
            return _tensorize(state, primitive, intrinsics)
        case StorageAlign():
            return _storage_align(state, primitive)
        case DoubleBuffer():
            return _double_buffer(state, primitive)
        case Prefetch():
            return _prefetch(state, primitive)
        case _:
            assert_never(primitive)


def _apply_to_loops(state: State, primitive: Split | Fuse | Reorder | Annotate) -> State:
    match primitive:
        case Split():
            return _split(state, primitive)
        case Fuse():
            return _fuse(state, primitive)
        case Reorder():
            return _reorder(state, primitive)
        case Annotate():
            return _annotate(state, primitive)
        case _:
            assert_never(primitive)


def _apply_to_stages(
    state: State,
    primitive: ComputeAt | ComputeInline | CacheRead | CacheWrite | ReduceFactor | Roll,
) -> State:
    match primitive:
        case ComputeAt():
            return compute_at(state, primitive)
        case ComputeInline():
            return compute_inline(state, primitive)
        case CacheRead():
            return cache_read(state, primitive)
        case CacheWrite():
            return cache_write(state, primitive)
        case ReduceFactor():
            return reduce_factor(state, primitive)
        case Roll():
            return roll(state, primitive)
        case _:
            assert_never(primitive)


def _double_buffer(state: State, primitive: DoubleBuffer) -> State:
    stage = state.stage(primitive.stage)
    if stage.name in state.outputs:
        raise refuse(primitive, "it is an output")
    return state.updated(replace(stage, double_buffer=True))


def _prefetch(state: State, primitive: Prefetch) -> State:
    inputs = [tensor.name for tensor in state.inputs]
    if primitive.tensor not in inputs:
        raise refuse(primitive, f"it is none of the inputs, which are {', '.join(inputs)}")
    if primitive.elements < 1:
        raise refuse(primitive, f"{primitive.elements} elements are not ahead")
    others = tuple(one for one in state.ahead if one[0] != primitive.tensor)
    return replace(state, ahead=(*others, (primitive.tensor, primitive.elements)))


def _split(state: State, primitive: Split) -> State:
    stage = state.stage(primitive.stage)
    check_plain_loop(state, primitive, stage, primitive.axis)
    check_free(primitive, stage, primitive.outer, primitive.inner)
    size = primitive.factor if primitive.parts is None else primitive.parts
    if size is None or (primitive.factor is not None and primitive.parts is not None):
        raise refuse(primitive, f"axis {primitive.axis!r} takes either a factor or parts")
    if size < 1:
        raise refuse(primitive, f"axis {primitive.axis!r} cannot be split by {size}")
    at = stage.loops.index(primitive.axis)
    loops = (*stage.loops[:at], primitive.outer, primitive.inner, *stage.loops[at + 1 :])
    relations = (*stage.relations, primitive)
    return state.updated(replace(stage, loops=loops, relations=relations))


def _fuse(state: State, primitive: Fuse) -> State:
    stage = state.stage(primitive.stage)
    check_plain_loop(state, primitive, stage, primitive.outer)
    check_plain_loop(state, primitive, stage, primitive.inner)
    check_free(primitive, stage, primitive.fused)
    at = stage.loops.index(primitive.outer)
    if stage.loops[at + 1 : at + 2] != (primitive.inner,):
        raise refuse(
            primitive,
            f"axis {primitive.inner!r} is not directly inside axis {primitive.outer!r}",
            hint="bring them together with reorder",
        )
    if (primitive.outer in stage.reduce_loops) is not (primitive.inner in stage.reduce_loops):
        raise refuse(
            primitive,
            f"only one of axes {primitive.outer!r} and {primitive.inner!r} is a reduce axis",
        )
    loops = (*stage.loops[:at], primitive.fused, *stage.loops[at + 2 :])
    relations = (*stage.relations, primitive)
    return state.updated(replace(stage, loops=loops, relations=relations))


def _reorder(state: State, primitive: Reorder) -> State:
    stage = state.stage(primitive.stage)
    for axis in primitive.axes:
        check_loop(primitive, stage, axis)
        if axis in stage.tensorized_loops:
            raise refuse(primitive, f"axis {axis!r} lies within an intrinsic")
        if primitive.axes.count(axis) > 1:
            raise refuse(primitive, f"axis {axis!r} is named twice")
    order = iter(primitive.axes)
    loops = tuple(next(order) if loop in primitive.axes else loop for loop in stage.loops)
    if loops[:1] != stage.loops[:1]:
        check_not_rolled(state, primitive, stage)
    after = state.updated(replace(stage, loops=loops))
    require_attachments(after, primitive)
    return after


def _annotate(state: State, primitive: Annotate) -> State:
    stage = state.stage(primitive.stage)
    check_loop(primitive, stage, primitive.axis)
    if stage.is_rolled and primitive.axis == stage.loops[0]:
        raise refuse(primitive, f"axis {primitive.axis!r} is carried on by another stage")
    kind = stage.kind(primitive.axis)
    if kind is not LoopKind.SERIAL:
        raise refuse(primitive, f"axis {primitive.axis!r} is {kind.value} already")
    if primitive.axis in stage.tensorized_loops:
        raise refuse(primitive, f"axis {primitive.axis!r} lies within an intrinsic")
    reduces = primitive.axis in stage.reduce_loops
    if reduces and primitive.kind is not LoopKind.UNROLL:
        raise refuse(
            primitive,
            f"axis {primitive.axis!r} is a reduce axis, its iterations depend on each other",
            hint="split it and use reduce_factor to get independent partial results",
        )
    bound = primitive.kind.is_block or primitive.kind.is_thread
    if bound and primitive.kind in dict(stage.kinds).values():
        raise refuse(primitive, f"another axis is bound to {primitive.kind.value} already")
    inside = state.attached(stage.name, primitive.axis)
    if primitive.kind is LoopKind.VECTORIZE and inside:
        raise refuse(primitive, f"stage {inside[0].name!r} is computed in axis {primitive.axis!r}")
    kinds = (*stage.kinds, (primitive.axis, primitive.kind))
    return state.updated(replace(stage, kinds=kinds))


def _set_scope(state: State, primitive: SetScope) -> State:
    stage = state.stage(primitive.stage)
    if stage.name in state.outputs:
        raise refuse(primitive, "it is an output", hint="compute it elsewhere with cache_write")
    tensor = replace(stage.tensor, scope=primitive.scope)
    return state.updated(replace(stage, tensor=tensor))


def _tensorize(state: State, primitive: Tensorize, intrinsics: Mapping[str, Intrinsic]) -> State:
    stage = state.stage(primitive.stage)
    check_loop(primitive, stage, primitive.axis)
    check_not_rolled(state, primitive, stage)
    if primitive.intrinsic not in intrinsics:
        known = ", ".join(intrinsics) or "none"
        raise refuse(
            primitive, f"intrinsic {primitive.intrinsic!r} is not declared, known are {known}"
        )
    if stage.tensorized is not None:
        raise refuse(primitive, f"it uses intrinsic {stage.tensorized.intrinsic.name!r} already")
    for loop in stage.loops[stage.loops.index(primitive.axis) :]:
        check_plain_loop(state, primitive, stage, loop)
    tensorized = Tensorized(axis=primitive.axis, intrinsic=intrinsics[primitive.intrinsic])
    return state.updated(replace(stage, tensorized=tensorized))


def _storage_align(state: State, primitive: StorageAlign) -> State:
    stage = state.stage(primitive.stage)
    names = [axis.name for axis in stage.axes]
    if stage.name in state.outputs:
        raise refuse(primitive, "it is an output")
    if primitive.axis not in names[:-1]:
        wanted = ", ".join(names[:-1]) or "none"
        raise refuse(primitive, f"{primitive.axis!r} is none of the axes with a stride, {wanted}")
    if primitive.factor < 1 or not 0 <= primitive.offset < primitive.factor:
        raise refuse(primitive, f"no stride is {primitive.offset} modulo {primitive.factor}")
    alignment = Alignment(
        axis=names.index(primitive.axis), factor=primitive.factor, offset=primitive.offset
    )
    return state.updated(replace(stage, alignments=(*stage.alignments, alignment)))
