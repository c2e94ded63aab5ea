"""Operators of several tensors whose shapes broadcast as in numpy."""

from collections.abc import Callable

from typing_extensions import assert_never

from tilewright.compiler.operators import (
    Add,
    BinaryFunction,
    Compare,
    Connective,
    FloatBinary,
    Logical,
    Mul,
    Relation,
)
from tilewright.compiler.tensor import operations
from tilewright.compiler.tensor.build import (
    call,
    cast,
    equal,
    maximum,
    minimum,
    not_equal,
    select,
)
from tilewright.compiler.tensor.declare import compute
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.operators.elementwise import INT32, INT64, requantized, scaled

Indices = tuple[Expr, ...]


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the common shape of shapes that broadcast."""
    rank = max(map(len, shapes))
    aligned = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(max(extents) for extents in zip(*aligned, strict=True))


def broadcast_element(operand: Tensor, at: Indices) -> Expr:
    """Return the element of `operand` that belongs to the index `at` of the common shape."""
    own = at[len(at) - len(operand.shape) :]
    pairs = zip(own, operand.shape, strict=True)
    return operand.at(*(0 if extent == 1 else index for index, extent in pairs))


def broadcast(name: str, function: Callable[..., Expr], *operands: Tensor) -> Tensor:
    """Declare ``function`` of the elements that belong together."""
    return compute(
        broadcast_shape(*(operand.shape for operand in operands)),
        lambda *at: function(*(broadcast_element(operand, at) for operand in operands)),
        name,
    )


def add(op: Add, a: Tensor, b: Tensor, name: str) -> Tensor:
    """Declare the sum of two quantised tensors."""

    def total(x: Expr, y: Expr) -> Expr:
        accumulator = cast(x, INT32) * op.a_coefficient + cast(y, INT32) * op.b_coefficient
        return scaled(op, accumulator)

    return broadcast(name, total, a, b)


def multiply(op: Mul, a: Tensor, b: Tensor, name: str) -> Tensor:
    """Declare the product of two quantised tensors, element by element."""

    def product(x: Expr, y: Expr) -> Expr:
        left, right = cast(x, INT64) - op.a_zero_point, cast(y, INT64) - op.b_zero_point
        return requantized(
            left * right,
            0,
            op.multiplier,
            op.shift,
            zero_point=op.zero_point,
            low=op.low,
            high=op.high,
        )

    return broadcast(name, product, a, b)


def float_binary(op: FloatBinary, a: Tensor, b: Tensor, name: str) -> Tensor:
    """Declare a function of two real numbers."""
    return broadcast(name, lambda x, y: _function(op.function, x, y), a, b)


def _function(function: BinaryFunction, a: Expr, b: Expr) -> Expr:
    match function:
        case BinaryFunction.ADD:
            return a + b
        case BinaryFunction.SUBTRACT:
            return a - b
        case BinaryFunction.MULTIPLY:
            return a * b
        case BinaryFunction.DIVIDE:
            return a / b
        case BinaryFunction.POWER:
            return call(operations.Function.POWER, a, b)
        case BinaryFunction.MINIMUM:
            return minimum(a, b)
        case BinaryFunction.MAXIMUM:
            return maximum(a, b)
        case BinaryFunction.PRELU:
            return select(a < 0, a * b, a)
        case _:
            assert_never(function)


def compare(op: Compare, a: Tensor, b: Tensor, name: str) -> Tensor:
    """Declare a relation of two numbers."""
    return broadcast(name, lambda x, y: _relation(op.relation, x, y), a, b)


def _relation(relation: Relation, a: Expr, b: Expr) -> Expr:
    match relation:
        case Relation.EQUAL:
            return equal(a, b)
        case Relation.LESS:
            return a < b
        case Relation.LESS_OR_EQUAL:
            return a <= b
        case _:
            assert_never(relation)


def logical(op: Logical, operands: tuple[Tensor, ...], name: str) -> Tensor:
    """Declare a function of truth values."""
    return broadcast(name, lambda *values: _connective(op.connective, values), *operands)


def _connective(connective: Connective, values: tuple[Expr, ...]) -> Expr:
    match connective:
        case Connective.AND:
            return values[0] & values[1]
        case Connective.OR:
            return values[0] | values[1]
        case Connective.XOR:
            left, right = (cast(value, INT32) for value in values)
            return not_equal(left, right)
        case Connective.NOT:
            return call(operations.Function.NOT, values[0])
        case _:
            assert_never(connective)


def choose(condition: Tensor, then: Tensor, otherwise: Tensor, name: str) -> Tensor:
    """Declare the choice between two values."""
    return broadcast(name, select, condition, then, otherwise)
