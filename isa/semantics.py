"""What each instruction does to the state of a machine: the definition of the instruction set."""

import numpy as np
from typing_extensions import assert_never

from tilewright.isa.errors import ProgramError
from tilewright.isa.instructions import (
    ADDRESS_BITS,
    AnyInstruction,
    Finish,
    Gemm,
    Load,
    Store,
    Vector,
)
from tilewright.isa.memories import Memory
from tilewright.isa.semantics_gemm import execute_gemm
from tilewright.isa.semantics_state import Bytes, MachineState, require_range
from tilewright.isa.semantics_vector import execute_vector

__all__ = ["MachineState", "execute"]

_ADDRESSES = 1 << ADDRESS_BITS


def execute(instruction: AnyInstruction, state: MachineState) -> None:
    """Apply one instruction to a state.

    Tokens have no part in this: they decide when, not what. The instruction is taken from a
    legal program; what lies outside the scratchpads or the memory raises `ProgramError`.
    """
    match instruction:
        case Load():
            _execute_load(instruction, state)
        case Gemm():
            execute_gemm(instruction, state)
        case Vector():
            execute_vector(instruction, state)
        case Store():
            _execute_store(instruction, state)
        case Finish():
            pass
        case _:
            assert_never(instruction)


def _execute_load(instruction: Load, state: MachineState) -> None:
    count = instruction.written_entries
    if count == 0:
        return
    memory, first = instruction.memory, instruction.dst
    data = state.bytes[memory]
    require_range("load writes", memory, first, first + count - 1, len(data))
    top, left = instruction.pad_top, instruction.pad_left
    rows, entries = instruction.rows, instruction.entries
    height = top + rows + instruction.pad_bottom
    written = data[first : first + count]
    if count > instruction.planes * rows * entries:
        written[:] = instruction.pad_value & 0xFF
    if rows and entries:
        planes = written.reshape(instruction.planes, height, -1)
        size = data.shape[1]
        inner = planes[:, top : top + rows, left * size : (left + entries) * size]
        for target, source in _rows(instruction, inner, state.dram):
            target[...] = source


def _execute_store(instruction: Store, state: MachineState) -> None:
    planes, rows, entries = instruction.planes, instruction.rows, instruction.entries
    data = state.bytes[Memory.OUT]
    first, count = instruction.src, planes * rows * entries
    require_range("store reads", Memory.OUT, first, first + count - 1, len(data))
    inner = data[first : first + count].reshape(planes, rows, -1)
    for source, target in _rows(instruction, inner, state.dram):
        target[...] = source


def _rows(instruction: Load | Store, inner: Bytes, dram: Bytes) -> list[tuple[Bytes, Bytes]]:
    """Pair the bytes of rows in a scratchpad, (planes, rows, bytes), with those in DRAM.

    One pair for all rows where their addresses neither wrap around nor overlap, else a pair per
    row in order.
    """
    planes, rows, size = inner.shape
    name = f"{instruction.opcode.name.lower()} accesses"
    row_stride, plane_stride = instruction.row_stride, instruction.plane_stride
    last = instruction.address + (planes - 1) * plane_stride + (rows - 1) * row_stride
    apart = (rows == 1 or row_stride >= size) and (
        planes == 1 or plane_stride >= (rows - 1) * row_stride + size
    )
    if last + size <= dram.size and (apart or isinstance(instruction, Load)):
        # An unused stride may be anything, and too large for a computer of 32 bits.
        strides = (plane_stride if planes > 1 else 0, row_stride if rows > 1 else 0, 1)
        return [(inner, np.ndarray(inner.shape, np.uint8, dram, instruction.address, strides))]
    pairs = []
    for plane in range(planes):
        for row in range(rows):
            begin = (instruction.address + plane * plane_stride + row * row_stride) % _ADDRESSES
            if begin + size > dram.size:
                raise ProgramError(
                    f"{name} bytes {begin} to {begin + size - 1} of DRAM, which has {dram.size}"
                )
            pairs.append((inner[plane, row], dram[begin : begin + size]))
    return pairs
