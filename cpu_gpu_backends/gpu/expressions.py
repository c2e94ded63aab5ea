"""Scalar expressions as text of a dialect; integers wrap around whatever C says about overflow."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isinf, isnan

import numpy as np
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
    Tensor,
    Var,
)
from tilewright.compiler.tensor.intervals import Interval, Ranges, bounds
from tilewright.compiler.tensor.linear import combine, from_linear, to_linear
from tilewright.compiler.tensor.operations import Function, Number, Operator
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.traversal import children, nodes, rebuild
from tilewright.cpu_gpu_backends.gpu.dialects import Dialect
from tilewright.cpu_gpu_backends.gpu.helpers import Helper, HelperUse

#: The type in which C computes with integers that are narrower.
_PROMOTED = frozenset({ScalarType.INT8, ScalarType.UINT8, ScalarType.INT16, ScalarType.BOOL})
_INT32 = Interval(*ScalarType.INT32.limits)
_PLAIN = {
    Operator.ADD: "+",
    Operator.SUBTRACT: "-",
    Operator.MULTIPLY: "*",
    Operator.LESS: "<",
    Operator.LESS_EQUAL: "<=",
    Operator.EQUAL: "==",
    Operator.NOT_EQUAL: "!=",
    Operator.AND: "&&",
    Operator.OR: "||",
}
_HELPERS = {
    Operator.FLOOR_DIVIDE: Helper.FLOOR_DIVIDE,
    Operator.MODULO: Helper.MODULO,
    Operator.MINIMUM: Helper.MINIMUM,
    Operator.MAXIMUM: Helper.MAXIMUM,
    Operator.SHIFT_LEFT: Helper.SHIFT_LEFT,
    Operator.SHIFT_RIGHT: Helper.SHIFT_RIGHT,
}
_FLOAT_FUNCTIONS = {
    Function.ABSOLUTE: "fabs",
    Function.FLOOR: "floor",
    Function.ROUND_HALF_EVEN: "rint",
    Function.SQRT: "sqrt",
    Function.EXP: "exp",
    Function.LOG: "log",
    Function.TANH: "tanh",
    Function.ERF: "erf",
    Function.POWER: "pow",
    Function.FUSED_MULTIPLY_ADD: "fma",
}


def flat_index(tensor: Tensor, indices: tuple[Expr, ...]) -> Expr:
    """Return the position of an element in row-major storage."""
    total = combine((), 0)
    stride = 1
    for index, extent in zip(reversed(indices), reversed(tensor.shape), strict=True):
        total = total + to_linear(index).scaled(stride)
        stride *= extent
    return from_linear(total)


@dataclass(slots=True, kw_only=True)
class ExpressionWriter:
    """Writes expressions; remembers which helpers they need.

    Attributes
    ----------
    names
        How tensors and variables are called in the text.
    lanes
        Loads that have been done already, and what holds their result.
    """

    dialect: Dialect
    tensors: Mapping[Tensor, str]
    variables: Mapping[str, str]
    helpers: dict[HelperUse, None] = field(default_factory=dict)
    lanes: dict[Load, str] = field(default_factory=dict)

    def write(self, expr: Expr, ranges: Ranges) -> str:
        """Return the text of `expr`, which stands for itself in any context."""
        return _Writer(self, ranges, wide=_is_wide(expr, ranges)).text(expr)

    def element(self, tensor: Tensor, indices: tuple[Expr, ...], ranges: Ranges) -> str:
        """Return the text of an element of `tensor`."""
        return f"{self.tensors[tensor]}[{self.write(flat_index(tensor, indices), ranges)}]"


def _is_wide(expr: Expr, ranges: Ranges) -> bool:
    """Whether an index in `expr`, those of its loads apart, may need more than 32 bits."""
    if isinstance(expr, Const | Var) or expr.dtype is not ScalarType.INDEX:
        return False
    return any(
        not isinstance(node, Var) and not bounds(node, ranges).within(_INT32)
        for node in nodes(expr)
        if node.dtype is ScalarType.INDEX
    )


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes one expression; `wide` says that its indices have 64 bits."""

    writer: ExpressionWriter
    ranges: Ranges
    wide: bool

    def text(self, expr: Expr) -> str:
        match expr:
            case Const():
                return self.constant(expr.value, expr.dtype)
            case Var():
                name = self.writer.variables[expr.name]
                return f"({self.writer.dialect.wide_index}){name}" if self.wide else name
            case Binary():
                return self.binary(expr)
            case Select():
                parts = map(self.inner, (expr.condition, expr.then, expr.otherwise))
                condition, then, otherwise = parts
                return f"({condition} ? {then} : {otherwise})"
            case Cast():
                return self.cast(expr)
            case Call():
                return self.call(expr)
            case Load():
                if expr in self.writer.lanes:
                    return self.writer.lanes[expr]
                return self.writer.element(expr.tensor, expr.indices, self.ranges)
            case Reduce():
                raise AssertionError("a kernel holds no reductions")
            case _:
                assert_never(expr)

    def inner(self, expr: Expr) -> str:
        """Return the text of an operand; its indices have a width of their own."""
        if self.wide or expr.dtype is not ScalarType.INDEX:
            return self.text(expr)
        return self.writer.write(expr, self.ranges)

    def constant(self, value: Number, dtype: ScalarType) -> str:
        if dtype is ScalarType.BOOL:
            return str(int(value))
        if dtype is ScalarType.FLOAT16:
            return str(int(np.float16(value).view(np.uint16)))
        if dtype.is_float:
            return _float_text(float(value), dtype)
        suffix = ""
        if dtype is ScalarType.INT64 or (dtype is ScalarType.INDEX and self.wide):
            suffix = self.writer.dialect.long_suffix
        low = -(1 << 63) if suffix else -(1 << 31)
        if value == low:
            return f"({low + 1}{suffix} - 1)"
        return f"({value}{suffix})" if value < 0 else f"{value}{suffix}"

    def use(self, helper: Helper, dtype: ScalarType, *arguments: str) -> str:
        if dtype is ScalarType.INDEX:
            dtype = ScalarType.INT64 if self.wide else ScalarType.INT32
        computed = ScalarType.INT32 if dtype in _PROMOTED else dtype
        use = HelperUse(helper, computed)
        self.writer.helpers[use] = None
        result = f"{use.name}({', '.join(arguments)})"
        return result if computed is dtype else f"({self.writer.dialect.types[dtype]}){result}"

    def binary(self, expr: Binary) -> str:
        operator, dtype = expr.operator, expr.left.dtype
        if dtype is ScalarType.FLOAT16:
            # The float32 result, rounded once more, is the correctly rounded one.
            return self.text(_through_float32(expr))
        left, right = self.inner(expr.left), self.inner(expr.right)
        match operator:
            case Operator.ADD | Operator.SUBTRACT | Operator.MULTIPLY:
                return self.arithmetic(expr, left, right)
            case Operator.DIVIDE:
                if dtype is ScalarType.FLOAT32:
                    return f"TW_DIVIDE_float({left}, {right})"
                return f"({left} / {right})"
            case Operator.FLOOR_DIVIDE | Operator.MODULO:
                if bounds(expr.left, self.ranges).low >= 0 < bounds(expr.right, self.ranges).low:
                    return f"({left} {'/' if operator is Operator.FLOOR_DIVIDE else '%'} {right})"
                return self.use(_HELPERS[operator], dtype, left, right)
            case Operator.MINIMUM | Operator.MAXIMUM | Operator.SHIFT_LEFT | Operator.SHIFT_RIGHT:
                return self.use(_HELPERS[operator], dtype, left, right)
            case _:
                return f"({left} {_PLAIN[operator]} {right})"

    def arithmetic(self, expr: Binary, left: str, right: str) -> str:
        dtype, sign = expr.dtype, _PLAIN[expr.operator]
        plain = f"({left} {sign} {right})"
        if dtype.is_float or dtype is ScalarType.INDEX:
            return plain
        name = self.writer.dialect.types[dtype]
        if dtype in _PROMOTED:
            return f"({name}){plain}"
        if _exact(expr, self.ranges).within(Interval(*dtype.limits)):
            return plain
        unsigned = self.writer.dialect.unsigned[dtype]
        return f"({name})(({unsigned}){left} {sign} ({unsigned}){right})"

    def cast(self, expr: Cast) -> str:
        source, target = expr.operand.dtype, expr.dtype
        operand = self.inner(expr.operand)
        if source is ScalarType.FLOAT16 and target is not source:
            operand, source = f"tw_from_half({operand})", ScalarType.FLOAT32
        if target is ScalarType.FLOAT16:
            return f"tw_to_half((float){operand})"
        if target is ScalarType.BOOL:
            return f"({operand} != 0)"
        if target is ScalarType.INDEX:
            name = self.writer.dialect.wide_index if self.wide else "int"
        else:
            name = self.writer.dialect.types[target]
        return operand if source is target else f"({name}){operand}"

    def call(self, expr: Call) -> str:
        function, dtype = expr.function, expr.dtype
        if dtype is ScalarType.FLOAT16:
            return self.text(_through_float32(expr))
        arguments = [self.inner(argument) for argument in expr.arguments]
        if function is Function.NOT:
            return f"!{arguments[0]}"
        if function is Function.ROUND_SHIFT:
            return self.use(Helper.ROUND_SHIFT, dtype, *arguments)
        if function is Function.ABSOLUTE and dtype.is_integer:
            return self.use(Helper.ABSOLUTE, dtype, *arguments)
        if function is Function.SQRT and dtype is ScalarType.FLOAT32:
            return f"TW_SQRT_float({arguments[0]})"
        suffix = self.writer.dialect.float_suffix if dtype is ScalarType.FLOAT32 else ""
        return f"{_FLOAT_FUNCTIONS[function]}{suffix}({', '.join(arguments)})"


def _through_float32(expr: Binary | Call) -> Expr:
    """Return an operation on float16 as one on float32, converted before and after."""
    operands = tuple(Cast(operand, ScalarType.FLOAT32) for operand in children(expr))
    result = rebuild(expr, operands)
    return result if expr.dtype is ScalarType.BOOL else Cast(result, expr.dtype)


def _exact(expr: Binary, ranges: Ranges) -> Interval:
    """Return the range of a sum, difference or product before it wraps around."""
    left, right = bounds(expr.left, ranges), bounds(expr.right, ranges)
    match expr.operator:
        case Operator.ADD:
            return left + right
        case Operator.SUBTRACT:
            return left + right.scaled(-1)
        case _:
            return left.scaled(right.low).hull(left.scaled(right.high))


def _float_text(value: float, dtype: ScalarType) -> str:
    suffix = "f" if dtype is ScalarType.FLOAT32 else ""
    if isnan(value):
        return "TW_NAN"
    if isinf(value):
        return "TW_INFINITY" if value > 0 else "(-TW_INFINITY)"
    text = f"{value!r}{suffix}"
    return f"({text})" if text.startswith("-") else text
