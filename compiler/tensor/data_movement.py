"""The schedule primitives that add, merge and move stages."""

from dataclasses import replace

from tilewright.compiler.tensor.build import all_of, select
from tilewright.compiler.tensor.expressions import Axis, Const, Expr, Load, Reduce, Tensor
from tilewright.compiler.tensor.intervals import Interval
from tilewright.compiler.tensor.legality import (
    check_loop,
    check_new_stage,
    check_not_rolled,
    refuse,
    require_attachments,
)
from tilewright.compiler.tensor.primitives import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeInline,
    ReduceFactor,
)
from tilewright.compiler.tensor.relations import size_loops, undo_relations
from tilewright.compiler.tensor.stages import Attachment, Stage, State, new_stage
from tilewright.compiler.tensor.statements import LoopKind
from tilewright.compiler.tensor.traversal import substitute, transform


def compute_at(state: State, primitive: ComputeAt) -> State:
    """Move a stage into a loop of another."""
    stage, consumer = state.stage(primitive.stage), state.stage(primitive.consumer)
    if stage.name in state.outputs:
        raise refuse(primitive, "it is an output, all of it is needed")
    if stage.is_rolled:
        raise refuse(primitive, "its reduction is carried on by another stage")
    if primitive.axis not in consumer.loops:
        raise refuse(
            primitive,
            f"{primitive.axis!r} is none of the loops of stage {consumer.name!r}, "
            f"which are {', '.join(consumer.loops)}",
        )
    if primitive.axis in consumer.tensorized_loops:
        raise refuse(
            primitive, f"axis {primitive.axis!r} of {consumer.name!r} lies within an intrinsic"
        )
    if consumer.kind(primitive.axis) is LoopKind.VECTORIZE:
        raise refuse(primitive, f"axis {primitive.axis!r} of {consumer.name!r} is vectorized")
    place = Attachment(consumer=consumer.name, axis=primitive.axis)
    after = state.updated(replace(stage, attachment=place))
    if _is_inside_itself(after, stage.name):
        raise refuse(primitive, f"stage {consumer.name!r} is computed within it")
    require_attachments(after, primitive)
    return after


def _is_inside_itself(state: State, name: str) -> bool:
    place = state.stage(name).attachment
    while place is not None:
        if place.consumer == name:
            return True
        place = state.stage(place.consumer).attachment
    return False


def compute_inline(state: State, primitive: ComputeInline) -> State:
    """Put a stage's expression into its readers."""
    stage = state.stage(primitive.stage)
    if stage.name in state.outputs:
        raise refuse(primitive, "it is an output, all of it is needed")
    if stage.reduce is not None:
        raise refuse(primitive, "it is a reduction, which is no expression of one element")
    for guest in state.attached(stage.name):
        raise refuse(primitive, f"stage {guest.name!r} is computed in axis {_place(guest)!r} of it")
    readers = state.readers(stage.name)
    for reader in readers:
        if reader.tensorized is not None:
            raise refuse(primitive, f"its reader {reader.name!r} is an intrinsic already")

    def step(node: Expr) -> Expr:
        if not isinstance(node, Load) or node.tensor.name != stage.name:
            return node
        pairs = zip(stage.axes, node.indices, strict=True)
        return substitute(stage.body, {axis.name: index for axis, index in pairs})

    merged = [
        replace(
            reader,
            body=transform(reader.body, step),
            repairs=tuple(transform(factor, step) for factor in reader.repairs),
        )
        for reader in readers
    ]
    rest = tuple(other for other in state.stages if other.name != stage.name)
    after = replace(state, stages=rest).updated(*merged)
    require_attachments(after, primitive)
    return after


def _place(stage: Stage) -> str:
    assert stage.attachment is not None, "only asked of attached stages"
    return stage.attachment.axis


def cache_read(state: State, primitive: CacheRead) -> State:
    """Add a stage that copies a tensor for some of its readers."""
    tensor, axes = _tensor_and_axes(state, primitive)
    check_new_stage(state, primitive, primitive.name)
    names = [reader.name for reader in state.readers(tensor.name)]
    for name in primitive.readers:
        if name not in names:
            raise refuse(primitive, f"stage {name!r} does not read it")
        if state.stage(name).tensorized is not None:
            raise refuse(primitive, f"its reader {name!r} is an intrinsic already")
    if not primitive.readers:
        raise refuse(primitive, "nobody reads it")
    copy = replace(tensor, name=primitive.name, scope=primitive.scope, definition=None)
    body = Load(tensor, tuple(axis.var for axis in axes))
    readers = tuple(
        replace(
            reader,
            body=_renamed(reader.body, tensor.name, copy),
            repairs=tuple(_renamed(factor, tensor.name, copy) for factor in reader.repairs),
        )
        for reader in map(state.stage, primitive.readers)
    )
    position = min(names.index(name) for name in primitive.readers)
    added = state.inserted(new_stage(copy, axes, body), before=names[position])
    after = added.updated(*readers)
    require_attachments(after, primitive)
    return after


