"""Operators between real numbers and their quantised forms; the host computes them."""

from dataclasses import dataclass

from tilewright.compiler.operators.datatype import DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantize:
    """``clip(round_half_even(x / scale) + zero_point)`` in float32.

    Input: float32, any shape. Output: `dtype` (int8 or uint8) of that shape.
    """

    scale: float
    zero_point: int
    dtype: DataType = DataType.INT8


@dataclass(frozen=True, slots=True, kw_only=True)
class Dequantize:
    """``(x - zero_point) * scale`` in float32. Input: int8 or uint8. Output: float32."""

    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DequantizeWeights:
    """Dequantisation of a constant, per tensor or per channel along `axis`.

    Inputs, all constant: values (int8, uint8 or int32); scale float32 ``[n]``; zero point int32
    ``[n]``, ``n`` being 1 or the length of `axis`. Output: float32. Not in the integer graph.
    """

    axis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reinterpret:
    """uint8 to int8 or back with the zero point moved by 128: ``x ^ 0x80`` on the bytes."""

    dtype: DataType
