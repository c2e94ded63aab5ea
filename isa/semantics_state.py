"""The state of a machine: the contents of its scratchpads and of the external memory."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.isa.config import AcceleratorConfig, index_bits
from tilewright.isa.encoding import layout
from tilewright.isa.errors import ProgramError
from tilewright.isa.instructions import AnyUop, GemmUop, VectorUop
from tilewright.isa.memo import memoize
from tilewright.isa.memories import LUT_LENGTH, Memory, memory_shape

Bytes: TypeAlias = npt.NDArray[np.uint8]
Indices: TypeAlias = npt.NDArray[np.intp]

#: Position and width of each field of a micro-op, in the order of its class.
UopFields: TypeAlias = tuple[tuple[int, int], ...]


class MachineState:
    """Scratchpads, zero at first, and DRAM of one machine; `execute` changes them.

    Each scratchpad is held once, as bytes; the typed arrays are views of them.

    Parameters
    ----------
    config
        The machine.
    dram
        uint8, one dimension, byte 0 first; changed in place by `Store`.
    """

    def __init__(self, config: AcceleratorConfig, dram: Bytes) -> None:
        if dram.dtype != np.uint8 or dram.ndim != 1:
            raise TypeError(
                f"dram must be a uint8 array of one dimension, not {dram.dtype} of {dram.ndim}"
            )
        if not dram.flags.c_contiguous:
            raise ValueError("dram must be contiguous")
        self.config = config
        self.dram = dram
        #: Bytes of each scratchpad, (entries, bytes of an entry).
        self.bytes: dict[Memory, Bytes] = {}
        for memory in Memory:
            shape = memory_shape(memory, config)
            self.bytes[memory] = np.zeros((shape.entries, shape.entry_bytes), np.uint8)
        batch, lanes = config.batch, config.block_out
        #: int8 (entries, batch, block_in).
        self.inp = self._view(Memory.INP, np.int8, batch, config.block_in)
        #: int8 (entries, block_out, block_in).
        self.wgt = self._view(Memory.WGT, np.int8, lanes, config.block_in)
        #: int8 (entries, batch, block_out).
        self.vec = self._view(Memory.VEC, np.int8, batch, lanes)
        #: int16 (entries, block_out).
        self.coef = self._view(Memory.COEF, "<i2", lanes)
        #: uint32 (entries, block_out, 2): bias, two's complement; multiplier and shift.
        self.prm = self._view(Memory.PRM, "<u4", lanes, 2)
        #: uint64 (entries,): encoded micro-ops of gemm.
        self.guop = self._view(Memory.GUOP, "<u8")
        #: uint64 (entries,): encoded micro-ops of vector.
        self.vuop = self._view(Memory.VUOP, "<u8")
        #: int8 (tables, 256).
        self.lut = self._view(Memory.LUT, np.int8, LUT_LENGTH)
        #: int32 (entries, batch, block_out).
        self.acc = self._view(Memory.ACC, "<i4", batch, lanes)
        #: int8 (entries, batch, block_out).
        self.out = self._view(Memory.OUT, np.int8, batch, lanes)
        self.gemm_uop_fields = uop_fields(GemmUop, config)
        self.vector_uop_fields = uop_fields(VectorUop, config)
        self.operand_bits = config.operand_bits
        self.acc_operand_base = config.acc_operand_base
        self.prm_index_bits = config.prm_index_bits
        self.result_index_bits = config.result_index_bits

    def _view(self, memory: Memory, dtype: npt.DTypeLike, *shape: int) -> npt.NDArray[Any]:
        data = self.bytes[memory]
        return data.view(dtype).reshape(len(data), *shape)


@memoize
def uop_fields(cls: type[AnyUop], config: AcceleratorConfig) -> UopFields:
    """Return position and width of the fields of a micro-op class."""
    return tuple((item.position, item.width) for item in layout(cls, config))


def require_range(what: str, memory: Memory, first: int, last: int, entries: int) -> None:
    """Raise `ProgramError` unless entries `first` to `last` exist in a scratchpad."""
    if not 0 <= first <= last < entries:
        bad = first if not 0 <= first < entries else last
        raise ProgramError(
            f"{what} entry {bad} of {memory.name.lower()}, which has {entries} entries"
        )


def shifted(
    state: MachineState,
    memory: Memory,
    table: Indices,
    top: int,
    base: int,
    *,
    what: str,
    bits: int | None = None,
) -> Indices:
    """Add a base to a table of indices into a scratchpad, modulo ``2**bits``.

    `top` is the largest index in the table; `bits` is the width of an index into the scratchpad
    unless given. Raises `ProgramError` where a result is no entry.
    """
    entries = len(state.bytes[memory])
    result = table + base
    if top + base >= entries:
        result &= (1 << (bits or index_bits(entries))) - 1
        require_range(what, memory, 0, int(result.max()), entries)
    return result