def _tensor_and_axes(state: State, primitive: CacheRead) -> tuple[Tensor, tuple[Axis, ...]]:
    for tensor in state.inputs:
        if tensor.name == primitive.tensor:
            extents = enumerate(tensor.shape)
            return tensor, tuple(Axis(name=f"i{at}", extent=extent) for at, extent in extents)
    stage = state.stage(primitive.tensor)
    return stage.tensor, stage.axes


def _renamed(body: Expr, name: str, tensor: Tensor) -> Expr:
    def step(node: Expr) -> Expr:
        if isinstance(node, Load) and node.tensor.name == name:
            return Load(tensor, node.indices)
        return node

    return transform(body, step)


def cache_write(state: State, primitive: CacheWrite) -> State:
    """Let a stage compute into another memory first."""
    stage = state.stage(primitive.stage)
    check_new_stage(state, primitive, primitive.name)
    check_not_rolled(state, primitive, stage)
    if not stage.is_untouched or state.attached(stage.name):
        raise refuse(
            primitive,
            "its loops have been changed already",
            hint="use cache_write first, then schedule the new stage",
        )
    tensor = replace(stage.tensor, name=primitive.name, scope=primitive.scope, definition=None)
    # It runs where the stage ran, so that what it reads is at hand there.
    computed = replace(
        new_stage(tensor, stage.axes, stage.body),
        attachment=stage.attachment,
        conditions=stage.conditions,
    )
    copy = new_stage(stage.tensor, stage.axes, Load(tensor, tuple(axis.var for axis in stage.axes)))
    copy = replace(copy, attachment=stage.attachment, double_buffer=stage.double_buffer)
    return state.inserted(computed, before=stage.name).updated(copy)


def reduce_factor(state: State, primitive: ReduceFactor) -> State:
    """Add a stage of partial reductions and reduce those."""
    stage = state.stage(primitive.stage)
    check_loop(primitive, stage, primitive.axis)
    check_new_stage(state, primitive, primitive.name)
    check_not_rolled(state, primitive, stage)
    if stage.reduce is None or primitive.axis not in stage.reduce_loops:
        raise refuse(primitive, f"axis {primitive.axis!r} is no reduce axis")
    if stage.kinds or stage.tensorized is not None or state.attached(stage.name):
        raise refuse(primitive, "its loops carry annotations, intrinsics or other stages already")
    if any(relation.inner not in stage.reduce_loops for relation in stage.relations):
        raise refuse(
            primitive,
            "loops over axes of its result have been changed already",
            hint="use reduce_factor first, then schedule both stages",
        )
    return _factored(state, primitive, stage, stage.reduce)


def _factored(state: State, primitive: ReduceFactor, stage: Stage, reduce: Reduce) -> State:
    sizes = {axis.name: axis.extent for axis in reduce.axes}
    size_loops(stage.relations, sizes)
    loops = [loop for loop in stage.loops if loop in stage.reduce_loops]
    axes = {loop: Axis(name=loop, extent=sizes[loop]) for loop in loops}
    term, conditions = _term(stage, reduce, sizes, axes)
    kept = axes.pop(primitive.axis)
    partial_axes = (kept, *stage.axes)
    tensor = replace(
        stage.tensor,
        name=primitive.name,
        shape=tuple(axis.extent for axis in partial_axes),
        scope="global",
        definition=None,
    )
    rest = tuple(axes.values())
    body: Expr = Reduce(reduce.reduction, term, rest)
    if not rest:
        identity = Const(reduce.reduction.identity(reduce.dtype), reduce.dtype)
        body = select(all_of(*conditions), term, identity) if conditions else term
    element = Load(tensor, tuple(axis.var for axis in partial_axes))
    total = new_stage(stage.tensor, stage.axes, Reduce(reduce.reduction, element, (kept,)))
    total = replace(total, attachment=stage.attachment)
    partial = replace(
        new_stage(tensor, partial_axes, body),
        attachment=stage.attachment,
        conditions=conditions if rest else (),
    )
    return state.inserted(partial, before=stage.name).updated(total)


def _term(
    stage: Stage, reduce: Reduce, sizes: dict[str, int], axes: dict[str, Axis]
) -> tuple[Expr, tuple[Expr, ...]]:
    """Return one term of the reduction over the present loops, and the conditions it is under."""
    values: dict[str, Expr] = {loop: axis.var for loop, axis in axes.items()}
    ranges = {loop: Interval(0, axis.extent - 1) for loop, axis in axes.items()}
    guards = undo_relations(stage.relations, sizes, values, ranges)
    conditions = (*stage.conditions, *(guard for _, guard in guards))
    return substitute(reduce.body, values), tuple(substitute(one, values) for one in conditions)
