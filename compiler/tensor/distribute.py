"""Loops moved inwards to the statements they repeat: how virtual threads interleave.

A loop whose iterations are independent may be carried out statement by statement: first the first
statement of every iteration, then the second one of every iteration. What an iteration has
allocated then exists once for each iteration, along a new leading axis, unless every iteration
fills it alike. For virtual threads this is the order of the program: the loads of all threads come
before the matrix work of the first, so they can run ahead. For the threads of a GPU's block it is
what barriers enforce.
"""

from collections.abc import Callable
from dataclasses import replace

from typing_extensions import assert_never

from tilewright.compiler.tensor.dependence import depends_on, varying_tensors
from tilewright.compiler.tensor.expressions import Expr
from tilewright.compiler.tensor.realisation import RUN_SCOPE, SHARED_SCOPE
from tilewright.compiler.tensor.rewriting import Rewriting
from tilewright.compiler.tensor.statements import (
    Allocate,
    For,
    If,
    IntrinsicCall,
    LoopKind,
    LoopNest,
    Seq,
    Statement,
    Store,
    sequence,
)
from tilewright.compiler.tensor.traversal import variables


def interleave_virtual_threads(nest: LoopNest) -> LoopNest:
    """Return the nest with the loops of virtual threads moved inwards."""
    return _distributed(nest, lambda kind: kind is LoopKind.VIRTUAL_THREAD)


def synchronise_threads(nest: LoopNest) -> LoopNest:
    """Return the nest with the loops over a block's threads moved inwards, between barriers."""
    return _distributed(nest, lambda kind: kind.is_thread)


def _distributed(nest: LoopNest, moves: Callable[[LoopKind], bool]) -> LoopNest:
    return replace(nest, body=_walk(nest.body, moves))


def _walk(statement: Statement, moves: Callable[[LoopKind], bool]) -> Statement:
    match statement:
        case For():
            body = _walk(statement.body, moves)
            if moves(statement.kind):
                return _push(statement, body, varying_tensors(body, statement.var.name))
            return replace(statement, body=body)
        case If() | Allocate():
            return replace(statement, body=_walk(statement.body, moves))
        case Seq():
            return sequence(*(_walk(part, moves) for part in statement.statements))
        case Store() | IntrinsicCall():
            return statement
        case _:
            assert_never(statement)


def _push(loop: For, body: Statement, varying: frozenset[str]) -> Statement:
    """Return `body` for every iteration of `loop`, the loop being as far inside as it can be.

    `varying` names the tensors whose content differs between iterations. What does not depend on
    the iteration is done once.
    """
    if not depends_on(body, loop.var.name, varying):
        return body
    if not _has_parts(body):
        return replace(loop, body=body)
    match body:
        case For():
            return replace(body, body=_push(loop, body.body, varying))
        case Seq():
            return sequence(*(_push(loop, part, varying) for part in body.statements))
        case If():
            if loop.var.name in variables(body.condition):
                return _push(loop, _sink(body.condition, body.body), varying)
            return replace(body, body=_push(loop, body.body, varying))
        case Allocate():
            shared = body.tensor.scope == SHARED_SCOPE and loop.kind.is_thread
            if shared or body.tensor.name not in varying:
                return replace(body, body=_push(loop, body.body, varying))
            wide = replace(body.tensor, shape=(loop.extent, *body.tensor.shape))
            inside = Rewriting(tensors={body.tensor: (wide, loop.var)}).statement(body.body)
            return replace(body, tensor=wide, body=_push(loop, inside, varying))
        case Store() | IntrinsicCall():
            raise AssertionError("a store or a call has no parts")
        case _:
            assert_never(body)


def _has_parts(statement: Statement) -> bool:
    match statement:
        case For() | If():
            return _has_parts(statement.body)
        case Allocate(tensor=tensor):
            return tensor.scope != RUN_SCOPE
        case Seq():
            return True
        case Store() | IntrinsicCall():
            return False
        case _:
            assert_never(statement)


def _sink(condition: Expr, body: Statement) -> Statement:
    """Return ``if condition: body`` with the guard around each part; no part can change it."""
    match body:
        case For() | Allocate() | If():
            return replace(body, body=_sink(condition, body.body))
        case Seq():
            return Seq(statements=tuple(_sink(condition, part) for part in body.statements))
        case Store() | IntrinsicCall():
            return If(condition=condition, body=body)
        case _:
            assert_never(body)
