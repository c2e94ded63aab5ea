"""Conversions between float32 and bfloat16, whose numbers are kept in registers as their bits."""

from llvmlite import ir

from tilewright.cpu_gpu_backends.codegen.target import CpuTarget
from tilewright.cpu_gpu_backends.codegen.types import HalfType, lanes_of, number, with_lanes

_WORD, _BITS = ir.IntType(32), ir.IntType(16)
#: What the lower half of a word lacks to carry over: half a place, less the tie.
_ALMOST_HALF = 0x7FFF
_QUIET = 0x40


def from_half(builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """Return the float32 numbers whose upper halves are given."""
    lanes = lanes_of(bits)
    words = builder.zext(bits, with_lanes(_WORD, lanes))
    shifted = builder.shl(words, number(16, _WORD, lanes))
    return builder.bitcast(shifted, with_lanes(ir.FloatType(), lanes))


def to_half(builder: ir.IRBuilder, target: CpuTarget, value: ir.Value) -> ir.Value:
    """Return the bits of float32 numbers rounded to bfloat16, half to even.

    The instruction for it takes subnormal numbers for 0.
    """
    lanes = lanes_of(value)
    if target.multiplies_halves:
        rounded = builder.fptrunc(value, with_lanes(HalfType(), lanes))
        return builder.bitcast(rounded, with_lanes(_BITS, lanes))
    words = builder.bitcast(value, with_lanes(_WORD, lanes))
    upper = builder.lshr(words, number(16, _WORD, lanes))
    odd = builder.and_(upper, number(1, _WORD, lanes))
    carried = builder.add(builder.add(words, number(_ALMOST_HALF, _WORD, lanes)), odd)
    nearest = builder.lshr(carried, number(16, _WORD, lanes))
    quiet = builder.or_(upper, number(_QUIET, _WORD, lanes))
    unordered = builder.fcmp_unordered("uno", value, value)
    return builder.trunc(builder.select(unordered, quiet, nearest), with_lanes(_BITS, lanes))
