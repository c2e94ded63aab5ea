"""The last iteration of a loop over uneven tiles on its own: its guards then hold or do not."""

from collections.abc import Iterator
from dataclasses import replace

from typing_extensions import assert_never

from tilewright.compiler.tensor.expressions import Const, Expr
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.statements import (
    Allocate,
    For,
    If,
    IntrinsicCall,
    LoopKind,
    LoopNest,
    Region,
    Seq,
    Statement,
    Store,
    sequence,
)
from tilewright.compiler.tensor.tidy import tidy
from tilewright.compiler.tensor.traversal import substitute, variables


def peel_uneven_tiles(nest: LoopNest) -> LoopNest:
    """Return the nest with each serial loop split whose guards only its last iteration needs.

    Within unrolled loops the guards of the last iteration are decided when code is emitted, so
    that the tile stays in registers.
    """
    return tidy(replace(nest, body=_peel(nest.body)))


def _peel(statement: Statement) -> Statement:
    match statement:
        case For():
            body = _peel(statement.body)
            loop = replace(statement, body=body)
            uneven = any(statement.var.name in variables(guard) for guard in _guards(body))
            if statement.kind is not LoopKind.SERIAL or statement.extent == 1 or not uneven:
                return loop
            last = Const(statement.extent - 1, ScalarType.INDEX)
            return sequence(
                replace(loop, extent=statement.extent - 1),
                _substituted(body, {statement.var.name: last}),
            )
        case If() | Allocate():
            return replace(statement, body=_peel(statement.body))
        case Seq():
            return sequence(*map(_peel, statement.statements))
        case Store() | IntrinsicCall():
            return statement
        case _:
            assert_never(statement)


def _guards(statement: Statement) -> Iterator[Expr]:
    match statement:
        case For() | Allocate():
            yield from _guards(statement.body)
        case If():
            yield statement.condition
            yield from _guards(statement.body)
        case Seq():
            for part in statement.statements:
                yield from _guards(part)
        case Store() | IntrinsicCall():
            return
        case _:
            assert_never(statement)


def _substituted(statement: Statement, values: dict[str, Expr]) -> Statement:
    def expr(value: Expr) -> Expr:
        return substitute(value, values)

    def region(part: Region) -> Region:
        return replace(part, offsets=tuple(map(expr, part.offsets)))

    match statement:
        case For() | Allocate():
            return replace(statement, body=_substituted(statement.body, values))
        case If():
            return If(
                condition=expr(statement.condition), body=_substituted(statement.body, values)
            )
        case Seq():
            return Seq(
                statements=tuple(_substituted(part, values) for part in statement.statements)
            )
        case Store():
            return Store(
                tensor=statement.tensor,
                indices=tuple(map(expr, statement.indices)),
                value=expr(statement.value),
            )
        case IntrinsicCall():
            return replace(
                statement,
                extents=tuple(map(expr, statement.extents)),
                output=region(statement.output),
                inputs=tuple(map(region, statement.inputs)),
                parameters=tuple(map(expr, statement.parameters)),
                first=None if statement.first is None else expr(statement.first),
            )
        case _:
            assert_never(statement)
