"""Simplification of expressions by a table of rewrites, each line with its algebra.

A rule holds for all whole numbers; sums have been brought into the normal form of
`tilewright.compiler.tensor.linear` first. In a rule ``x y`` stand for any index, ``p`` for any
condition, ``c d`` for constants; `when` must be proved by interval analysis.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.compiler.tensor.build import equal, maximum, minimum
from tilewright.compiler.tensor.expressions import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Select,
    Var,
)
from tilewright.compiler.tensor.intervals import Ranges, decide
from tilewright.compiler.tensor.linear import Linear, combine, from_linear, to_linear
from tilewright.compiler.tensor.operations import COMPARISONS, Operator
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.semantics import call, converter, operation
from tilewright.compiler.tensor.traversal import children, rebuild, substitute

TRUE, FALSE = Const(True, ScalarType.BOOL), Const(False, ScalarType.BOOL)
ZERO = Const(0, ScalarType.INDEX)


@dataclass(frozen=True, slots=True)
class Rule:
    """``before -> after`` wherever `when` can be proved."""

    before: Expr
    after: Expr
    when: Expr = TRUE


def _within(low: Expr, value: Expr, high: Expr) -> Expr:
    return (low <= value) & (value < high)


_x, _y, _c, _d = (Var(name) for name in "xycd")
_p = Var("p", ScalarType.BOOL)
_CONSTANTS = frozenset("cd")

#: Tried in order, the first that applies is taken.
RULES = (
    Rule(_x // 1, _x),
    Rule(_x % 1, ZERO),
    Rule(_x // _c, ZERO, _within(ZERO, _x, _c)),
    Rule(_x % _c, _x, _within(ZERO, _x, _c)),
    Rule((_x * _c + _y) // _c, _x + _y // _c, 0 < _c),
    Rule((_x * _c + _y) % _c, _y % _c, 0 < _c),
    Rule((_x * _c) // _c, _x, 0 < _c),
    Rule((_x * _c) % _c, ZERO, 0 < _c),
    Rule(
        (_x * _c + _y) // _d, _x // (_d // _c), equal(_d % _c, 0) & (0 < _d) & _within(ZERO, _y, _c)
    ),
    Rule((_x * _c) // _d, _x // (_d // _c), equal(_d % _c, 0) & (0 < _d) & (0 < _c)),
    Rule(
        (_x * _c + _y) % _d,
        _x % (_d // _c) * _c + _y,
        equal(_d % _c, 0) & (0 < _d) & (1 < _c) & _within(ZERO, _y, _c),
    ),
    Rule((_x * _c) % _d, _x % (_d // _c) * _c, equal(_d % _c, 0) & (0 < _d) & (1 < _c)),
    Rule(_x // _c // _d, _x // (_c * _d), (0 < _c) & (0 < _d)),
    Rule(_x % _c % _d, _x % _d, (0 < _d) & equal(_c % _d, 0)),
    Rule(_x % _c // _d, _x // _d % (_c // _d), (0 < _d) & equal(_c % _d, 0) & (_d < _c)),
    Rule(minimum(_x, _y), _x, _x <= _y),
    Rule(minimum(_x, _y), _y, _y <= _x),
    Rule(maximum(_x, _y), _x, _y <= _x),
    Rule(maximum(_x, _y), _y, _x <= _y),
    Rule(_x * _c < _d, _x < -(-_d // _c), 1 < _c),
    Rule(_x * _c + _y < _d, _x < _d // _c, equal(_d % _c, 0) & (1 < _c) & _within(ZERO, _y, _c)),
    Rule(_p & TRUE, _p),
    Rule(TRUE & _p, _p),
    Rule(_p & FALSE, FALSE),
    Rule(FALSE & _p, FALSE),
    Rule(_p | TRUE, TRUE),
    Rule(TRUE | _p, TRUE),
    Rule(_p | FALSE, _p),
    Rule(FALSE | _p, _p),
    Rule(_p & _p, _p),
    Rule(_p | _p, _p),
)

_RULES_BY_OPERATOR = {
    operator: tuple(
        rule
        for rule in RULES
        if isinstance(rule.before, Binary) and rule.before.operator is operator
    )
    for operator in Operator
}


def simplify(expr: Expr, ranges: Ranges) -> Expr:
    """Return an expression of the same value wherever the variables lie in `ranges`."""
    operands = children(expr)
    if operands:
        if isinstance(expr, Select):
            known = decide(simplify(expr.condition, ranges), ranges)
            if known is not None:
                return simplify(expr.then if known else expr.otherwise, ranges)
        expr = rebuild(expr, tuple(simplify(operand, ranges) for operand in operands))
    if isinstance(expr, Var) and expr.dtype is ScalarType.INDEX and expr.name in ranges:
        known_range = ranges[expr.name]
        if known_range.low == known_range.high:
            return Const(known_range.low, ScalarType.INDEX)
    folded = _fold(expr)
    return folded if isinstance(folded, Const | Var) else _rewrite(folded, ranges)


def prove(condition: Expr, ranges: Ranges) -> bool:
    """Whether `condition` holds for all values of the variables in `ranges`."""
    return decide(simplify(condition, ranges), ranges) is True


def _fold(expr: Expr) -> Expr:
    operands = children(expr)
    values = [operand.value for operand in operands if isinstance(operand, Const)]
    if len(values) == len(operands) and values:
        match expr:
            case Binary():
                if expr.operator in (Operator.FLOOR_DIVIDE, Operator.MODULO) and values[1] == 0:
                    return expr
                return Const(operation(expr.operator, expr.dtype)(values[0], values[1]), expr.dtype)
            case Call():
                return Const(call(expr.function, expr.dtype, tuple(values)), expr.dtype)
            case Cast() if not isinstance(values[0], float) or expr.dtype.is_float:
                return Const(converter(expr.dtype)(values[0]), expr.dtype)
    if isinstance(expr, Select) and expr.then == expr.otherwise:
        return expr.then
    return expr


def _rewrite(expr: Expr, ranges: Ranges) -> Expr:
    if not isinstance(expr, Binary) or expr.left.dtype not in (ScalarType.INDEX, ScalarType.BOOL):
        return expr
    if expr.operator in COMPARISONS and (known := decide(expr, ranges)) is not None:
        return TRUE if known else FALSE
    normal = from_linear(_join(to_linear(expr), ranges)) if expr.dtype is ScalarType.INDEX else expr
    if normal != expr:
        return simplify(normal, ranges)
    for form in _forms(expr):
        for rule in _RULES_BY_OPERATOR.get(form.operator, ()):
            bindings: dict[str, Expr] = {}
            if _matches(rule.before, form, bindings) and _holds(rule.when, bindings, ranges):
                return simplify(substitute(rule.after, bindings), ranges)
    return expr


def _join(linear: Linear, ranges: Ranges) -> Linear:
    """Apply ``x // c * c * n + x % c * n -> x * n`` to the terms of a sum."""
    coefficients = dict(linear.terms)
    for atom, coefficient in linear.terms:
        match atom:
            case Binary(Operator.MODULO, value, Const(int(divisor))):
                if coefficient * divisor not in coefficients.values():
                    continue
                quotient = simplify(value // divisor, ranges)
                if coefficients.get(quotient) == coefficient * divisor:
                    removed = ((atom, -coefficient), (quotient, -coefficient * divisor))
                    whole = combine((*linear.terms, *removed), linear.constant)
                    return _join(whole + to_linear(value).scaled(coefficient), ranges)
    return linear


def _forms(expr: Binary) -> Iterator[Binary]:
    """Iterate over ways to write ``a // d``, ``a % d`` and ``a < d``.

    In each, the multiples of a factor of ``d`` stand apart from the rest of ``a``.
    """
    yield expr
    if expr.operator not in (Operator.FLOOR_DIVIDE, Operator.MODULO, Operator.LESS):
        return
    if expr.left.dtype is not ScalarType.INDEX:
        return
    if not isinstance(expr.right, Const) or int(expr.right.value) <= 0:
        return
    divisor, dividend = int(expr.right.value), to_linear(expr.left)
    factors = {divisor} | {abs(coefficient) for _, coefficient in dividend.terms}
    for factor in sorted(factors, reverse=True):
        if factor == 1 or divisor % factor:
            continue
        quotient, rest = dividend.split(factor)
        if not quotient.terms and not quotient.constant:
            continue
        multiple = Binary(Operator.MULTIPLY, from_linear(quotient), _index(factor))
        if rest.terms or rest.constant:
            yield Binary(expr.operator, multiple + from_linear(rest), expr.right)
        else:
            yield Binary(expr.operator, multiple, expr.right)


def _index(value: int) -> Const:
    return Const(value, ScalarType.INDEX)


def _matches(pattern: Expr, expr: Expr, bindings: dict[str, Expr]) -> bool:
    match pattern:
        case Const():
            return pattern == expr
        case Var():
            if pattern.dtype is not expr.dtype:
                return False
            if pattern.name in _CONSTANTS and not isinstance(expr, Const):
                return False
            return bindings.setdefault(pattern.name, expr) == expr
        case Binary():
            return (
                isinstance(expr, Binary)
                and pattern.operator is expr.operator
                and _matches(pattern.left, expr.left, bindings)
                and _matches(pattern.right, expr.right, bindings)
            )
        case _:
            raise AssertionError(f"rules hold no {type(pattern).__name__}")


def _holds(condition: Expr, bindings: dict[str, Expr], ranges: Ranges) -> bool:
    match condition:
        case Const():
            return bool(condition.value)
        case Binary(Operator.AND, left, right):
            return _holds(left, bindings, ranges) and _holds(right, bindings, ranges)
        case _:
            return prove(substitute(condition, bindings), ranges)
