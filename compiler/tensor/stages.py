"""The state of a schedule: one stage per tensor, each with its loops and its place."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from tilewright.compiler.tensor.declare import inputs_of
from tilewright.compiler.tensor.expressions import Axis, Expr, Load, Reduce, Tensor
from tilewright.compiler.tensor.intrinsics import Intrinsic
from tilewright.compiler.tensor.primitives import Fuse, ScheduleError, Split
from tilewright.compiler.tensor.statements import LoopKind
from tilewright.compiler.tensor.traversal import loads

#: How loops came from others.
Relation: TypeAlias = Split | Fuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """The loop of another stage in which a stage is computed.

    With `rolled` each iteration carries the stage's reduction on by one of its outermost loop.
    """

    consumer: str
    axis: str
    rolled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensorized:
    """The loop from which on a stage is one use of an intrinsic."""

    axis: str
    intrinsic: Intrinsic


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """A stride along one axis of the storage: `offset` modulo `factor`."""

    axis: int
    factor: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The computation of one tensor.

    Attributes
    ----------
    tensor
        Name, shape, element type and scope of the result.
    axes
        The axes of the result.
    body
        Value of an element; loads name other tensors.
    conditions
        Of a reduction: terms for which one of them does not hold are left out.
    relations
        How the loops came from the axes, in the order in which that happened.
    loops
        Names of the loops, outermost first.
    kinds
        How loops are carried out, where it is not one iteration after the other.
    repairs
        What a reduction so far is multiplied by in each iteration of its outermost loop.
    """

    tensor: Tensor
    axes: tuple[Axis, ...]
    body: Expr
    conditions: tuple[Expr, ...] = ()
    relations: tuple[Relation, ...] = ()
    loops: tuple[str, ...]
    kinds: tuple[tuple[str, LoopKind], ...] = ()
    attachment: Attachment | None = None
    tensorized: Tensorized | None = None
    alignments: tuple[Alignment, ...] = ()
    double_buffer: bool = False
    repairs: tuple[Expr, ...] = ()

    @property
    def is_rolled(self) -> bool:
        """Whether a loop of another stage carries its reduction on."""
        return self.attachment is not None and self.attachment.rolled

    @property
    def name(self) -> str:
        """Name of the stage and of its tensor."""
        return self.tensor.name

    @property
    def reduce(self) -> Reduce | None:
        """The reduction, if the stage is one."""
        return self.body if isinstance(self.body, Reduce) else None

    @property
    def reduce_axes(self) -> tuple[Axis, ...]:
        """The axes that are reduced."""
        return () if self.reduce is None else self.reduce.axes

    @property
    def element(self) -> Expr:
        """The value of an element, or one term of the reduction."""
        return self.body if self.reduce is None else self.reduce.body

    @property
    def reduce_loops(self) -> frozenset[str]:
        """Names of everything that came from reduce axes."""
        names = {axis.name for axis in self.reduce_axes}
        for relation in self.relations:
            match relation:
                case Split() if relation.axis in names:
                    names |= {relation.outer, relation.inner}
                case Fuse() if relation.outer in names:
                    names.add(relation.fused)
        return frozenset(names)

    @property
    def is_untouched(self) -> bool:
        """Whether the loops are still the axes, in order."""
        axes = tuple(axis.name for axis in (*self.axes, *self.reduce_axes))
        return self.loops == axes and not self.kinds and self.tensorized is None

    @property
    def tensorized_loops(self) -> tuple[str, ...]:
        """The loops that an intrinsic replaces."""
        if self.tensorized is None:
            return ()
        return self.loops[self.loops.index(self.tensorized.axis) :]

    def kind(self, loop: str) -> LoopKind:
        """Return how `loop` is carried out."""
        return dict(self.kinds).get(loop, LoopKind.SERIAL)

    def reads(self, name: str) -> tuple[Load, ...]:
        """Return the loads from the tensor called `name`."""
        found = dict.fromkeys(load for expr in (self.body, *self.repairs) for load in loads(expr))
        return tuple(load for load in found if load.tensor.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Inputs and stages, each stage after what it reads; inputs of which more is fetched ahead."""

    inputs: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]
    ahead: tuple[tuple[str, int], ...] = ()

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all inputs and stages."""
        return (*(tensor.name for tensor in self.inputs), *(stage.name for stage in self.stages))

    def stage(self, name: str) -> Stage:
        """Return the stage called `name`."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        known = ", ".join(stage.name for stage in self.stages)
        raise ScheduleError(f"the schedule has no stage {name!r}, its stages are {known}")

    def readers(self, name: str) -> tuple[Stage, ...]:
        """Return the stages that read the tensor called `name`."""
        return tuple(stage for stage in self.stages if stage.reads(name))

    def attached(self, name: str, axis: str | None = None) -> tuple[Stage, ...]:
        """Return the stages computed in a loop, by default any loop, of the stage `name`."""
        return tuple(
            stage
            for stage in self.stages
            if stage.attachment is not None
            and stage.attachment.consumer == name
            and axis in (None, stage.attachment.axis)
        )

    def rolled(self, name: str) -> tuple[Stage, ...]:
        """Return the stages whose reductions the stage `name` carries on."""
        return tuple(stage for stage in self.attached(name) if stage.is_rolled)

    def is_after(self, name: str, other: str) -> bool:
        """Whether the stage `name` comes after the stage `other`."""
        names = [stage.name for stage in self.stages]
        return names.index(name) > names.index(other)

    def updated(self, *stages: Stage) -> "State":
        """Return the state with stages of the same names replaced."""
        changed = {stage.name: stage for stage in stages}
        return replace(self, stages=tuple(changed.get(stage.name, stage) for stage in self.stages))

    def inserted(self, stage: Stage, *, before: str | None) -> "State":
        """Return the state with one more stage, in front of `before` or of all."""
        position = 0
        if before is not None:
            position = [other.name for other in self.stages].index(before)
        stages = (*self.stages[:position], stage, *self.stages[position:])
        return replace(self, stages=stages)


def new_stage(tensor: Tensor, axes: tuple[Axis, ...], body: Expr) -> Stage:
    """Return a stage whose loops are its axes, in order."""
    reduced = body.axes if isinstance(body, Reduce) else ()
    loops = tuple(axis.name for axis in (*axes, *reduced))
    return Stage(tensor=tensor, axes=axes, body=body, loops=loops)


def initial_state(outputs: Iterable[Tensor]) -> State:
    """Return the state of a schedule that does nothing yet.

    Raises
    ------
    ScheduleError
        If two tensors share a name or an output is no computation.
    """
    wanted = tuple(outputs)
    tensors: list[Tensor] = []

    def visit(tensor: Tensor) -> None:
        if tensor in tensors:
            return
        for source in inputs_of(tensor):
            visit(source)
        tensors.append(tensor)

    for tensor in wanted:
        if tensor.definition is None:
            raise ScheduleError(f"output {tensor.name!r} is no computation")
        visit(tensor)
    names = [tensor.name for tensor in tensors]
    for name in names:
        if names.count(name) > 1:
            raise ScheduleError(f"two tensors are called {name!r}")
    return State(
        inputs=tuple(tensor for tensor in tensors if tensor.definition is None),
        stages=tuple(
            new_stage(tensor, tensor.definition.axes, tensor.definition.body)
            for tensor in tensors
            if tensor.definition is not None
        ),
        outputs=tuple(tensor.name for tensor in wanted),
    )
