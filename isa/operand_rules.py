"""Rules for the operands of one instruction that its field widths do not already enforce."""

from typing_extensions import assert_never

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import ProgramError
from tilewright.isa.instructions import (
    TOKEN_CHANNELS,
    AnyInstruction,
    Finish,
    Gemm,
    Load,
    Store,
    Vector,
    VectorTarget,
)
from tilewright.isa.memories import Engine, Memory, memory_shape


def check_operands(instruction: AnyInstruction, config: AcceleratorConfig) -> None:
    """Check an instruction whose values fit their fields.

    Raises `ProgramError` that names the operand, not the instruction.
    """
    _check_tokens(instruction)
    match instruction:
        case Load():
            _check_load(instruction, config)
        case Vector():
            _check_vector(instruction)
        case Gemm() | Store() | Finish():
            pass
        case _:
            assert_never(instruction)


def _check_tokens(instruction: AnyInstruction) -> None:
    own = instruction.engine
    if own is None:
        if instruction.wait or instruction.signal:
            raise ProgramError("wait and signal must be 0, no token channel ends here")
        return
    for other in Engine:
        if instruction.wait >> other & 1 and (other, own) not in TOKEN_CHANNELS:
            raise ProgramError(f"wait names {other.name.lower()}, which gives it no tokens")
        if instruction.signal >> other & 1 and (own, other) not in TOKEN_CHANNELS:
            raise ProgramError(f"signal names {other.name.lower()}, which takes no tokens from it")


def _check_load(load: Load, config: AcceleratorConfig) -> None:
    if Engine.LOAD not in memory_shape(load.memory, config).writers:
        loadable = [
            memory.name for memory in Memory if Engine.LOAD in memory_shape(memory, config).writers
        ]
        raise ProgramError(f"memory must be one of {', '.join(loadable)}, not {load.memory.name}")
    if not load.written_entries:
        raise ProgramError("entries, pad_left and pad_right are 0, so nothing is written")
    padding = load.pad_left | load.pad_right | load.pad_top | load.pad_bottom
    if load.memory is Memory.LUT and padding:
        raise ProgramError("a look-up table takes no padding, which is written in one cycle")


def _check_vector(vector: Vector) -> None:
    if vector.low > vector.high:
        raise ProgramError(f"low must not exceed high, but {vector.low} > {vector.high}")
    if vector.lookup and vector.target is VectorTarget.ACC and not vector.requantise:
        raise ProgramError("lookup needs an 8-bit result: requantise, or target OUT")
