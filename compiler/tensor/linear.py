"""Index arithmetic as linear combinations: the normal form of sums and differences."""

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.compiler.tensor.expressions import Binary, Const, Expr
from tilewright.compiler.tensor.operations import Operator
from tilewright.compiler.tensor.scalar_types import ScalarType


@dataclass(frozen=True, slots=True)
class Linear:
    """``sum(coefficient * atom) + constant``; atoms are index expressions that are no sums.

    Every atom occurs once and no coefficient is zero. Terms stand in falling order of their
    coefficients' magnitude, as one writes a position in a row-major array.
    """

    terms: tuple[tuple[Expr, int], ...]
    constant: int

    def __add__(self, other: "Linear") -> "Linear":
        return combine((*self.terms, *other.terms), self.constant + other.constant)

    def scaled(self, factor: int) -> "Linear":
        """Return `factor` times this."""
        scaled = ((atom, coefficient * factor) for atom, coefficient in self.terms)
        return combine(scaled, self.constant * factor)

    def split(self, divisor: int) -> tuple["Linear", "Linear"]:
        """Return ``(q, r)`` with ``self == divisor * q + r`` and ``r`` free of multiples of it."""
        multiples, rest = [], []
        for atom, coefficient in self.terms:
            if coefficient % divisor == 0:
                multiples.append((atom, coefficient // divisor))
            else:
                rest.append((atom, coefficient))
        quotient, remainder = divmod(self.constant, divisor)
        return Linear(tuple(multiples), quotient), Linear(tuple(rest), remainder)


def combine(terms: Iterable[tuple[Expr, int]], constant: int) -> Linear:
    """Return the linear combination of `terms`, equal atoms collected."""
    sums: dict[Expr, int] = {}
    for atom, coefficient in terms:
        sums[atom] = sums.get(atom, 0) + coefficient
    kept = [(atom, coefficient) for atom, coefficient in sums.items() if coefficient]
    if len(kept) > 1:
        kept.sort(key=lambda term: (-abs(term[1]), repr(term[0])))
    return Linear(tuple(kept), constant)


def to_linear(expr: Expr) -> Linear:
    """Return an index expression as a linear combination."""
    assert expr.dtype is ScalarType.INDEX, "only index arithmetic is free of wrap-around"
    match expr:
        case Const():
            return Linear((), int(expr.value))
        case Binary(Operator.ADD, left, right):
            return to_linear(left) + to_linear(right)
        case Binary(Operator.SUBTRACT, left, right):
            return to_linear(left) + to_linear(right).scaled(-1)
        case Binary(Operator.MULTIPLY, left, right):
            first, second = to_linear(left), to_linear(right)
            if not second.terms:
                return first.scaled(second.constant)
            if not first.terms:
                return second.scaled(first.constant)
    return Linear(((expr, 1),), 0)


def from_linear(linear: Linear) -> Expr:
    """Return a linear combination as an expression, what is positive first."""
    added = [(atom, factor) for atom, factor in linear.terms if factor > 0]
    taken = [(atom, -factor) for atom, factor in linear.terms if factor < 0]
    total: Expr = Const(linear.constant, ScalarType.INDEX)
    for position, (atom, factor) in enumerate(added):
        total = total + _term(atom, factor) if position else _term(atom, factor)
    for atom, factor in taken:
        total = total - _term(atom, factor)
    if not added or not linear.constant:
        return total
    return total + linear.constant if linear.constant > 0 else total - -linear.constant


def _term(atom: Expr, factor: int) -> Expr:
    return atom if factor == 1 else atom * factor


def difference(left: Expr, right: Expr) -> Linear:
    """Return ``left - right`` as a linear combination."""
    return to_linear(left) + to_linear(right).scaled(-1)
