"""Operators whose machine code yields the bits of their evaluation in numpy.

Whole numbers are exact, and so are real numbers that are moved, compared, or computed by a single
operation of IEEE 754. Sums of real numbers depend on their order, and functions such as the
exponential on who wrote them.
"""

from collections.abc import Iterator
from itertools import groupby

from tilewright.compiler.graph import Node
from tilewright.compiler.operators import (
    BinaryFunction,
    FloatBinary,
    FloatClip,
    FloatOperator,
    FloatReduce,
    FloatUnary,
    Function,
    Operator,
    Reduction,
)

_SINGLE_OPERATIONS = frozenset(
    {
        Function.SQRT,
        Function.NEGATE,
        Function.ABSOLUTE,
        Function.FLOOR,
        Function.CEIL,
        Function.ROUND,
        Function.SIGN,
    }
)


def is_exact(op: Operator) -> bool:
    """Whether machine code and numpy yield the same bits."""
    match op:
        case FloatBinary(function=function):
            return function is not BinaryFunction.POWER
        case FloatUnary(function=function):
            return function in _SINGLE_OPERATIONS
        case FloatReduce(function=function):
            return function in (Reduction.MAXIMUM, Reduction.MINIMUM)
        case FloatClip():
            return True
        case _:
            return not isinstance(op, FloatOperator)


def exact_runs(nodes: tuple[Node, ...]) -> Iterator[tuple[bool, tuple[Node, ...]]]:
    """Cut nodes, which are computed in this order, where exact ones meet others."""
    for exact, run in groupby(nodes, key=lambda node: is_exact(node.op)):
        yield exact, tuple(run)
