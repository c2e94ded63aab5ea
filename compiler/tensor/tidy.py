"""The last pass of lowering: loops of one iteration go, guards go or move out, indices simplify."""

from collections.abc import Mapping
from dataclasses import replace

from typing_extensions import assert_never

from tilewright.compiler.tensor.build import all_of
from tilewright.compiler.tensor.expressions import Binary, Const, Expr
from tilewright.compiler.tensor.intervals import Interval, Ranges
from tilewright.compiler.tensor.operations import Operator
from tilewright.compiler.tensor.simplify import simplify
from tilewright.compiler.tensor.statements import (
    Allocate,
    For,
    If,
    IntrinsicCall,
    LoopNest,
    Region,
    Seq,
    Statement,
    Store,
    sequence,
)
from tilewright.compiler.tensor.traversal import variables

NOTHING = Seq(statements=())


def tidy(nest: LoopNest) -> LoopNest:
    """Return an equivalent loop nest without what can be proved superfluous."""
    return replace(nest, body=_tidy(nest.body, {}))


def _tidy(statement: Statement, ranges: Ranges) -> Statement:
    match statement:
        case For():
            return _tidy_loop(statement, ranges)
        case If():
            return _guard(simplify(statement.condition, ranges), _tidy(statement.body, ranges))
        case Store():
            return Store(
                tensor=statement.tensor,
                indices=_simplified(statement.indices, ranges),
                value=simplify(statement.value, ranges),
            )
        case Allocate():
            return _tidy_allocation(statement, _tidy(statement.body, ranges))
        case Seq():
            return _joined([_tidy(part, ranges) for part in statement.statements])
        case IntrinsicCall():
            return _tidy_call(statement, ranges)
        case _:
            assert_never(statement)


def _tidy_loop(loop: For, ranges: Ranges) -> Statement:
    body = _tidy(loop.body, {**ranges, loop.var.name: Interval(0, loop.extent - 1)})
    if body == NOTHING:
        return NOTHING
    if loop.extent == 1 and not (loop.kind.is_block or loop.kind.is_thread):
        return body
    if isinstance(body, If) and not loop.kind.is_thread:
        own, outer = _split_guard(body.condition, loop.var.name)
        if outer:
            inside = _guard(all_of(*own), body.body) if own else body.body
            moved = For(var=loop.var, extent=loop.extent, kind=loop.kind, body=inside)
            return _guard(all_of(*outer), moved)
    return For(var=loop.var, extent=loop.extent, kind=loop.kind, body=body)


def _tidy_allocation(allocation: Allocate, body: Statement) -> Statement:
    if isinstance(body, If):
        return _guard(body.condition, _tidy_allocation(allocation, body.body))
    return NOTHING if body == NOTHING else replace(allocation, body=body)


def _joined(parts: list[Statement]) -> Statement:
    """Return a sequence in which neighbours under one guard share it; no statement changes it."""
    kept: list[Statement] = []
    for part in parts:
        last = kept[-1] if kept else None
        if isinstance(part, If) and isinstance(last, If) and part.condition == last.condition:
            kept[-1] = If(condition=part.condition, body=sequence(last.body, part.body))
        else:
            kept.append(part)
    return sequence(*kept)


def _split_guard(condition: Expr, var: str) -> tuple[list[Expr], list[Expr]]:
    """Return the parts of a conjunction that use `var`, and those that do not."""
    own: list[Expr] = []
    outer: list[Expr] = []
    for part in conjuncts(condition):
        (own if var in variables(part) else outer).append(part)
    return own, outer


def conjuncts(condition: Expr) -> tuple[Expr, ...]:
    """Return the parts of a conjunction."""
    match condition:
        case Binary(Operator.AND, left, right):
            return (*conjuncts(left), *conjuncts(right))
        case _:
            return (condition,)


def _guard(condition: Expr, body: Statement) -> Statement:
    if isinstance(condition, Const):
        return body if condition.value else NOTHING
    if isinstance(body, If):
        parts = dict.fromkeys((*conjuncts(condition), *conjuncts(body.condition)))
        return If(condition=all_of(*parts), body=body.body)
    return NOTHING if body == NOTHING else If(condition=condition, body=body)


def _simplified(exprs: tuple[Expr, ...], ranges: Ranges) -> tuple[Expr, ...]:
    return tuple(simplify(expr, ranges) for expr in exprs)


def _tidy_call(call: IntrinsicCall, ranges: Mapping[str, Interval]) -> IntrinsicCall:
    def region(operand: Region) -> Region:
        offsets = _simplified(operand.offsets, ranges)
        return Region(tensor=operand.tensor, offsets=offsets, axes=operand.axes)

    return IntrinsicCall(
        intrinsic=call.intrinsic,
        extents=_simplified(call.extents, ranges),
        output=region(call.output),
        inputs=tuple(region(operand) for operand in call.inputs),
        parameters=_simplified(call.parameters, ranges),
        first=None if call.first is None else simplify(call.first, ranges),
    )
