"""Scalar expressions over loop indices and tensor elements: a closed set of frozen nodes.

Type rules: the operands of an operator have one type, and nothing is converted in silence; a
Python number takes the type of the operand beside it. Integers wrap around, ``//`` and ``%`` round
towards minus infinity, ``/`` is for floating point. A comparison yields `ScalarType.BOOL`; since
``==`` compares expressions as data, equality of values is written `equal`.
"""

from dataclasses import dataclass
from typing import TypeAlias, cast

from tilewright.compiler.tensor import bfloat16
from tilewright.compiler.tensor.operations import (
    COMPARISONS,
    LOGICAL,
    WHOLE_NUMBERS_ONLY,
    Function,
    Number,
    Operator,
    Reduction,
)
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.isa.errors import CompileError


class ExpressionError(CompileError):
    """An expression breaks a type rule or a tensor is declared wrongly."""


class _Arithmetic:
    """Python's operators on expressions."""

    __slots__ = ()

    def __add__(self, other: "Operand") -> "Expr":
        return _binary(Operator.ADD, self, other)

    def __radd__(self, other: Number) -> "Expr":
        return _binary(Operator.ADD, other, self)

    def __sub__(self, other: "Operand") -> "Expr":
        return _binary(Operator.SUBTRACT, self, other)

    def __rsub__(self, other: Number) -> "Expr":
        return _binary(Operator.SUBTRACT, other, self)

    def __neg__(self) -> "Expr":
        return _binary(Operator.SUBTRACT, 0, self)

    def __mul__(self, other: "Operand") -> "Expr":
        return _binary(Operator.MULTIPLY, self, other)

    def __rmul__(self, other: Number) -> "Expr":
        return _binary(Operator.MULTIPLY, other, self)

    def __truediv__(self, other: "Operand") -> "Expr":
        return _binary(Operator.DIVIDE, self, other)

    def __rtruediv__(self, other: Number) -> "Expr":
        return _binary(Operator.DIVIDE, other, self)

    def __floordiv__(self, other: "Operand") -> "Expr":
        return _binary(Operator.FLOOR_DIVIDE, self, other)

    def __mod__(self, other: "Operand") -> "Expr":
        return _binary(Operator.MODULO, self, other)

    def __lshift__(self, other: "Operand") -> "Expr":
        return _binary(Operator.SHIFT_LEFT, self, other)

    def __rshift__(self, other: "Operand") -> "Expr":
        return _binary(Operator.SHIFT_RIGHT, self, other)

    def __lt__(self, other: "Operand") -> "Expr":
        return _binary(Operator.LESS, self, other)

    def __le__(self, other: "Operand") -> "Expr":
        return _binary(Operator.LESS_EQUAL, self, other)

    def __gt__(self, other: "Operand") -> "Expr":
        return _binary(Operator.LESS, other, self)

    def __ge__(self, other: "Operand") -> "Expr":
        return _binary(Operator.LESS_EQUAL, other, self)

    def __and__(self, other: "Operand") -> "Expr":
        return _binary(Operator.AND, self, other)

    def __or__(self, other: "Operand") -> "Expr":
        return _binary(Operator.OR, self, other)

    def __bool__(self) -> bool:
        raise ExpressionError(
            "an expression has no truth value of its own",
            hint="combine conditions with & and |, choose with select, compare with equal",
        )


@dataclass(frozen=True, slots=True)
class Const(_Arithmetic):
    """A number of a type that can hold it; floating point is rounded to its type."""

    value: Number
    dtype: ScalarType

    def __post_init__(self) -> None:
        if self.dtype is ScalarType.BFLOAT16:
            object.__setattr__(self, "value", bfloat16.nearest(float(self.value)))
        elif self.dtype.is_float:
            object.__setattr__(self, "value", float(self.dtype.numpy.type(self.value)))
        if self.dtype.is_integer:
            low, high = self.dtype.limits
            fits = isinstance(self.value, int) and low <= self.value <= high
        elif self.dtype is ScalarType.INDEX:
            fits = isinstance(self.value, int)
        else:
            fits = self.dtype.is_float or isinstance(self.value, bool)
        if not fits:
            raise ExpressionError(f"{self.value!r} is not a value of type {self.dtype}")


@dataclass(frozen=True, slots=True)
class Var(_Arithmetic):
    """A loop variable, or a parameter that an intrinsic takes; known by its name."""

    name: str
    dtype: ScalarType = ScalarType.INDEX


@dataclass(frozen=True, slots=True)
class Binary(_Arithmetic):
    """An operator applied to two operands of one type."""

    operator: Operator
    left: "Expr"
    right: "Expr"

    def __post_init__(self) -> None:
        operand = self.left.dtype
        if operand is not self.right.dtype:
            raise ExpressionError(
                f"{self.operator.value} takes operands of one type, "
                f"not {operand} and {self.right.dtype}",
                hint="convert one of them with cast",
            )
        if self.operator in LOGICAL:
            legal = operand is ScalarType.BOOL
        elif self.operator in WHOLE_NUMBERS_ONLY:
            legal = operand.is_integer or operand is ScalarType.INDEX
        elif self.operator is Operator.DIVIDE:
            legal = operand.is_float
        else:
            legal = operand is not ScalarType.BOOL
        if not legal:
            raise ExpressionError(f"{self.operator.value} is not defined on {operand}")

    @property
    def dtype(self) -> ScalarType:
        """Type of the result."""
        return ScalarType.BOOL if self.operator in COMPARISONS else self.left.dtype


