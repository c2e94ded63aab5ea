"""Proof that a program, however it was made, keeps every rule of the machine under any timing."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from typing_extensions import assert_never

from tilewright.isa.accesses import Accesses, ByteRanges, accesses, uop_entries
from tilewright.isa.data_rules import LoadedUops, StaticData, check_parameters
from tilewright.isa.encoding import encode_program
from tilewright.isa.errors import ProgramError
from tilewright.isa.happens_before import (
    HappensBefore,
    check_tokens,
    engine_positions,
    happens_before,
)
from tilewright.isa.hazards import DramHazards, ScratchpadHazards, alignment_bytes
from tilewright.isa.instructions import (
    AnyInstruction,
    Finish,
    Gemm,
    Load,
    Store,
    Vector,
    VectorTarget,
    instruction_name,
)
from tilewright.isa.memories import Engine, Memory
from tilewright.isa.operand_rules import check_operands
from tilewright.isa.program import Program
from tilewright.isa.vector_runs import read_after_own_write


def validate(program: Program) -> None:
    """Refuse a program that breaks a rule of the machine.

    What a program computes must not depend on how long anything takes: every access is ordered
    after those it conflicts with by the tokens and queues alone (`happens_before`).

    Raises
    ------
    ProgramError
        Names the instruction at fault, by its positions in the program and in its engine, and the
        rule.
    DeadlockError
        If not every instruction can start; says what each engine waits for.
    """
    encode_program(program.instructions, program.config)
    for position, name in enumerate(_names(program.instructions)):
        with _prefixed(name):
            check_operands(program.instructions[position], program.config)
    _check_finish(program.instructions)
    order = happens_before(program.instructions, program.config)
    check_tokens(order, program.config)
    _DataFlow(program, order).check()


def _names(instructions: tuple[AnyInstruction, ...]) -> Iterator[str]:
    for position, engine_position in enumerate(engine_positions(instructions)):
        yield instruction_name(instructions[position].opcode, position, engine_position)


@contextmanager
def _prefixed(name: str) -> Iterator[None]:
    """Put the name of an instruction before the reason."""
    try:
        yield
    except ProgramError as error:
        raise ProgramError(f"{name}: {error}", hint=error.hint) from None


def _check_finish(instructions: tuple[AnyInstruction, ...]) -> None:
    where = [i for i, item in enumerate(instructions) if isinstance(item, Finish)]
    if not where:
        raise ProgramError("the program must end with finish")
    if where[0] != len(instructions) - 1:
        name = instruction_name(Finish.opcode, where[0], 0)
        raise ProgramError(f"{name}: finish must be the last instruction, and the only one")


class _DataFlow:
    """Follows what the instructions read and write, in an order that agrees with the guaranteed."""

    def __init__(self, program: Program, order: HappensBefore) -> None:
        self._program = program
        self._config = program.config
        self._order = order
        self._static = StaticData(program)
        self._scratchpads = ScratchpadHazards(program.config, order)
        self._dram = DramHazards(self._stored(), program.config, order)
        self._gemm_uops = LoadedUops(Memory.GUOP, program.config)
        self._vector_uops = LoadedUops(Memory.VUOP, program.config)

    def check(self) -> None:
        for position in self._order.sequence:
            with _prefixed(self._order.name(position)):
                self._check_instruction(position, self._program.instructions[position])

    def _stored(self) -> list[ByteRanges]:
        """List what the program stores; no byte of it may belong to the constants or the code."""
        result = []
        for position in self._order.of_engine[Engine.STORE]:
            with _prefixed(self._order.name(position)):
                ranges = accesses(self._program.instructions[position], self._config).dram_writes
                assert ranges is not None, "a store writes DRAM"
                self._check_ranges(ranges, Memory.OUT)
                address = self._static.overlap(ranges)
                if address is not None:
                    raise ProgramError(
                        f"writes DRAM byte {address:#x}, which belongs to the program's constants"
                        f" or code"
                    )
                result.append(ranges)
        return result

    def _check_instruction(self, position: int, instruction: AnyInstruction) -> None:
        match instruction:
            case Load():
                self._check_load(position, instruction)
            case Gemm():
                uops = self._gemm_uops.of(uop_entries(instruction, self._config))
                self._apply(position, Engine.GEMM, accesses(instruction, self._config, uops))
            case Vector():
                uops = self._vector_uops.of(uop_entries(instruction, self._config))
                found = accesses(instruction, self._config, uops)
                if _may_read_own_result(instruction, found):
                    entry = read_after_own_write(instruction, uops, self._config)
                    if entry is not None:
                        raise ProgramError(
                            f"reads entry {entry} of acc after an earlier run of the same"
                            f" instruction has written it"
                        )
                self._apply(position, Engine.VECTOR, found)
            case Store():
                self._apply(position, Engine.STORE, accesses(instruction, self._config))
            case Finish():
                pass
            case _:
                assert_never(instruction)

    def _check_load(self, position: int, load: Load) -> None:
        found = accesses(load, self._config)
        if found.dram_reads is not None:
            self._check_ranges(found.dram_reads, load.memory)
        self._apply(position, Engine.LOAD, found)
        (written,) = found.writes
        match load.memory:
            case Memory.GUOP:
                self._gemm_uops.load(written, self._static.loaded(load, found.dram_reads))
            case Memory.VUOP:
                self._vector_uops.load(written, self._static.loaded(load, found.dram_reads))
            case Memory.PRM:
                check_parameters(self._static.loaded(load, found.dram_reads))
            case _:
                pass

    def _apply(self, position: int, engine: Engine, found: Accesses) -> None:
        """Check all accesses of an instruction against those of the other engines."""
        for access in found.reads:
            self._scratchpads.read(position, engine, access)
        for access in found.writes:
            self._scratchpads.write(position, engine, access)
        for ranges in (found.dram_reads, found.dram_writes):
            if ranges is not None:
                self._dram.use(position, engine, ranges)

    def _check_ranges(self, ranges: ByteRanges, memory: Memory) -> None:
        """Check that ranges lie in DRAM and are aligned as rows of a scratchpad must be."""
        last = int(ranges.starts.max())
        if last + ranges.size_bytes > self._program.dram_bytes:
            raise ProgramError(
                f"accesses DRAM bytes {last:#x} to {last + ranges.size_bytes:#x}, beyond"
                f" dram_bytes ({self._program.dram_bytes:#x})"
            )
        alignment = alignment_bytes(memory, self._config)
        unaligned = np.flatnonzero(ranges.starts % alignment)
        if unaligned.size:
            raise ProgramError(
                f"accesses a row at DRAM byte {int(ranges.starts[unaligned[0]]):#x}, which is no"
                f" multiple of {alignment}"
            )


def _may_read_own_result(vector: Vector, found: Accesses) -> bool:
    if vector.target is VectorTarget.OUT:
        return False
    (written,) = found.writes
    return any(
        access.memory is Memory.ACC and np.isin(access.entries, written.entries).any()
        for access in found.reads
    )
