"""What an instruction reads and writes: entries of scratchpads and bytes of DRAM, exactly."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import assert_never

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import Values
from tilewright.isa.errors import ProgramError
from tilewright.isa.index_sets import Indices, indices_of, mask_of, sweep
from tilewright.isa.instructions import (
    ADDRESS_BITS,
    AnyInstruction,
    Finish,
    Gemm,
    Load,
    Store,
    Vector,
    VectorOperation,
    VectorTarget,
)
from tilewright.isa.memories import Memory, memory_shape
from tilewright.isa.vector_runs import parameter_mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EntrySet:
    """Entries of one scratchpad, ascending and each once."""

    memory: Memory
    entries: Indices


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ByteRanges:
    """Ranges of DRAM of equal length, in the order of access; adjoining rows are one range."""

    #: First byte of each range.
    starts: Indices
    #: Length of every range.
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accesses:
    """Everything that one instruction reads and writes."""

    reads: tuple[EntrySet, ...] = ()
    writes: tuple[EntrySet, ...] = ()
    dram_reads: ByteRanges | None = None
    dram_writes: ByteRanges | None = None


def accesses(
    instruction: AnyInstruction, config: AcceleratorConfig, uops: Values | None = None
) -> Accesses:
    """List what an instruction reads and writes.

    Indices are sums modulo two to the width of the operand they come from.

    Parameters
    ----------
    instruction
        Its operands fit their fields and its extents are at least 1.
    config
        The machine.
    uops
        For `Gemm` and `Vector` their micro-ops, shape (uop_count, 3) as `decode_uops` gives them.

    Raises
    ------
    ProgramError
        If an entry does not exist; names the operand, not the instruction.
    """
    match instruction:
        case Load():
            return _load_accesses(instruction, config)
        case Store():
            return _store_accesses(instruction, config)
        case Gemm():
            assert uops is not None, "a gemm is nothing without its micro-ops"
            return _gemm_accesses(instruction, config, uops)
        case Vector():
            assert uops is not None, "a vector instruction is nothing without its micro-ops"
            return _vector_accesses(instruction, config, uops)
        case Finish():
            return Accesses()
        case _:
            assert_never(instruction)


def uop_entries(instruction: Gemm | Vector, config: AcceleratorConfig) -> EntrySet:
    """List the entries of `guop` or `vuop` that hold the micro-ops of an instruction."""
    memory = Memory.GUOP if isinstance(instruction, Gemm) else Memory.VUOP
    return _consecutive(
        memory, instruction.uop_begin, instruction.uop_count, "uop_begin + uop_count", config
    )


def _load_accesses(load: Load, config: AcceleratorConfig) -> Accesses:
    written = _consecutive(load.memory, load.dst, load.written_entries, "dst", config)
    entry_bytes = memory_shape(load.memory, config).entry_bytes
    return Accesses(
        writes=(written,), dram_reads=_rows(load, entry_bytes) if load.entries else None
    )


def _store_accesses(store: Store, config: AcceleratorConfig) -> Accesses:
    count = store.entries * store.rows * store.planes
    entry_bytes = memory_shape(Memory.OUT, config).entry_bytes
    return Accesses(
        reads=(_consecutive(Memory.OUT, store.src, count, "src", config),),
        dram_writes=_rows(store, entry_bytes),
    )


def _gemm_accesses(gemm: Gemm, config: AcceleratorConfig, uops: Values) -> Accesses:
    loops = gemm.loops
    dst = _swept(uops[:, 0], gemm.dst, [(x.extent, x.dst) for x in loops], config.acc_index_bits)
    src = _swept(uops[:, 1], gemm.src, [(x.extent, x.src) for x in loops], config.inp_index_bits)
    wgt = _swept(uops[:, 2], gemm.wgt, [(x.extent, x.wgt) for x in loops], config.wgt_index_bits)
    acc = _entries(Memory.ACC, dst, "dst", config)
    operands = (
        uop_entries(gemm, config),
        _entries(Memory.INP, src, "src", config),
        _entries(Memory.WGT, wgt, "wgt", config),
    )
    return Accesses(reads=(*operands, acc) if gemm.accumulate else operands, writes=(acc,))


def _vector_accesses(vector: Vector, config: AcceleratorConfig, uops: Values) -> Accesses:
    loops = vector.loops
    dst = _swept(
        uops[:, 0], vector.dst, [(x.extent, x.dst) for x in loops], config.result_index_bits
    )
    src = _swept(uops[:, 1], vector.src, [(x.extent, x.src) for x in loops], config.operand_bits)
    reads = [uop_entries(vector, config)]
    reads += _operand_entries(src, config)
    if vector.operation is VectorOperation.MAC:
        coef = _swept(
            uops[:, 2], vector.coef, [(x.extent, x.coef) for x in loops], config.coef_index_bits
        )
        reads.append(_entries(Memory.COEF, coef, "coef", config))
    if vector.requantise:
        reads.append(_entries(Memory.PRM, parameter_mask(vector, uops, config), "prm", config))
    if vector.lookup:
        reads.append(_entries(Memory.LUT, 1 << vector.lut, "lut", config))
    return Accesses(
        reads=tuple(reads), writes=(_entries(target_memory(vector.target), dst, "dst", config),)
    )


def target_memory(target: VectorTarget) -> Memory:
    """Scratchpad that a vector instruction with this target writes."""
    match target:
        case VectorTarget.OUT:
            return Memory.OUT
        case VectorTarget.ACC:
            return Memory.ACC
        case _:
            assert_never(target)


def _operand_entries(mask: int, config: AcceleratorConfig) -> Iterable[EntrySet]:
    base = config.acc_operand_base
    for memory, part in ((Memory.VEC, mask & ((1 << base) - 1)), (Memory.ACC, mask >> base)):
        if part:
            yield _entries(memory, part, "src", config)


def _swept(uops: Indices, base: int, loops: Sequence[tuple[int, int]], bits: int) -> int:
    return sweep(mask_of((uops + base) % (1 << bits), bits), loops, bits)


def _entries(memory: Memory, mask: int, operand: str, config: AcceleratorConfig) -> EntrySet:
    _check_last(memory, mask.bit_length() - 1, operand, config)
    return EntrySet(memory=memory, entries=indices_of(mask))


def _consecutive(
    memory: Memory, first: int, count: int, operand: str, config: AcceleratorConfig
) -> EntrySet:
    _check_last(memory, first + count - 1, operand, config)
    return EntrySet(memory=memory, entries=np.arange(first, first + count))


def _check_last(memory: Memory, last: int, operand: str, config: AcceleratorConfig) -> None:
    entries = memory_shape(memory, config).entries
    if last >= entries:
        raise ProgramError(
            f"{operand} reaches entry {last} of {memory.name.lower()}, which has {entries} entries"
        )


def _rows(transfer: Load | Store, entry_bytes: int) -> ByteRanges:
    size = transfer.entries * entry_bytes
    rows, planes = transfer.rows, transfer.planes
    if transfer.address + size * rows * planes <= 1 << ADDRESS_BITS:
        if rows > 1 and transfer.row_stride == size:
            size, rows = size * rows, 1
        if planes > 1 and rows == 1 and transfer.plane_stride == size:
            size, planes = size * planes, 1
    starts = (
        transfer.address
        + np.arange(planes)[:, np.newaxis] * transfer.plane_stride
        + np.arange(rows) * transfer.row_stride
    )
    return ByteRanges(starts=starts.ravel() % (1 << ADDRESS_BITS), size_bytes=size)
