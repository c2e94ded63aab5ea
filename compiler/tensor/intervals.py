"""Interval analysis: the range of values that an expression can take."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

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
from tilewright.compiler.tensor.linear import Linear, difference, to_linear
from tilewright.compiler.tensor.operations import Operator
from tilewright.compiler.tensor.scalar_types import ScalarType


@dataclass(frozen=True, slots=True)
class Interval:
    """The whole numbers from `low` to `high`, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        assert self.low <= self.high, f"empty interval {self.low}..{self.high}"

    def __add__(self, other: "Interval") -> "Interval":
        return Interval(self.low + other.low, self.high + other.high)

    def scaled(self, factor: int) -> "Interval":
        """Return the range of `factor` times a member."""
        ends = (self.low * factor, self.high * factor)
        return Interval(min(ends), max(ends))

    def hull(self, other: "Interval") -> "Interval":
        """Return the smallest interval that holds both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))

    def within(self, other: "Interval") -> bool:
        """Whether every member is one of `other`."""
        return other.low <= self.low and self.high <= other.high


#: Ranges of variables by name.
Ranges: TypeAlias = Mapping[str, Interval]
#: What an index without a known range is taken for; no tensor is that large.
ANY_INDEX = Interval(-(2**62), 2**62)
_TRUTH = Interval(0, 1)


def bounds(expr: Expr, ranges: Ranges) -> Interval:
    """Return an interval that holds every value of a whole-numbered or boolean expression.

    It is the smallest one for sums of multiples of distinct variables.
    """
    if expr.dtype is ScalarType.INDEX:
        return _linear_bounds(to_linear(expr), ranges)
    if expr.dtype is ScalarType.BOOL:
        return _truth_bounds(expr, ranges)
    widest = Interval(*expr.dtype.limits)
    found = _atom_bounds(expr, ranges)
    return found if found is not None and found.within(widest) else widest


def decide(condition: Expr, ranges: Ranges) -> bool | None:
    """Return the value of a condition where it is always the same, otherwise None."""
    truth = _truth_bounds(condition, ranges)
    return bool(truth.low) if truth.low == truth.high else None


def _linear_bounds(linear: Linear, ranges: Ranges) -> Interval:
    total = Interval(linear.constant, linear.constant)
    for atom, coefficient in linear.terms:
        total = total + (_atom_bounds(atom, ranges) or ANY_INDEX).scaled(coefficient)
    return total


def _atom_bounds(expr: Expr, ranges: Ranges) -> Interval | None:
    match expr:
        case Const():
            return Interval(int(expr.value), int(expr.value))
        case Var():
            return ranges.get(expr.name)
        case Binary():
            return _binary_bounds(
                expr.operator, bounds(expr.left, ranges), bounds(expr.right, ranges)
            )
        case Select():
            known = decide(expr.condition, ranges)
            if known is not None:
                return bounds(expr.then if known else expr.otherwise, ranges)
            return bounds(expr.then, ranges).hull(bounds(expr.otherwise, ranges))
        case Cast():
            return None if expr.operand.dtype.is_float else bounds(expr.operand, ranges)
        case Call() | Load() | Reduce():
            return None
        case _:
            assert_never(expr)


def _binary_bounds(operator: Operator, left: Interval, right: Interval) -> Interval | None:
    match operator:
        case Operator.ADD:
            return left + right
        case Operator.SUBTRACT:
            return left + right.scaled(-1)
        case Operator.MULTIPLY:
            return left.scaled(right.low).hull(left.scaled(right.high))
        case Operator.MINIMUM:
            return Interval(min(left.low, right.low), min(left.high, right.high))
        case Operator.MAXIMUM:
            return Interval(max(left.low, right.low), max(left.high, right.high))
        case Operator.FLOOR_DIVIDE if right.low > 0:
            quotients = [
                end // by for end in (left.low, left.high) for by in (right.low, right.high)
            ]
            return Interval(min(quotients), max(quotients))
        case Operator.MODULO if right.low > 0:
            return left if 0 <= left.low and left.high < right.low else Interval(0, right.high - 1)
        case Operator.SHIFT_RIGHT if right.low == right.high >= 0:
            return Interval(left.low >> right.low, left.high >> right.low)
        case _:
            return None


def _truth_bounds(expr: Expr, ranges: Ranges) -> Interval:
    match expr:
        case Const():
            return Interval(int(expr.value), int(expr.value))
        case Binary(Operator.AND, left, right):
            first, second = _truth_bounds(left, ranges), _truth_bounds(right, ranges)
            return Interval(first.low & second.low, first.high & second.high)
        case Binary(Operator.OR, left, right):
            first, second = _truth_bounds(left, ranges), _truth_bounds(right, ranges)
            return Interval(first.low | second.low, first.high | second.high)
        case Binary() if not expr.left.dtype.is_float and expr.left.dtype is not ScalarType.BOOL:
            return _comparison_bounds(expr.operator, _gap(expr.left, expr.right, ranges))
        case _:
            return _TRUTH


def _gap(left: Expr, right: Expr, ranges: Ranges) -> Interval:
    if left.dtype is ScalarType.INDEX:
        return _linear_bounds(difference(right, left), ranges)
    return bounds(right, ranges) + bounds(left, ranges).scaled(-1)


def _comparison_bounds(operator: Operator, gap: Interval) -> Interval:
    """Return the truth of a comparison from the range of its right side less its left side."""
    match operator:
        case Operator.LESS:
            return Interval(int(gap.low > 0), int(gap.high > 0))
        case Operator.LESS_EQUAL:
            return Interval(int(gap.low >= 0), int(gap.high >= 0))
        case Operator.EQUAL:
            return Interval(int(gap.low == gap.high == 0), int(gap.low <= 0 <= gap.high))
        case Operator.NOT_EQUAL:
            return Interval(int(not gap.low <= 0 <= gap.high), int(not gap.low == gap.high == 0))
        case _:
            return _TRUTH
