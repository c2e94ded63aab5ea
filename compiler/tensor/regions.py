"""Bounds inference: which part of a tensor a loop's iteration reads, as base and extent."""

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.compiler.tensor.build import maximum
from tilewright.compiler.tensor.expressions import Binary, Const, Expr, Load, Select
from tilewright.compiler.tensor.intervals import Interval, Ranges, bounds
from tilewright.compiler.tensor.linear import to_linear
from tilewright.compiler.tensor.operations import Operator
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.simplify import prove, simplify
from tilewright.compiler.tensor.traversal import nodes, variables


@dataclass(frozen=True, slots=True)
class Span:
    """The indices from `base` to ``base + extent - 1``; `base` uses outer variables only."""

    base: Expr
    extent: int


def constant_span(interval: Interval) -> Span:
    """Return a span that no variable moves."""
    base = Const(interval.low, ScalarType.INDEX)
    return Span(base, interval.high - interval.low + 1)


def span_of(index: Expr, inner: frozenset[str], ranges: Ranges) -> Span:
    """Return the values that `index` takes while the variables `inner` run and others stand.

    Exact where `index` is a sum of multiples of distinct variables; never too small.
    """
    linear = to_linear(simplify(index, ranges))
    total = Span(Const(linear.constant, ScalarType.INDEX), 1)
    for atom, coefficient in linear.terms:
        total = _add(total, _scale(_atom_span(atom, inner, ranges), coefficient))
    return Span(simplify(total.base, ranges), total.extent)


def _add(left: Span, right: Span) -> Span:
    return Span(left.base + right.base, left.extent + right.extent - 1)


def _scale(span: Span, factor: int) -> Span:
    extent = (span.extent - 1) * abs(factor) + 1
    first = span.base if factor > 0 else span.base + (span.extent - 1)
    return Span(first * factor, extent)


def _atom_span(atom: Expr, inner: frozenset[str], ranges: Ranges) -> Span:
    uses_data = any(isinstance(node, Load) for node in nodes(atom))
    if not uses_data and not variables(atom) & inner:
        return Span(atom, 1)
    match atom:
        case Binary(Operator.FLOOR_DIVIDE, value, Const(int(divisor))) if divisor > 0:
            return _divided(span_of(value, inner, ranges), divisor, ranges)
        case Binary(Operator.MODULO, value, Const(int(divisor))) if divisor > 0:
            span = span_of(value, inner, ranges)
            start = simplify(span.base % divisor, ranges)
            if prove(start + (span.extent - 1) < divisor, ranges):
                return Span(start, span.extent)
        case Binary(Operator.MINIMUM | Operator.MAXIMUM as operator, value, Const() as limit):
            span = span_of(value, inner, ranges)
            return Span(Binary(operator, span.base, limit), span.extent)
        case Select(_, then, otherwise):
            spans = (span_of(then, inner, ranges), span_of(otherwise, inner, ranges))
            joined = union(spans, ranges)
            if joined is not None:
                return joined
    return constant_span(bounds(atom, ranges))


def _divided(span: Span, divisor: int, ranges: Ranges) -> Span:
    aligned = prove(_equal_zero(span.base % divisor), ranges)
    reach = span.extent - 1 + (0 if aligned else divisor - 1)
    return Span(simplify(span.base // divisor, ranges), reach // divisor + 1)


def _equal_zero(index: Expr) -> Expr:
    return Binary(Operator.EQUAL, index, Const(0, ScalarType.INDEX))


def union(spans: Iterable[Span], ranges: Ranges) -> Span | None:
    """Return the smallest span that holds all, or None where their distance is not constant."""
    first, *others = spans
    start, low, high = first.base, 0, first.extent
    for span in others:
        distance = simplify(span.base - start, ranges)
        if not isinstance(distance, Const):
            return None
        low = min(low, int(distance.value))
        high = max(high, int(distance.value) + span.extent)
    return Span(simplify(start + low, ranges), high - low)


def clamp(span: Span | None, extent: int, ranges: Ranges) -> Span:
    """Return the part of `span` inside ``0 .. extent - 1``; of None, all of that.

    The part may still reach beyond the end, by a whole number of elements that a guard leaves out.
    """
    if span is None or span.extent >= extent:
        return Span(Const(0, ScalarType.INDEX), extent)
    limits = bounds(span.base, ranges)
    base = maximum(span.base, 0) if limits.low < 0 else span.base
    return Span(simplify(base, ranges), span.extent)
