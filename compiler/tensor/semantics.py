"""What operators, conversions and functions do to single values; the definition for every target.

Values are Python's `bool`, `int` and `float`. A result of a narrower floating-point type is the
float64 result rounded to it: for ``+ - * /`` and the square root, the correctly rounded one.
"""

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from functools import cache

from typing_extensions import assert_never

from tilewright.compiler.tensor import bfloat16
from tilewright.compiler.tensor.operations import Function, Number, Operator
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.isa.errors import InputError

_FLOAT16, _FLOAT32 = struct.Struct("e"), struct.Struct("f")


def _round_to_float32(value: float) -> float:
    return _rounded(value, _FLOAT32)


def _rounded(value: float, form: struct.Struct) -> float:
    try:
        (rounded,) = form.unpack(form.pack(value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(rounded)


@cache
def fitter(dtype: ScalarType) -> Callable[[Number], Number]:
    """Return what brings an exact result into `dtype`: wrapping around or rounding."""
    if dtype.is_integer:
        low, high = dtype.limits
        size = high - low + 1
        return lambda value: value if low <= value <= high else (int(value) - low) % size + low
    if dtype is ScalarType.FLOAT16:
        return lambda value: _rounded(value, _FLOAT16)
    if dtype is ScalarType.BFLOAT16:
        return bfloat16.nearest
    return _round_to_float32 if dtype is ScalarType.FLOAT32 else lambda value: value


@cache
def converter(dtype: ScalarType) -> Callable[[Number], Number]:
    """Return what `Cast` to `dtype` does; it raises InputError for a float that does not fit."""
    fit = fitter(dtype)
    if dtype is ScalarType.BOOL:
        return lambda value: value != 0
    if dtype.is_float:
        return lambda value: fit(float(value))

    def convert(value: Number) -> Number:
        if not isinstance(value, float):
            return fit(int(value))
        if not math.isfinite(value) or fit(int(value)) != int(value):
            raise InputError(f"{value!r} does not fit into {dtype}")
        return int(value)

    return convert


def _divide(left: Number, right: Number) -> Number:
    if right:
        return left / right
    sign = math.copysign(1.0, left) * math.copysign(1.0, right)
    return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, sign)


def _floor_divide(left: Number, right: Number) -> Number:
    if right == 0:
        raise InputError(f"{left} is divided by zero")
    return left // right


def _modulo(left: Number, right: Number) -> Number:
    if right == 0:
        raise InputError(f"{left} is divided by zero")
    return left % right


def _shift(value: Number, amount: Number) -> tuple[int, int]:
    if not 0 <= amount < 64:
        raise InputError(f"{value} is shifted by {amount}, which is not in 0..63")
    return int(value), int(amount)


def _shift_left(left: Number, right: Number) -> Number:
    value, amount = _shift(left, right)
    return value << amount


def _shift_right(left: Number, right: Number) -> Number:
    value, amount = _shift(left, right)
    return value >> amount


_OPERATORS: dict[Operator, Callable[[Number, Number], Number]] = {
    Operator.ADD: lambda left, right: left + right,
    Operator.SUBTRACT: lambda left, right: left - right,
    Operator.MULTIPLY: lambda left, right: left * right,
    Operator.DIVIDE: _divide,
    Operator.FLOOR_DIVIDE: _floor_divide,
    Operator.MODULO: _modulo,
    Operator.MINIMUM: lambda left, right: right if right < left else left,
    Operator.MAXIMUM: lambda left, right: right if left < right else left,
    Operator.SHIFT_LEFT: _shift_left,
    Operator.SHIFT_RIGHT: _shift_right,
    Operator.LESS: lambda left, right: left < right,
    Operator.LESS_EQUAL: lambda left, right: left <= right,
    Operator.EQUAL: lambda left, right: left == right,
    Operator.NOT_EQUAL: lambda left, right: left != right,
    Operator.AND: lambda left, right: left and right,
    Operator.OR: lambda left, right: left or right,
}


def operation(operator: Operator, dtype: ScalarType) -> Callable[[Number, Number], Number]:
    """Return what `operator` does to two values of `dtype`."""
    exact = _OPERATORS[operator]
    if not dtype.is_integer and (not dtype.is_float or dtype is ScalarType.FLOAT64):
        return exact
    fit = fitter(dtype)
    return lambda left, right: fit(exact(left, right))


def round_shift(value: int, shift: int) -> int:
    """Divide by ``2**shift``, rounding half to even."""
    value, shift = _shift(value, shift)
    if shift == 0:
        return value
    return (value + (1 << (shift - 1)) - 1 + ((value >> shift) & 1)) >> shift


def call(function: Function, dtype: ScalarType, arguments: tuple[Number, ...]) -> Number:
    """Apply `function` to values of `dtype`."""
    value = arguments[0]
    match function:
        case Function.NOT:
            return not value
        case Function.ABSOLUTE:
            return fitter(dtype)(abs(value))
        case Function.ROUND_SHIFT:
            return round_shift(int(value), int(arguments[1]))
        case Function.POWER:
            return fitter(dtype)(_power(float(value), float(arguments[1])))
        case Function.FUSED_MULTIPLY_ADD:
            return _fused_multiply_add(dtype, *map(float, arguments))
        case _:
            return fitter(dtype)(_float_function(function, float(value)))


def _power(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        odd = exponent % 2 == 1
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        return math.inf if base == 0 else math.nan


def _fused_multiply_add(dtype: ScalarType, a: float, b: float, c: float) -> float:
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if dtype is ScalarType.FLOAT64:
        return float(exact) if exact else a * b + c
    # To odd in 53 bits first: then rounding to fewer sees on which side of a tie the sum lies.
    nearest = float(exact)
    rest = exact - Fraction(nearest)
    if rest and int(math.frexp(nearest)[0] * 2.0**53) % 2 == 0:
        nearest = math.nextafter(nearest, math.inf if rest > 0 else -math.inf)
    return float(fitter(dtype)(nearest if exact else a * b + c))


def _float_function(function: Function, value: float) -> float:
    match function:
        case Function.FLOOR:
            return float(math.floor(value)) if math.isfinite(value) else value
        case Function.ROUND_HALF_EVEN:
            return float(round(value)) if math.isfinite(value) else value
        case Function.SQRT:
            return math.sqrt(value) if value >= 0 else math.nan
        case Function.EXP:
            return math.exp(value) if value < 709 else math.inf
        case Function.LOG:
            return math.log(value) if value > 0 else (-math.inf if value == 0 else math.nan)
        case Function.TANH:
            return math.tanh(value)
        case Function.ERF:
            return math.erf(value)
        case (
            Function.NOT
            | Function.ABSOLUTE
            | Function.ROUND_SHIFT
            | Function.POWER
            | Function.FUSED_MULTIPLY_ADD
        ):
            raise AssertionError(f"{function} is not a function of floating point alone")
        case _:
            assert_never(function)
