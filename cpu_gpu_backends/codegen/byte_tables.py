"""Look-up of bytes in a table of 256: two permutations of AVX-512 VBMI, each of half the table."""

from llvmlite import ir

from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.codegen.types import BYTE, declare_intrinsic, index, lanes_of

TABLE_ENTRIES = 256
#: Bytes of a register; an instruction looks up each of them in two registers.
_LANES = 64
_VECTOR = ir.VectorType(BYTE, _LANES)
_POSITION = ir.IntType(32)


def is_byte_table(tensor: Tensor) -> bool:
    """Whether a tensor is one that can be looked up in."""
    return tensor.dtype is ScalarType.UINT8 and tensor.shape == (TABLE_ENTRIES,)


def emit_byte_lookup(builder: ir.IRBuilder, table: ir.Value, positions: ir.Value) -> ir.Value:
    """Return the entries at `positions`, from 0 to 255, at most 64 of them."""
    lanes = lanes_of(positions)
    low = builder.trunc(positions, ir.VectorType(BYTE, lanes))
    wide = low if lanes == _LANES else _resized(builder, low, _LANES)
    parts = [
        builder.load(
            builder.gep(table, [index(part * _LANES)], source_etype=BYTE), typ=_VECTOR, align=1
        )
        for part in range(TABLE_ENTRIES // _LANES)
    ]
    function = declare_intrinsic(
        builder.module, "llvm.x86.avx512.vpermi2var.qi.512", _VECTOR, (_VECTOR, _VECTOR, _VECTOR)
    )
    lower, upper = (builder.call(function, (parts[half], wide, parts[half + 1])) for half in (0, 2))
    negative = builder.icmp_signed("<", wide, ir.Constant(_VECTOR, None))
    found = builder.select(negative, upper, lower)
    return found if lanes == _LANES else _resized(builder, found, lanes)


def _resized(builder: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    """Return the first lanes of a vector, or all with others, whatever they hold, behind them."""
    last = lanes_of(value) - 1
    chosen = [min(lane, last) for lane in range(lanes)]
    mask = ir.Constant(ir.VectorType(_POSITION, lanes), chosen)
    return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), mask)
