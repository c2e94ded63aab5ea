"""Index expressions tabulated over the loops that run at compile time."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
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
from tilewright.compiler.tensor.operations import Operator
from tilewright.compiler.tensor.printing import format_expression
from tilewright.compiler.tensor.traversal import variables
from tilewright.isa.errors import CompileError

#: Values of loop variables by name.
Indices: TypeAlias = Mapping[str, int]
_Grid: TypeAlias = npt.NDArray[Any]

_UFUNCS: Mapping[Operator, np.ufunc] = {
    Operator.ADD: np.add,
    Operator.SUBTRACT: np.subtract,
    Operator.MULTIPLY: np.multiply,
    Operator.DIVIDE: np.divide,
    Operator.FLOOR_DIVIDE: np.floor_divide,
    Operator.MODULO: np.remainder,
    Operator.MINIMUM: np.minimum,
    Operator.MAXIMUM: np.maximum,
    Operator.SHIFT_LEFT: np.left_shift,
    Operator.SHIFT_RIGHT: np.right_shift,
    Operator.LESS: np.less,
    Operator.LESS_EQUAL: np.less_equal,
    Operator.EQUAL: np.equal,
    Operator.NOT_EQUAL: np.not_equal,
    Operator.AND: np.logical_and,
    Operator.OR: np.logical_or,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The values of an expression for all values of the loop variables that it uses."""

    names: tuple[str, ...]
    #: One axis per name.
    values: _Grid
    #: The same one behind the other, and the distance of neighbours along each axis: reading
    #: them one at a time is what takes time where tiles are many.
    flat: tuple[int, ...]
    strides: tuple[tuple[str, int], ...]

    def at(self, indices: Indices) -> int:
        """Return the value where the loop variables have the values `indices`."""
        place = 0
        for name, stride in self.strides:
            place += indices[name] * stride
        return self.flat[place]


def tabulate(expr: Expr, extents: Mapping[str, int]) -> Table:
    """Evaluate an expression for all values of its variables, whose loops have `extents`.

    Raises
    ------
    CompileError
        If it depends on data.
    """
    names = tuple(sorted(variables(expr)))
    shape = tuple(extents[name] for name in names)
    grids = dict(zip(names, np.indices(shape, sparse=True), strict=True))
    values = np.broadcast_to(np.asarray(evaluate(expr, grids)), shape)
    return Table(
        names=names,
        values=values,
        flat=tuple(int(value) for value in values.ravel().tolist()),
        strides=tuple((name, math.prod(shape[axis + 1 :])) for axis, name in enumerate(names)),
    )


def evaluate(expr: Expr, values: Mapping[str, _Grid]) -> _Grid:
    """Evaluate an expression over arrays of values of its variables.

    Raises
    ------
    CompileError
        If it depends on data.
    """
    match expr:
        case Const():
            return np.asarray(expr.value)
        case Var():
            return values[expr.name]
        case Binary():
            left, right = evaluate(expr.left, values), evaluate(expr.right, values)
            return np.asarray(_UFUNCS[expr.operator](left, right))
        case Select():
            parts = (expr.condition, expr.then, expr.otherwise)
            return np.where(*(evaluate(part, values) for part in parts))
        case Cast():
            return evaluate(expr.operand, values)
        case Call() | Load() | Reduce():
            raise CompileError(
                f"{format_expression(expr)} depends on data, an instruction takes numbers"
            )
        case _:
            assert_never(expr)
