"""An independent evaluation of declared tensors: whole arrays at once, in numpy."""

import numpy as np

from tilewright.compiler.tensor.expressions import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Tensor,
    Var,
)
from tilewright.compiler.tensor.operations import Function, Operator, Reduction
from tilewright.isa.integers import round_shift

NUMPY = {
    Operator.ADD: np.add,
    Operator.SUBTRACT: np.subtract,
    Operator.MULTIPLY: np.multiply,
    Operator.FLOOR_DIVIDE: np.floor_divide,
    Operator.MODULO: np.mod,
    Operator.MINIMUM: np.minimum,
    Operator.MAXIMUM: np.maximum,
    Operator.LESS: np.less,
    Operator.LESS_EQUAL: np.less_equal,
    Operator.EQUAL: np.equal,
    Operator.AND: np.logical_and,
    Operator.OR: np.logical_or,
}


def reference(tensor: Tensor, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Return the value of an integer tensor; reads out of bounds under a select are harmless."""
    if tensor.definition is None:
        return inputs[tensor.name]
    body = tensor.definition.body
    axes = list(tensor.definition.axes)
    reduced = list(body.axes) if isinstance(body, Reduce) else []
    grid = np.indices([axis.extent for axis in axes + reduced])
    variables = {axis.name: grid[at] for at, axis in enumerate(axes + reduced)}
    element = body.body if isinstance(body, Reduce) else body
    values = np.broadcast_to(_values(element, variables, inputs), grid.shape[1:])
    values = values.astype(tensor.dtype.numpy)
    if not isinstance(body, Reduce):
        return values
    over = tuple(range(len(axes), len(axes) + len(reduced)))
    combine = {Reduction.SUM: np.sum, Reduction.MAX: np.max, Reduction.MIN: np.min}
    return combine[body.reduction](values, axis=over).astype(tensor.dtype.numpy)


def _values(
    expr: Expr, variables: dict[str, np.ndarray], inputs: dict[str, np.ndarray]
) -> np.ndarray:
    match expr:
        case Const():
            return np.asarray(expr.value, dtype=expr.dtype.numpy)
        case Var():
            return variables[expr.name]
        case Binary():
            left = _values(expr.left, variables, inputs)
            right = _values(expr.right, variables, inputs)
            with np.errstate(over="ignore"):
                return NUMPY[expr.operator](left, right)
        case Select():
            parts = (expr.condition, expr.then, expr.otherwise)
            return np.where(*(_values(part, variables, inputs) for part in parts))
        case Cast():
            return _values(expr.operand, variables, inputs).astype(expr.dtype.numpy)
        case Call(Function.ROUND_SHIFT, (value, shift)):
            amount = int(_values(shift, variables, inputs))
            wide = _values(value, variables, inputs).astype(np.int64)
            return round_shift(wide, amount).astype(expr.dtype.numpy)
        case Load():
            source = reference(expr.tensor, inputs)
            indices = (_values(index, variables, inputs) for index in expr.indices)
            pairs = zip(indices, source.shape, strict=True)
            return source[tuple(np.clip(index, 0, extent - 1) for index, extent in pairs)]
    raise AssertionError(f"no reference for {expr}")
