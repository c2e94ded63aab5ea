"""Exponential, logarithm, tanh and erf of float32 in vector lanes, to a few last places.

Coefficients are least-squares fits over the stated intervals in float64, lowest power first.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from tilewright.cpu_gpu_backends.codegen.types import (
    declare_intrinsic,
    lanes_of,
    number,
    suffix,
    with_lanes,
)

_FLOAT, _INT = ir.FloatType(), ir.IntType(32)

#: ``(exp(r) - 1 - r) / r**2`` for ``|r| <= log(2) / 2``.
_EXP = (0.500000003, 0.166665734, 0.041666364, 0.00836377616, 0.00139421182)
#: ``(tanh(x) / x - 1) / x**2`` in ``x**2`` for ``|x| <= 0.625``.
_TANH = (-0.333333292, 0.133327945, -0.0538540604, 0.0210100429, -0.00611314197)
#: ``erf(x) / x`` in ``x**2`` for ``|x| <= 3.92``, beyond which erf is 1 in float32: a quotient.
_ERF_OVER = (1.12837915, 0.190376659, 0.0527454568, 0.00376451507, 0.000284889288, 2.05073784e-06)
_ERF_UNDER = (1.0, 0.502049664, 0.114097404, 0.0149669952, 0.00116232592, 3.80987693e-05)
_ERF_END = 3.9192059
#: ``(log(1 + f) - f + f**2 / 2) / f**3`` for ``sqrt(1/2) <= 1 + f <= sqrt(2)``.
_LOG = (
    0.333333313,
    -0.249999812,
    0.200006883,
    -0.16669147,
    0.142511461,
    -0.12396785,
    0.116348436,
    -0.116594106,
    0.0733139342,
)
#: ``log(2)`` as a float32 of few digits and the rest, so that its multiples are exact.
_LOG2_HIGH, _LOG2_LOW = 0.693359375, -2.12194440e-4


@dataclass(frozen=True, slots=True)
class Approximations:
    """Emits float32 functions for values of one type, scalar or vector."""

    builder: ir.IRBuilder
    lanes: int

    @classmethod
    def for_value(cls, builder: ir.IRBuilder, value: ir.Value) -> "Approximations":
        """Return the emitter for values like `value`."""
        return cls(builder, lanes_of(value))

    def exp(self, x: ir.Value) -> ir.Value:
        """Return ``e**x``: 0 below the smallest denormal, infinity above the largest number."""
        b = self.builder
        bounded = self._clamp(x, -104.0, 89.0)
        power = self._intrinsic("roundeven", b.fmul(bounded, self._real(1.4426950408889634)))
        r = self._fma(power, self._real(-_LOG2_HIGH), bounded)
        r = self._fma(power, self._real(-_LOG2_LOW), r)
        tail = self._fma(b.fmul(r, r), self._polynomial(_EXP, r), r)
        mantissa = b.fadd(tail, self._real(1.0))
        # In two steps, since 2**power may be neither a normal number nor finite.
        whole = b.fptosi(power, self._type(_INT))
        half = b.ashr(whole, self._integer(1))
        return b.fmul(b.fmul(mantissa, self._power(half)), self._power(b.sub(whole, half)))

    def log(self, x: ir.Value) -> ir.Value:
        """Return the natural logarithm: -infinity of 0, not a number below."""
        b = self.builder
        tiny = b.fcmp_ordered("<", x, self._real(1.17549435e-38))
        scaled = b.select(tiny, b.fmul(x, self._real(2.0**23)), x)
        bits = b.bitcast(scaled, self._type(_INT))
        # The mantissa between sqrt(1/2) and sqrt(2), the exponent to suit.
        shifted = b.sub(bits, self._integer(0x3F3504F3))
        exponent = b.ashr(shifted, self._integer(23))
        mantissa = b.sub(bits, b.shl(exponent, self._integer(23)))
        f = b.fsub(b.bitcast(mantissa, self._type(_FLOAT)), self._real(1.0))
        offset = b.select(tiny, self._real(-23.0), self._real(0.0))
        power = b.fadd(b.sitofp(exponent, self._type(_FLOAT)), offset)
        square = b.fmul(f, f)
        tail = b.fmul(b.fmul(square, f), self._polynomial(_LOG, f))
        tail = self._fma(power, self._real(_LOG2_LOW), tail)
        tail = self._fma(square, self._real(-0.5), tail)
        result = self._fma(power, self._real(_LOG2_HIGH), b.fadd(f, tail))
        infinite = b.fcmp_ordered("==", x, self._real(float("inf")))
        result = b.select(infinite, x, result)
        zero = b.fcmp_ordered("==", x, self._real(0.0))
        result = b.select(zero, self._real(float("-inf")), result)
        legal = b.fcmp_ordered(">=", x, self._real(0.0))
        return b.select(legal, result, self._real(float("nan")))

    def tanh(self, x: ir.Value) -> ir.Value:
        """Return the hyperbolic tangent."""
        b = self.builder
        square = b.fmul(x, x)
        inside = self._fma(b.fmul(square, x), self._polynomial(_TANH, square), x)
        size = self._intrinsic("fabs", x)
        growth = self.exp(b.fadd(size, size))
        share = b.fdiv(self._real(2.0), b.fadd(growth, self._real(1.0)))
        outside = self._signed(b.fsub(self._real(1.0), share), x)
        return b.select(b.fcmp_ordered("<", size, self._real(0.625)), inside, outside)

    def erf(self, x: ir.Value) -> ir.Value:
        """Return the error function."""
        b = self.builder
        near = self._clamp(x, -_ERF_END, _ERF_END)
        square = b.fmul(near, near)
        over = b.fmul(near, self._polynomial(_ERF_OVER, square))
        quotient = b.fdiv(over, self._polynomial(_ERF_UNDER, square))
        at_end = b.fcmp_ordered(">=", self._intrinsic("fabs", x), self._real(_ERF_END))
        return b.select(at_end, self._signed(self._real(1.0), x), quotient)

    def _polynomial(self, coefficients: Sequence[float], x: ir.Value) -> ir.Value:
        total: ir.Value = self._real(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = self._fma(total, x, self._real(coefficient))
        return total

    def _clamp(self, x: ir.Value, low: float, high: float) -> ir.Value:
        """Limit `x`, which stays as it is where it is not a number."""
        b = self.builder
        x = b.select(b.fcmp_ordered("<", x, self._real(low)), self._real(low), x)
        return b.select(b.fcmp_ordered(">", x, self._real(high)), self._real(high), x)

    def _power(self, exponent: ir.Value) -> ir.Value:
        b = self.builder
        bits = b.shl(b.add(exponent, self._integer(127)), self._integer(23))
        return b.bitcast(bits, self._type(_FLOAT))

    def _signed(self, size: ir.Value, sign: ir.Value) -> ir.Value:
        return self._intrinsic("copysign", size, sign)

    def _fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        return self._intrinsic("fma", a, b, c)

    def _intrinsic(self, name: str, *operands: ir.Value) -> ir.Value:
        return call_like(self.builder, name, *operands)

    def _type(self, element: ir.Type) -> ir.Type:
        return with_lanes(element, self.lanes)

    def _real(self, value: float) -> ir.Constant:
        return number(_to_float32(value), _FLOAT, self.lanes)

    def _integer(self, value: int) -> ir.Constant:
        return number(value, _INT, self.lanes)


def call_like(builder: ir.IRBuilder, name: str, *operands: ir.Value) -> ir.Value:
    """Call LLVM's intrinsic `name`, overloaded on the one type of operands and result."""
    kind = operands[0].type
    function = declare_intrinsic(
        builder.module, f"llvm.{name}.{suffix(kind)}", kind, (kind,) * len(operands)
    )
    return builder.call(function, operands)


def _to_float32(value: float) -> float:
    (rounded,) = struct.unpack("f", struct.pack("f", value))
    return float(rounded)
