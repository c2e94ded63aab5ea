"""Whole numbers whose byte can be read off a float32: how requantised values become bytes.

From 2**23 to 2**24 the last place of a float32 is 1, so that its bits are the number plus a
multiple of 256, and ``uint8(int32(x - m))`` is the low byte of ``bits(x) - m`` for any whole m.
"""

from tilewright.compiler.tensor.expressions import Binary, Cast, Const, Expr
from tilewright.compiler.tensor.operations import Operator
from tilewright.compiler.tensor.scalar_types import ScalarType

_LOW, _HIGH = 2.0**23, 2.0**24 - 1


def rounded_byte(expr: Cast) -> tuple[Expr, int] | None:
    """Return ``(x, m)`` of ``uint8(int32(min(max(y, low), high) - m))``, if x's byte is as said.

    The limits must lie between 2**23 and 2**24, and what is limited must be whole there, as any
    float32 number is.
    """
    match expr:
        case Cast(
            Cast(
                Binary(
                    Operator.SUBTRACT,
                    Binary(
                        Operator.MINIMUM,
                        Binary(Operator.MAXIMUM, _, Const(float(low))),
                        Const(float(high)),
                    ) as limited,
                    Const(float(offset)),
                ),
                ScalarType.INT32,
            ),
            ScalarType.UINT8,
        ) if limited.dtype is ScalarType.FLOAT32:
            inside = _LOW <= low <= high <= _HIGH
            whole = low.is_integer() and high.is_integer() and offset.is_integer()
            return (limited, int(offset)) if inside and whole else None
        case _:
            return None
