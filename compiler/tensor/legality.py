"""The rules that several schedule primitives share, and the wording of refusals."""

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
from tilewright.compiler.tensor.stages import Stage, State
from tilewright.compiler.tensor.statements import LoopKind

_NAMES: dict[type[Primitive], str] = {
    Split: "split",
    Fuse: "fuse",
    Reorder: "reorder",
    Annotate: "annotate",
    ComputeAt: "compute_at",
    ComputeInline: "compute_inline",
    CacheRead: "cache_read",
    CacheWrite: "cache_write",
    SetScope: "set_scope",
    Tensorize: "tensorize",
    ReduceFactor: "reduce_factor",
    StorageAlign: "storage_align",
    DoubleBuffer: "double_buffer",
    Prefetch: "prefetch",
    Roll: "roll",
}


def refuse(primitive: Primitive, reason: str, *, hint: str | None = None) -> ScheduleError:
    """Return the error that says why `primitive` is not legal."""
    name = primitive.kind.value if isinstance(primitive, Annotate) else _NAMES[type(primitive)]
    target = (
        f"tensor {primitive.tensor!r}"
        if isinstance(primitive, CacheRead | Prefetch)
        else f"stage {primitive.stage!r}"
    )
    return ScheduleError(f"{name} of {target}: {reason}", hint=hint)


def check_loop(primitive: Primitive, stage: Stage, axis: str) -> None:
    """Refuse unless `axis` is one of the stage's loops."""
    if axis not in stage.loops:
        raise refuse(
            primitive, f"{axis!r} is none of its loops, which are {', '.join(stage.loops)}"
        )


def check_plain_loop(state: State, primitive: Primitive, stage: Stage, axis: str) -> None:
    """Refuse unless `axis` is a loop that nothing refers to yet."""
    check_loop(primitive, stage, axis)
    kind = stage.kind(axis)
    if kind is not LoopKind.SERIAL:
        raise refuse(primitive, f"axis {axis!r} is {kind.value} already")
    if axis in stage.tensorized_loops:
        raise refuse(primitive, f"axis {axis!r} lies within an intrinsic")
    for producer in state.attached(stage.name, axis):
        raise refuse(primitive, f"stage {producer.name!r} is computed in axis {axis!r}")
    if stage.is_rolled and axis == stage.loops[0]:
        raise refuse(primitive, f"axis {axis!r} is carried on by another stage")


def check_not_rolled(state: State, primitive: Primitive, stage: Stage) -> None:
    """Refuse if the stage's reduction is carried on by another one, or it carries others on."""
    if stage.is_rolled or stage.repairs or state.rolled(stage.name):
        raise refuse(primitive, "it is rolled, or other reductions are rolled into it, already")


def check_free(primitive: Primitive, stage: Stage, *names: str) -> None:
    """Refuse unless `names` are new names for loops of the stage."""
    taken = {axis.name for axis in (*stage.axes, *stage.reduce_axes)} | set(stage.loops)
    for relation in stage.relations:
        taken |= {relation.outer, relation.inner}
    for name in names:
        if name in taken or names.count(name) > 1:
            raise refuse(primitive, f"there is an axis {name!r} already")


def check_new_stage(state: State, primitive: Primitive, name: str) -> None:
    """Refuse unless `name` is a new name for a stage."""
    if name in state.names:
        raise refuse(primitive, f"there is a tensor {name!r} already")


def require_attachments(state: State, primitive: Primitive) -> None:
    """Refuse if a stage would be read outside of the loop in which it is computed."""
    for stage in state:
        if stage.attachment is None:
            continue
        for reader in state.readers(stage.name):
            if not _encloses(state, stage, reader):
                place = stage.attachment
                raise refuse(
                    primitive,
                    f"stage {reader.name!r} reads {stage.name!r} outside of axis {place.axis!r} "
                    f"of stage {place.consumer!r}",
                )


def _encloses(state: State, stage: Stage, reader: Stage) -> bool:
    """Whether `reader` runs within the loop in which `stage` is computed, and after it.

    What is rolled exists around its loop as well: it may be read when the loop is done.
    """
    place = stage.attachment
    assert place is not None, "only asked of attached stages"
    if place.rolled and state.is_after(reader.name, place.consumer):
        consumer = state.stage(place.consumer)
        if consumer.attachment is None or _encloses(state, consumer, reader):
            return True
    if reader.name == place.consumer:
        return True
    loops = state.stage(place.consumer).loops
    while reader.attachment is not None:
        if reader.attachment.consumer == place.consumer:
            return loops.index(reader.attachment.axis) >= loops.index(place.axis)
        reader = state.stage(reader.attachment.consumer)
    return False
