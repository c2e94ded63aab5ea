"""The primitives of schedules as data: what a trace holds, prints and saves."""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias, get_args

from tilewright.compiler.tensor.statements import LoopKind
from tilewright.isa.errors import CompileError


class ScheduleError(CompileError):
    """A schedule primitive is not legal where it is used; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One loop becomes two: of `factor` inner iterations, or of `parts` outer ones.

    Where the extent is no multiple, a guard leaves out the iterations beyond it.
    """

    stage: str
    axis: str
    factor: int | None = None
    parts: int | None = None
    outer: str
    inner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuse:
    """Two loops, one directly inside the other, become one."""

    stage: str
    outer: str
    inner: str
    fused: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reorder:
    """The loops `axes` take the places they hold together, in this order."""

    stage: str
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotate:
    """A loop is carried out in another way: unrolled, in vectors, in parallel, by threads."""

    stage: str
    axis: str
    kind: LoopKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeAt:
    """The part of the stage that one iteration of `axis` needs is computed in that iteration."""

    stage: str
    consumer: str
    axis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeInline:
    """The stage's expression takes the place of every load from it."""

    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRead:
    """A copy of `tensor` in `scope`, stage `name`, is what `readers` read."""

    tensor: str
    scope: str
    readers: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheWrite:
    """`stage` is computed in `scope` as stage `name`; what remains of it copies the result."""

    stage: str
    scope: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetScope:
    """The stage's result lies in the memory `scope`."""

    stage: str
    scope: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensorize:
    """The loops from `axis` inwards become one use of `intrinsic`."""

    stage: str
    axis: str
    intrinsic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceFactor:
    """Partial reductions, one for each value of the reduce loop `axis`, become stage `name`."""

    stage: str
    axis: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageAlign:
    """The distance between neighbours along `axis` is `offset` modulo `factor` elements."""

    stage: str
    axis: str
    factor: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubleBuffer:
    """The stage's storage is kept twice, so that it is filled while it is in use."""

    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefetch:
    """Whoever reads the input `tensor` also asks for what lies so many elements further on."""

    tensor: str
    elements: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Roll:
    """Each iteration of `axis`, a reduce loop of `consumer`, also carries the stage's reduction on.

    What is read of the stage within the loop are its terms so far. Where sums depend on it, stage
    `before` has its value before the iteration, and stage `repair` what the sums so far change by.
    """

    stage: str
    consumer: str
    axis: str
    before: str
    repair: str


Primitive: TypeAlias = (
    Split
    | Fuse
    | Reorder
    | Annotate
    | ComputeAt
    | ComputeInline
    | CacheRead
    | CacheWrite
    | SetScope
    | Tensorize
    | ReduceFactor
    | StorageAlign
    | DoubleBuffer
    | Prefetch
    | Roll
)

_CLASSES = {primitive.__name__: primitive for primitive in get_args(Primitive)}


def format_primitive(primitive: Primitive) -> str:
    """Return a primitive as one line, ``Split(stage=C, axis=i, ...)``."""
    values = ((field.name, getattr(primitive, field.name)) for field in fields(primitive))
    text = ", ".join(f"{name}={_text(value)}" for name, value in values if value is not None)
    return f"{type(primitive).__name__}({text})"


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    return value.value if isinstance(value, LoopKind) else str(value)


def trace_to_json(trace: tuple[Primitive, ...]) -> str:
    """Return a trace as JSON text, one primitive a line."""
    lines = (
        json.dumps({"primitive": type(primitive).__name__, **_plain(primitive)})
        for primitive in trace
    )
    return "[\n" + ",\n".join(lines) + "\n]\n"


def trace_from_json(text: str) -> tuple[Primitive, ...]:
    """Return the trace that `trace_to_json` wrote.

    Raises
    ------
    ScheduleError
        If the text holds something else.
    """
    try:
        entries = json.loads(text)
        return tuple(_primitive(dict(entry)) for entry in entries)
    except (ValueError, TypeError, KeyError) as error:
        raise ScheduleError(f"the trace of a schedule is malformed: {error}") from error


def _plain(primitive: Primitive) -> dict[str, Any]:
    values = asdict(primitive)
    return {
        name: value.value if isinstance(value, LoopKind) else value
        for name, value in values.items()
        if value is not None
    }


def _primitive(entry: dict[str, Any]) -> Primitive:
    build = _CLASSES[entry.pop("primitive")]
    for name, value in entry.items():
        if isinstance(value, list):
            entry[name] = tuple(map(str, value))
        elif name == "kind":
            entry[name] = LoopKind(value)
        elif not isinstance(value, str | int):
            raise TypeError(f"{name} is {value!r}")
    primitive: Primitive = build(**entry)
    return primitive
