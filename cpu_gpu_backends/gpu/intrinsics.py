"""The intrinsics of GPUs, and loops in place of those that a GPU does not have."""

from dataclasses import replace
from enum import Enum

from typing_extensions import assert_never

from tilewright.compiler.tensor.expansion import expand
from tilewright.compiler.tensor.intrinsics import Intrinsic
from tilewright.compiler.tensor.statements import (
    Allocate,
    For,
    If,
    IntrinsicCall,
    Seq,
    Statement,
    Store,
    sequence,
)

#: The scope of tensors that are spread over the registers of a warp's threads.
FRAGMENT_SCOPE = "fragment"


#: What a warp multiplies at once: rows, columns, and bytes of a row of either operand (PTX ISA,
#: mma.m16n8k32 for int8 and mma.m16n8k16 for float16; on Turing several smaller instructions).
WARP_ROWS, WARP_COLUMNS, WARP_DEPTH_BYTES = 16, 8, 32


class Emitter(Enum):
    """What the dialects can write for an intrinsic; the value is `Intrinsic.emitter`."""

    #: Four products of int8 added to an int32.
    DOT4 = "gpu.dot4"
    #: A matrix product of a warp on its tensor core, and the way out of its fragments.
    MATRIX_MULTIPLY = "gpu.matrix_multiply"
    STORE_FRAGMENT = "gpu.store_fragment"


_EMITTERS = frozenset(emitter.value for emitter in Emitter)
_OF_A_WARP = frozenset({Emitter.MATRIX_MULTIPLY.value, Emitter.STORE_FRAGMENT.value})


def is_of_a_warp(intrinsic: Intrinsic) -> bool:
    """Whether all threads of a warp carry `intrinsic` out together."""
    return intrinsic.emitter in _OF_A_WARP


def written_out(statement: Statement) -> Statement:
    """Return `statement` with loops for every intrinsic that GPUs do not have."""
    match statement:
        case For() | If() | Allocate():
            return replace(statement, body=written_out(statement.body))
        case Seq():
            return sequence(*map(written_out, statement.statements))
        case IntrinsicCall():
            return statement if statement.intrinsic.emitter in _EMITTERS else expand(statement)
        case Store():
            return statement
        case _:
            assert_never(statement)
