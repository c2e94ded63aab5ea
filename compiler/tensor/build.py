"""Functions that build expressions: what Python has no operator for."""

from tilewright.compiler.tensor.expressions import (
    Axis,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    ExpressionError,
    Operand,
    Reduce,
    Select,
    Var,
    literal,
)
from tilewright.compiler.tensor.operations import Function, Number, Operator, Reduction
from tilewright.compiler.tensor.scalar_types import ScalarType


def constant(value: Number, dtype: ScalarType) -> Const:
    """Return a number of a type."""
    return Const(float(value) if dtype.is_float else value, dtype)


def parameter(name: str, dtype: ScalarType) -> Var:
    """Return a scalar that the pattern of an intrinsic leaves open."""
    return Var(name, dtype)


def cast(operand: Expr, dtype: ScalarType) -> Expr:
    """Convert to `dtype`; nothing happens if the operand has it already."""
    return operand if operand.dtype is dtype else Cast(operand, dtype)


def _pair(operator: Operator, left: Operand, right: Operand) -> Expr:
    if isinstance(left, int | float):
        if isinstance(right, int | float):
            raise ExpressionError(f"{operator.value} needs an expression beside a number")
        return Binary(operator, literal(left, right.dtype), right)
    return Binary(operator, left, literal(right, left.dtype))


def minimum(left: Operand, right: Operand) -> Expr:
    """Return the smaller of two values."""
    return _pair(Operator.MINIMUM, left, right)


def maximum(left: Operand, right: Operand) -> Expr:
    """Return the larger of two values."""
    return _pair(Operator.MAXIMUM, left, right)


def clip(value: Expr, low: Operand, high: Operand) -> Expr:
    """Return the value nearest to `value` between `low` and `high`."""
    return minimum(maximum(value, low), high)


def equal(left: Operand, right: Operand) -> Expr:
    """Return whether two values are equal."""
    return _pair(Operator.EQUAL, left, right)


def not_equal(left: Operand, right: Operand) -> Expr:
    """Return whether two values differ."""
    return _pair(Operator.NOT_EQUAL, left, right)


def select(condition: Expr, then: Operand, otherwise: Operand) -> Expr:
    """Return `then` where `condition` holds, otherwise the other value, which is not evaluated."""
    if isinstance(then, int | float):
        if isinstance(otherwise, int | float):
            raise ExpressionError("select needs an expression beside a number")
        return Select(condition, literal(then, otherwise.dtype), otherwise)
    return Select(condition, then, literal(otherwise, then.dtype))


def all_of(*conditions: Expr) -> Expr:
    """Return whether all conditions hold; of none, true."""
    total: Expr = Const(True, ScalarType.BOOL)
    for number, condition in enumerate(conditions):
        total = condition if number == 0 else total & condition
    return total


def call(function: Function, *arguments: Expr) -> Expr:
    """Apply a function of the closed set."""
    return Call(function, arguments)


def round_shift(value: Expr, shift: Operand) -> Expr:
    """Divide an integer by ``2**shift``, rounding half to even."""
    return Call(Function.ROUND_SHIFT, (value, literal(shift, value.dtype)))


def reduce_sum(body: Expr, *axes: Axis) -> Expr:
    """Return the sum of `body` over `axes`."""
    return Reduce(Reduction.SUM, body, axes)


def reduce_max(body: Expr, *axes: Axis) -> Expr:
    """Return the largest value of `body` over `axes`."""
    return Reduce(Reduction.MAX, body, axes)


def reduce_min(body: Expr, *axes: Axis) -> Expr:
    """Return the smallest value of `body` over `axes`."""
    return Reduce(Reduction.MIN, body, axes)


def reduce_product(body: Expr, *axes: Axis) -> Expr:
    """Return the product of `body` over `axes`."""
    return Reduce(Reduction.PRODUCT, body, axes)
