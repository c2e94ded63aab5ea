"""The operators, functions and reductions that expressions are made of: closed sets."""

from enum import Enum
from typing import TypeAlias

from tilewright.compiler.tensor.scalar_types import ScalarType

Number: TypeAlias = int | float | bool


class Operator(Enum):
    """An operator of two operands; the value is how it is written."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    FLOOR_DIVIDE = "//"
    MODULO = "%"
    MINIMUM = "min"
    MAXIMUM = "max"
    SHIFT_LEFT = "<<"
    SHIFT_RIGHT = ">>"
    LESS = "<"
    LESS_EQUAL = "<="
    EQUAL = "=="
    NOT_EQUAL = "!="
    AND = "and"
    OR = "or"

    # Members are unique; hashing their names takes long where expressions are compared.
    __hash__ = object.__hash__


COMPARISONS = frozenset(
    {Operator.LESS, Operator.LESS_EQUAL, Operator.EQUAL, Operator.NOT_EQUAL},
)
LOGICAL = frozenset({Operator.AND, Operator.OR})
WHOLE_NUMBERS_ONLY = frozenset(
    {Operator.FLOOR_DIVIDE, Operator.MODULO, Operator.SHIFT_LEFT, Operator.SHIFT_RIGHT}
)


class Function(Enum):
    """A function from the closed set that every backend offers; the value is how it is written.

    `ROUND_SHIFT` divides an integer by two to the power of a second one, rounding half to even: the
    rounding of `tilewright.isa.integers.round_shift`. `FUSED_MULTIPLY_ADD` is ``a * b + c``,
    rounded once.
    """

    NOT = "not"
    ABSOLUTE = "abs"
    FLOOR = "floor"
    ROUND_HALF_EVEN = "round_half_even"
    ROUND_SHIFT = "round_shift"
    FUSED_MULTIPLY_ADD = "fma"
    SQRT = "sqrt"
    EXP = "exp"
    LOG = "log"
    TANH = "tanh"
    ERF = "erf"
    POWER = "power"

    @property
    def arity(self) -> int:
        """How many arguments the function takes."""
        match self:
            case Function.ROUND_SHIFT | Function.POWER:
                return 2
            case Function.FUSED_MULTIPLY_ADD:
                return 3
            case _:
                return 1

    def accepts(self, dtype: ScalarType) -> bool:
        """Whether the function is defined on `dtype`, which is also the type of its result."""
        match self:
            case Function.NOT:
                return dtype is ScalarType.BOOL
            case Function.ABSOLUTE:
                return dtype.is_integer or dtype.is_float
            case Function.ROUND_SHIFT:
                return dtype.is_integer
            case _:
                return dtype.is_float


class Reduction(Enum):
    """How a reduction combines its terms."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    PRODUCT = "product"

    @property
    def operator(self) -> Operator:
        """The operator that combines two terms."""
        return _COMBINERS[self]

    def identity(self, dtype: ScalarType) -> Number:
        """Return the value that changes nothing."""
        if self in (Reduction.SUM, Reduction.PRODUCT):
            neutral = int(self is Reduction.PRODUCT)
            return float(neutral) if dtype.is_float else neutral
        lowest, highest = dtype.limits if dtype.is_integer else (float("-inf"), float("inf"))
        return lowest if self is Reduction.MAX else highest


_COMBINERS = {
    Reduction.SUM: Operator.ADD,
    Reduction.MAX: Operator.MAXIMUM,
    Reduction.MIN: Operator.MINIMUM,
    Reduction.PRODUCT: Operator.MULTIPLY,
}
