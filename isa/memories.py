"""The scratchpads of the accelerator: what an entry holds, and which engine reads or writes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.memo import memoize


class Engine(IntEnum):
    """The units that execute instructions, each from a queue of its own."""

    LOAD = 0
    GEMM = 1
    VECTOR = 2
    STORE = 3


class Memory(IntEnum):
    """The scratchpads. The value is the operand of `Load`."""

    #: Activations for the array: batch x block_in int8.
    INP = 0
    #: Weights for the array: block_out x block_in int8.
    WGT = 1
    #: Activations for the vector engine: batch x block_out int8.
    VEC = 2
    #: Lane coefficients of the vector engine: block_out int16, little endian.
    COEF = 3
    #: Requantisation parameters: block_out x (bias int32, multiplier and shift in 32 bits).
    PRM = 4
    #: Micro-ops of the gemm engine.
    GUOP = 5
    #: Micro-ops of the vector engine.
    VUOP = 6
    #: Look-up tables: 256 int8 each, indexed by value + 128.
    LUT = 7
    #: Accumulators: batch x block_out int32, two banks.
    ACC = 8
    #: Results: batch x block_out int8.
    OUT = 9


#: Bytes of an encoded micro-op.
UOP_BYTES = 8
#: Bytes of the parameters of one channel: int32 bias; then 24 bits multiplier, 8 bits shift.
PRM_CHANNEL_BYTES = 8
#: Bytes of one accumulator.
ACC_BYTES = 4
#: Entries of a look-up table.
LUT_LENGTH = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryShape:
    """Depth, entry size and owners of one scratchpad."""

    #: Number of entries.
    entries: int
    #: Bytes of an entry, in the scratchpad and in DRAM.
    entry_bytes: int
    #: Number of banks of equal depth; within a bank only one engine may read and one may write
    #: at a time, and in `acc` only one engine may do either.
    banks: int
    #: Engines that read it.
    readers: tuple[Engine, ...]
    #: Engines that write it.
    writers: tuple[Engine, ...]


def memory_shape(memory: Memory, config: AcceleratorConfig) -> MemoryShape:
    """Describe one scratchpad of a configuration."""
    return memory_shapes(config)[memory]


@memoize
def memory_shapes(config: AcceleratorConfig) -> Mapping[Memory, MemoryShape]:
    """Describe every scratchpad of a configuration."""
    load, gemm, vector, store = Engine.LOAD, Engine.GEMM, Engine.VECTOR, Engine.STORE
    lane_bytes = config.lane_entry_bytes
    parameter_bytes = config.block_out * PRM_CHANNEL_BYTES
    return MappingProxyType(
        {
            Memory.INP: _shape(config.inp_entries, config.inp_entry_bytes, gemm, load),
            Memory.WGT: _shape(config.wgt_entries, config.wgt_entry_bytes, gemm, load),
            Memory.VEC: _shape(config.vec_entries, lane_bytes, vector, load),
            Memory.COEF: _shape(config.coef_entries, config.coef_entry_bytes, vector, load),
            Memory.PRM: _shape(config.prm_entries, parameter_bytes, vector, load),
            Memory.GUOP: _shape(config.gemm_uop_entries, UOP_BYTES, gemm, load),
            Memory.VUOP: _shape(config.vector_uop_entries, UOP_BYTES, vector, load),
            Memory.LUT: _shape(config.lut_tables, LUT_LENGTH, vector, load),
            Memory.ACC: MemoryShape(
                entries=config.acc_entries,
                entry_bytes=lane_bytes * ACC_BYTES,
                banks=2,
                readers=(gemm, vector),
                writers=(gemm, vector),
            ),
            Memory.OUT: _shape(config.out_entries, lane_bytes, store, vector),
        }
    )


def _shape(entries: int, entry_bytes: int, reader: Engine, writer: Engine) -> MemoryShape:
    return MemoryShape(
        entries=entries, entry_bytes=entry_bytes, banks=1, readers=(reader,), writers=(writer,)
    )
