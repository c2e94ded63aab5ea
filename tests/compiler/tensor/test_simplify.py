from collections.abc import Iterable, Mapping
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.tensor.build import equal, maximum, minimum, select
from tilewright.compiler.tensor.expressions import Const, Expr, Var
from tilewright.compiler.tensor.intervals import Interval, bounds, decide
from tilewright.compiler.tensor.printing import format_expression
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.simplify import RULES, Rule, prove, simplify
from tilewright.compiler.tensor.traversal import nodes, variables

RANGES = {"i": Interval(0, 3), "j": Interval(0, 5), "k": Interval(-2, 2), "u": Interval(4, 4)}
I, J, K, U = (Var(name) for name in RANGES)  # noqa: E741 - as in mathematics


def choose(condition: bool, then: int, otherwise: int) -> int:
    return then if condition else otherwise


NAMES = {"select": choose, "true": True, "false": False, "min": min, "max": max}


SPANS = [range(span.low, span.high + 1) for span in RANGES.values()]
POINTS = [dict(zip(RANGES, point, strict=True)) for point in product(*SPANS)]


def values_of(expr: Expr, points: Iterable[Mapping[str, int]] = POINTS) -> list[int]:
    """The printed form is Python, so Python says what it means."""
    code = compile(format_expression(expr), "<expression>", "eval")
    return [eval(code, {"__builtins__": {}, **NAMES}, point) for point in points]


@st.composite
def index_expressions(draw: st.DrawFn, depth: int = 3) -> Expr:
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        leaf: Expr = draw(st.sampled_from([I, J, K, U, Const(3, ScalarType.INDEX)]))
        return leaf
    left = draw(index_expressions(depth - 1))
    kind = draw(st.sampled_from(["+", "-", "*", "//", "%", "min", "max", "select"]))
    number = draw(st.integers(1, 12))
    right: Expr | int = number if draw(st.booleans()) else draw(index_expressions(depth - 1))
    match kind:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * draw(st.integers(-6, 6))
        case "//":
            return left // number
        case "%":
            return left % number
        case "min":
            return minimum(left, right)
        case "max":
            return maximum(left, right)
        case _:
            return select(left < right, left, right)


@settings(max_examples=100, deadline=None)
@given(index_expressions())
def test_simplification_keeps_every_value(expr: Expr) -> None:
    values = values_of(expr)
    assert values_of(simplify(expr, RANGES)) == values
    limits = bounds(expr, RANGES)
    assert limits.low <= min(values)
    assert max(values) <= limits.high


@settings(max_examples=100, deadline=None)
@given(index_expressions(), index_expressions(), st.integers(-10, 10))
def test_what_is_proved_holds_everywhere(left: Expr, right: Expr, shift: int) -> None:
    for condition in (left + shift < right, left <= right + shift, equal(left, right)):
        truths = set(values_of(condition))
        if prove(condition, RANGES):
            assert truths == {True}
        if decide(condition, RANGES) is False:
            assert truths == {False}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: format_expression(rule.before))
def test_each_rule_holds_for_small_numbers(rule: Rule) -> None:
    names = sorted(variables(rule.before))
    spans = {"x": range(-13, 14), "y": range(-7, 8), "p": (False, True)}
    grid = product(*(spans.get(name, range(-2, 13)) for name in names))
    points = [dict(zip(names, point, strict=True)) for point in grid]
    divisors = [name for name in ("c", "d") if name in names]
    points = [point for point in points if all(point[name] for name in divisors)]
    applies = values_of(rule.when, points)
    points = [point for point, holds in zip(points, applies, strict=True) if holds]
    assert points
    assert values_of(rule.after, points) == values_of(rule.before, points)


@pytest.mark.parametrize(
    ("expr", "simple"),
    [
        ((I * 4 + J) // 4 - I, "j // 4"),
        ((I * 6 + J) // 6, "i"),
        ((I * 6 + J) % 6, "j"),
        ((I * 6 + J) // 6 * 6 + (I * 6 + J) % 6, "i * 6 + j"),
        ((I * 12 + J * 2 + 1) // 4, "i * 3 + j // 2"),
        ((I * 4 + K % 4) // 8, "i // 2"),
        ((I * 4 + K % 4) % 8, "i % 2 * 4 + k % 4"),
        (J // 2 // 3, "0"),
        (J // 2 * 2 + J % 2, "j"),
        (K + J - K, "j"),
        (maximum(I - 1, 0) - maximum(I - 1, 0) + U, "4"),
        (minimum(J, 5), "j"),
        (select(J < 6, I, J), "i"),
        (I * 4 < 10, "i < 3"),
        ((I * 6 + J < 24) & (K < 1), "k < 1"),
    ],
)
def test_simple_forms(expr: Expr, simple: str) -> None:
    assert format_expression(simplify(expr, RANGES)) == simple


def test_wrapping_integers_are_not_reordered() -> None:
    x = Var("x", ScalarType.INT32)
    big = Const(2**31 - 1, ScalarType.INT32)
    assert format_expression(simplify((x + big) - big, {})) == "x + 2147483647 - 2147483647"
    assert simplify(big + 1, {}) == Const(-(2**31), ScalarType.INT32)
    assert decide(x + 1 <= x, {"x": Interval(0, 2**31 - 1)}) is None


def test_no_simplification_makes_an_expression_larger() -> None:
    expr = (I * 6 + J) // 6 * 6 + (I * 6 + J) % 6 + minimum(J, 3)
    assert len(list(nodes(simplify(expr, RANGES)))) < len(list(nodes(expr)))
