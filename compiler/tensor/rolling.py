"""The primitive that lets one loop carry several reductions of which later ones read earlier ones.

A softmax needs the largest value before it can add exponentials. Rolled into the loop that adds
them, the maximum is that of the terms so far, and when it grows, the sums so far are repaired: each
term has a factor ``exp(x - g(maximum))``, so all of them change by the same factor (Milakov and
Gimelshein, arXiv 1805.02867). In exact arithmetic nothing changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.compiler.tensor.build import call
from tilewright.compiler.tensor.expressions import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Tensor,
)
from tilewright.compiler.tensor.legality import (
    check_loop,
    check_new_stage,
    refuse,
    require_attachments,
)
from tilewright.compiler.tensor.operations import Function, Operator, Reduction
from tilewright.compiler.tensor.primitives import Roll, ScheduleError
from tilewright.compiler.tensor.relations import size_loops
from tilewright.compiler.tensor.stages import Attachment, Stage, State, new_stage
from tilewright.compiler.tensor.traversal import children, loads, substitute, transform, variables


def roll(state: State, primitive: Roll) -> State:
    """Let a loop of a reduction carry another one."""
    stage, consumer = state.stage(primitive.stage), state.stage(primitive.consumer)
    _check(state, primitive, stage, consumer)
    place = Attachment(consumer=consumer.name, axis=primitive.axis, rolled=True)
    after = _ordered(state, primitive).updated(replace(stage, attachment=place))
    repaired = dict(_repairs(after, primitive, consumer))
    if repaired:
        check_new_stage(state, primitive, primitive.before)
        check_new_stage(state, primitive, primitive.repair)
        after = _with_repairs(after, primitive, repaired)
    require_attachments(after, primitive)
    return after


def _check(state: State, primitive: Roll, stage: Stage, consumer: Stage) -> None:
    if stage.name == consumer.name:
        raise refuse(primitive, "a stage does not carry itself on")
    for one, loop in ((stage, stage.loops[0] if stage.loops else ""), (consumer, primitive.axis)):
        check_loop(primitive, one, loop)
        if loop not in one.reduce_loops or one.loops[0] != loop:
            raise refuse(
                primitive, f"the outermost loop of stage {one.name!r} must be a reduce loop to roll"
            )
        if one.tensorized is not None and loop in one.tensorized_loops:
            raise refuse(primitive, f"axis {loop!r} of {one.name!r} lies within an intrinsic")
    if stage.name in state.outputs:
        raise refuse(primitive, "it is an output")
    if stage.attachment is not None or stage.tensorized is not None:
        raise refuse(primitive, "it is computed elsewhere, or by an intrinsic, already")
    if stage.kind(stage.loops[0]).value != "serial" or state.attached(stage.name, stage.loops[0]):
        raise refuse(primitive, f"axis {stage.loops[0]!r} is annotated or holds a stage already")
    if _extent(stage, stage.loops[0]) != _extent(consumer, primitive.axis):
        raise refuse(
            primitive,
            f"axis {stage.loops[0]!r} has {_extent(stage, stage.loops[0])} iterations, "
            f"axis {primitive.axis!r} of {consumer.name!r} {_extent(consumer, primitive.axis)}",
        )


def _ordered(state: State, primitive: Roll) -> State:
    """Return the state with the consumer behind the stage that its loop carries on."""
    if state.is_after(primitive.consumer, primitive.stage):
        return state
    consumer = state.stage(primitive.consumer)
    for reader in state.readers(consumer.name):
        if not state.is_after(reader.name, primitive.stage):
            raise refuse(primitive, f"{reader.name!r} reads {consumer.name!r} in front of it")
    rest = replace(state, stages=tuple(one for one in state.stages if one is not consumer))
    names = [one.name for one in rest.stages]
    following = names[names.index(primitive.stage) + 1 :]
    return rest.inserted(consumer, before=following[0])


def _extent(stage: Stage, loop: str) -> int:
    sizes = {axis.name: axis.extent for axis in (*stage.axes, *stage.reduce_axes)}
    size_loops(stage.relations, sizes)
    return sizes[loop]


def _repairs(
    state: State, primitive: Roll, consumer: Stage
) -> Iterator[tuple[str, tuple[Load, Expr]]]:
    """Iterate over the reductions that the loop carries and that depend on the rolled stage.

    Each comes with the element of the rolled stage that it depends on, and with `_Exponents.of`.
    """
    exponents = _Exponents(state, primitive)
    for name in (consumer.name, *(one.name for one in state.rolled(consumer.name))):
        carried = state.stage(name)
        if name == primitive.stage:
            continue
        assert carried.reduce is not None, "only reductions are rolled"
        exponent = exponents.of(carried.element)
        if exponent is None:
            continue
        own = {axis.name for axis in carried.axes}
        found = [load for load in loads(exponent) if load.tensor.name == primitive.stage]
        if carried.reduce.reduction is not Reduction.SUM or not variables(exponent) <= own:
            raise exponents.refusal(carried.name)
        if len(found) != 1:
            raise exponents.refusal(carried.name)
        yield name, (found[0], exponent)


def _with_repairs(state: State, primitive: Roll, repaired: dict[str, tuple[Load, Expr]]) -> State:
    """Add the stages of the value before an iteration and of the factor, and use the factor."""
    stage = state.stage(primitive.stage)
    place = Attachment(consumer=primitive.consumer, axis=primitive.axis)
    here = tuple(axis.var for axis in stage.axes)
    before = replace(stage.tensor, name=primitive.before, definition=None)
    factor = replace(stage.tensor, name=primitive.repair, definition=None)
    bodies = {
        call(
            Function.EXP,
            _with_element(exponent, load, Load(before, here))
            - _with_element(exponent, load, Load(stage.tensor, here)),
        )
        for load, exponent in repaired.values()
    }
    body = bodies.pop()
    if bodies or not variables(body) <= {axis.name for axis in stage.axes}:
        raise refuse(primitive, "what depends on it changes by different factors")
    copy = new_stage(before, stage.axes, Load(stage.tensor, here))
    repair = new_stage(factor, stage.axes, body)
    following = state.stages[[one.name for one in state.stages].index(stage.name) + 1].name
    state = state.inserted(replace(copy, attachment=place), before=stage.name)
    state = state.inserted(replace(repair, attachment=place), before=following)
    changed = []
    for name, (load, _) in repaired.items():
        carried = state.stage(name)
        changed.append(replace(carried, repairs=(*carried.repairs, Load(factor, load.indices))))
    return state.updated(*changed)


def _with_element(exponent: Expr, load: Load, other: Load) -> Expr:
    return transform(exponent, lambda node: other if node == load else node)


@dataclass(frozen=True, slots=True)
class _Exponents:
    """Finds how expressions in a loop depend on the stage that is rolled into it."""

    state: State
    primitive: Roll

    def of(self, expr: Expr) -> Expr | None:
        """Return g where `expr` is ``exp(-g)`` times what is free of the stage; None without it.

        Raises
        ------
        ScheduleError
            If `expr` depends on the stage in another way.
        """
        if not self._depends(expr):
            return None
        match expr:
            case Cast(operand, dtype) if dtype.is_float and operand.dtype.is_float:
                return self.of(operand)
            case Binary(Operator.MULTIPLY, left, right):
                if self._depends(left) is not self._depends(right):
                    return self.of(left if self._depends(left) else right)
            case Binary(Operator.DIVIDE, left, right) if not self._depends(right):
                return self.of(left)
            case Select(condition, then, Const(value=0)) if not self._depends(condition):
                return self.of(then)
            case Call(Function.EXP, (Binary(Operator.SUBTRACT, left, right),)):
                if not self._depends(left) and self._reads_only_the_stage(right):
                    return right
            case Load():
                return self._of_element(expr)
        raise self.refusal(self.primitive.consumer)

    def refusal(self, reader: str) -> ScheduleError:
        """Return the error that says what cannot be repaired."""
        name = self.primitive.stage
        return refuse(
            self.primitive,
            f"what {reader!r} has added cannot be repaired when {name!r} changes",
            hint=f"terms of a sum may depend on it by a factor exp(x - {name}[...]) only",
        )

    def _of_element(self, load: Load) -> Expr | None:
        """Return `of` of what the loop computes of another stage."""
        producer = self._inside(load.tensor)
        if producer is None:
            raise self.refusal(self.primitive.consumer)
        exponent = self.of(producer.element)
        own = {axis.name for axis in producer.axes}
        sums = producer.reduce is None or producer.reduce.reduction is Reduction.SUM
        if exponent is None or not sums or not variables(exponent) <= own:
            raise self.refusal(producer.name)
        indices = zip(producer.axes, load.indices, strict=True)
        return substitute(exponent, {axis.name: index for axis, index in indices})

    def _inside(self, tensor: Tensor) -> Stage | None:
        """Return the stage of `tensor` if each iteration of the loop computes it anew."""
        found = next((one for one in self.state if one.name == tensor.name), None)
        stage = found
        while stage is not None and stage.attachment is not None:
            if stage.attachment.consumer == self.primitive.consumer:
                return None if stage is found and stage.is_rolled else found
            stage = self.state.stage(stage.attachment.consumer)
        return None

    def _depends(self, expr: Expr) -> bool:
        if isinstance(expr, Load):
            if expr.tensor.name == self.primitive.stage:
                return True
            producer = self._inside(expr.tensor)
            if producer is not None and self._depends(producer.element):
                return True
        return any(self._depends(operand) for operand in children(expr))

    def _reads_only_the_stage(self, expr: Expr) -> bool:
        return all(load.tensor.name == self.primitive.stage for load in loads(expr))
