"""Tiles fetched ahead: while a block computes with one copy of a tile, it fills the other one.

A loop whose iterations each fill tiles kept twice and then use them becomes: fill the first tiles;
in each iteration fill the next ones, then use the present ones.
"""

from dataclasses import dataclass, replace

from typing_extensions import assert_never

from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.realisation import SHARED_SCOPE
from tilewright.compiler.tensor.rewriting import Rewriting
from tilewright.compiler.tensor.statements import (
    Allocate,
    For,
    If,
    IntrinsicCall,
    LoopKind,
    Seq,
    Statement,
    Store,
    sequence,
)
from tilewright.compiler.tensor.traversal import loads

#: Copies of a tile.
_COPIES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Iteration:
    """An iteration in parts: the tiles, what fills them, what uses them."""

    tiles: tuple[Tensor, ...]
    fills: tuple[Statement, ...]
    rest: Statement


def pipelined(statement: Statement) -> Statement:
    """Return `statement` with tiles fetched ahead, where double buffers ask for it.

    Only what is fetched ahead is a double buffer in the result, its copies along a first axis.
    """
    match statement:
        case For():
            iteration = _parts(statement.body) if _fits(statement) else None
            if iteration is None:
                return replace(statement, body=pipelined(statement.body))
            return _ahead(statement, iteration)
        case If():
            return replace(statement, body=pipelined(statement.body))
        case Allocate():
            return replace(statement, double_buffer=False, body=pipelined(statement.body))
        case Seq():
            return sequence(*map(pipelined, statement.statements))
        case Store() | IntrinsicCall():
            return statement
        case _:
            assert_never(statement)


def _fits(loop: For) -> bool:
    return loop.kind is LoopKind.SERIAL and loop.extent >= _COPIES


def _parts(body: Statement) -> _Iteration | None:
    tiles: list[Tensor] = []
    fills: list[Statement] = []
    rest = body
    while isinstance(rest, Allocate) and rest.double_buffer and rest.tensor.scope == SHARED_SCOPE:
        if not isinstance(rest.body, Seq):
            break
        fill, *others = rest.body.statements
        if accessed(fill)[0] != {rest.tensor}:
            break
        tiles.append(rest.tensor)
        fills.append(fill)
        rest = sequence(*others)
    changed = accessed(body)[0]
    if not tiles or any(changed & accessed(fill)[1] for fill in fills):
        return None
    return _Iteration(tiles=tuple(tiles), fills=tuple(fills), rest=rest)


def accessed(statement: Statement) -> tuple[frozenset[Tensor], frozenset[Tensor]]:
    """Return the tensors that a statement writes, and those that it reads."""
    match statement:
        case For() | Allocate():
            return accessed(statement.body)
        case If():
            written, read = accessed(statement.body)
            return written, read | _read(statement.condition)
        case Seq():
            parts = [accessed(part) for part in statement.statements]
            return (
                frozenset().union(*(part[0] for part in parts)),
                frozenset().union(*(part[1] for part in parts)),
            )
        case Store():
            return frozenset({statement.tensor}), _read(*statement.indices, statement.value)
        case IntrinsicCall():
            read = frozenset(part.tensor for part in statement.inputs)
            return frozenset({statement.output.tensor}), read
        case _:
            assert_never(statement)


def _read(*exprs: Expr) -> frozenset[Tensor]:
    return frozenset(load.tensor for expr in exprs for load in loads(expr))


def _ahead(loop: For, iteration: _Iteration) -> Statement:
    pairs = {tile: replace(tile, shape=(_COPIES, *tile.shape)) for tile in iteration.tiles}
    following = loop.var + 1
    present = Rewriting(tensors={tile: (two, loop.var % _COPIES) for tile, two in pairs.items()})
    advanced = Rewriting(values={loop.var.name: following})
    first = For(var=loop.var, extent=1, body=present.statement(sequence(*iteration.fills)))
    ahead = advanced.statement(present.statement(sequence(*iteration.fills)))
    inside = sequence(
        If(condition=following < loop.extent, body=ahead),
        present.statement(pipelined(iteration.rest)),
    )
    whole: Statement = sequence(first, replace(loop, body=inside))
    for two in pairs.values():
        whole = Allocate(tensor=two, double_buffer=True, body=whole)
    return whole