@dataclass(frozen=True, slots=True)
class Select(_Arithmetic):
    """One of two values; the other one is not evaluated and may be out of bounds."""

    condition: "Expr"
    then: "Expr"
    otherwise: "Expr"

    def __post_init__(self) -> None:
        if self.condition.dtype is not ScalarType.BOOL:
            raise ExpressionError(f"select takes a bool condition, not {self.condition.dtype}")
        if self.then.dtype is not self.otherwise.dtype:
            raise ExpressionError(
                f"select takes values of one type, not {self.then.dtype} and {self.otherwise.dtype}"
            )

    @property
    def dtype(self) -> ScalarType:
        """Type of either value."""
        return self.then.dtype


@dataclass(frozen=True, slots=True)
class Cast(_Arithmetic):
    """A change of type: integers wrap around, floating point is cut off towards zero."""

    operand: "Expr"
    dtype: ScalarType


@dataclass(frozen=True, slots=True)
class Call(_Arithmetic):
    """A function of the closed set applied to arguments of one type."""

    function: Function
    arguments: tuple["Expr", ...]

    def __post_init__(self) -> None:
        types = [argument.dtype for argument in self.arguments]
        if len(types) != self.function.arity or len(set(types)) != 1:
            raise ExpressionError(
                f"{self.function.value} takes {self.function.arity} arguments of one type, "
                f"not ({', '.join(map(str, types))})"
            )
        if not self.function.accepts(types[0]):
            raise ExpressionError(f"{self.function.value} is not defined on {types[0]}")

    @property
    def dtype(self) -> ScalarType:
        """Type of the result, that of the arguments."""
        return self.arguments[0].dtype


@dataclass(frozen=True, slots=True)
class Load(_Arithmetic):
    """One element of a tensor."""

    tensor: "Tensor"
    indices: tuple["Expr", ...]

    def __post_init__(self) -> None:
        check_indices(self.tensor, self.indices)

    @property
    def dtype(self) -> ScalarType:
        """Element type of the tensor."""
        return self.tensor.dtype


@dataclass(frozen=True, slots=True)
class Reduce(_Arithmetic):
    """A reduction over axes of its own; only ever the whole body of a tensor's definition."""

    reduction: Reduction
    body: "Expr"
    axes: tuple["Axis", ...]

    @property
    def dtype(self) -> ScalarType:
        """Type of the terms and of the result."""
        return self.body.dtype


Expr: TypeAlias = Const | Var | Binary | Select | Cast | Call | Load | Reduce
Operand: TypeAlias = Expr | Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A named range of indices from 0 to ``extent - 1``."""

    name: str
    extent: int

    def __post_init__(self) -> None:
        if self.extent < 1:
            raise ExpressionError(f"axis {self.name!r} must have an extent, not {self.extent}")

    @property
    def var(self) -> Var:
        """The variable that runs over the axis."""
        return Var(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The value of a tensor's element as an expression over the tensor's axes."""

    axes: tuple[Axis, ...]
    body: Expr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tensor:
    """A named array; with a definition it is computed, without one it is an input or storage.

    `scope` names the memory that holds it. Two tensors are the same only if they are one object.
    """

    name: str
    shape: tuple[int, ...]
    dtype: ScalarType
    scope: str = "global"
    definition: Definition | None = None

    def __getitem__(self, indices: Operand | tuple[Operand, ...]) -> Expr:
        given = indices if isinstance(indices, tuple) else (indices,)
        return Load(self, tuple(literal(index, ScalarType.INDEX) for index in given))

    def at(self, *indices: Operand) -> Expr:
        """Return the element at `indices`, however many axes there are."""
        return self[indices]

    def __str__(self) -> str:
        place = "" if self.scope == "global" else f" in {self.scope}"
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]{place}"


def check_indices(tensor: Tensor, indices: tuple[Expr, ...]) -> None:
    """Raise `ExpressionError` unless `indices` suit the rank of `tensor`."""
    if len(indices) != len(tensor.shape):
        raise ExpressionError(
            f"tensor {tensor.name!r} has {len(tensor.shape)} axes, not {len(indices)} indices"
        )
    for index in indices:
        if index.dtype is not ScalarType.INDEX:
            raise ExpressionError(
                f"tensor {tensor.name!r} is indexed by {index.dtype} instead of index",
                hint="convert data to an index with cast(..., ScalarType.INDEX)",
            )


def literal(value: Operand, dtype: ScalarType) -> Expr:
    """Return an expression as it is and a Python number as a constant of `dtype`."""
    if not isinstance(value, int | float):
        return value
    return Const(float(value) if dtype.is_float else value, dtype)


def _binary(
    operator: Operator, left: "_Arithmetic | Number", right: "_Arithmetic | Number"
) -> Expr:
    first, second = cast(Operand, left), cast(Operand, right)
    if not isinstance(first, int | float):
        return Binary(operator, first, literal(second, first.dtype))
    assert not isinstance(second, int | float), "one side is an expression"
    return Binary(operator, literal(first, second.dtype), second)
