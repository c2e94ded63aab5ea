"""Walks over expressions: children, rebuilding, substitution, free variables, loads."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from typing_extensions import assert_never

from tilewright.compiler.tensor.expressions import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Var,
)


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the operands of `expr` in the order in which they are written."""
    match expr:
        case Const() | Var():
            return ()
        case Binary():
            return (expr.left, expr.right)
        case Select():
            return (expr.condition, expr.then, expr.otherwise)
        case Cast():
            return (expr.operand,)
        case Call():
            return expr.arguments
        case Load():
            return expr.indices
        case Reduce():
            return (expr.body,)
        case _:
            assert_never(expr)


def rebuild(expr: Expr, operands: tuple[Expr, ...]) -> Expr:
    """Return `expr` with other operands, in the order of `children`."""
    match expr:
        case Const() | Var():
            return expr
        case Binary():
            return Binary(expr.operator, *operands)
        case Select():
            return Select(*operands)
        case Cast():
            return Cast(operands[0], expr.dtype)
        case Call():
            return Call(expr.function, operands)
        case Load():
            return Load(expr.tensor, operands)
        case Reduce():
            return replace(expr, body=operands[0])
        case _:
            assert_never(expr)


def transform(expr: Expr, step: Callable[[Expr], Expr]) -> Expr:
    """Rebuild `expr` from the leaves up, `step` replacing each node once its operands are done."""
    operands = children(expr)
    if not operands:
        return step(expr)
    return step(rebuild(expr, tuple(transform(operand, step) for operand in operands)))


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Replace variables by name, all at once."""

    def step(node: Expr) -> Expr:
        return values.get(node.name, node) if isinstance(node, Var) else node

    return transform(expr, step)


def nodes(expr: Expr) -> Iterator[Expr]:
    """Iterate over `expr` and everything in it, outermost first."""
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(children(node))


def variables(expr: Expr) -> frozenset[str]:
    """Return the names of all variables in `expr`."""
    return frozenset(node.name for node in nodes(expr) if isinstance(node, Var))


def loads(expr: Expr) -> tuple[Load, ...]:
    """Return every load in `expr`, outermost first, without repetition."""
    return tuple(dict.fromkeys(node for node in nodes(expr) if isinstance(node, Load)))
