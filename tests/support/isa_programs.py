"""A small hand-written program that keeps every rule, and edits of its text."""

import pytest

from tilewright.isa.assembly import assemble
from tilewright.isa.errors import ProgramError
from tilewright.isa.program import Program
from tilewright.isa.validator import validate

HEADER = """
.preset tiny
.dram_bytes 0x4000
.code 0x3000
.constant 0x1000
.gemm_uop
.gemm_uop src=1
.vector_uop
.vector_uop dst=1
.zeros 32
.int32 0 0x17800000 0 0x17800000 0 0x17800000 0 0x17800000
.zeros 256
"""

#: Loads (0 to 4), multiplies (5), requantises (6), stores (7), and loads what it stored (8).
LEGAL = """
load memory=guop dst=0 address=0x1000 entries=2
load memory=vuop dst=0 address=0x1010 entries=2
load memory=prm dst=0 address=0x1040 entries=1
load memory=wgt dst=0 address=0x1060 entries=1 signal=vector
load memory=inp dst=0 address=0x2000 entries=8 signal=gemm
gemm loop(extent=8, dst=1, src=1) wait=load signal=vector
vector operation=sum requantise src=256 loop(extent=8, dst=1, src=1) wait=load,gemm signal=store
store src=0 address=0x2800 entries=8 wait=vector signal=load
load memory=vec dst=0 address=0x2800 entries=8 wait=store
finish
"""


def program_of(*edits: tuple[str, str]) -> Program:
    """The legal program with some pieces of its text replaced."""
    text = HEADER + LEGAL
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} must occur once"
        text = text.replace(old, new)
    return assemble(text)


LOAD_INP = "load memory=inp dst=0 address=0x2000 entries=8"
GEMM = "gemm loop(extent=8, dst=1, src=1)"
VECTOR = "vector operation=sum requantise src=256 loop(extent=8, dst=1, src=1)"
STORE = "store src=0 address=0x2800 entries=8"
LOAD_VEC = "load memory=vec dst=0 address=0x2800 entries=8"
MULTIPLIER = ".int32 0 0x17800000 0 0x17800000"


def with_config(text: str, **changes: int) -> Program:
    """A hand-written program on `tiny` with some fields changed."""
    settings = " ".join(f"{name}={value}" for name, value in changes.items())
    return assemble(HEADER.replace(".preset tiny", f".preset tiny\n.config {settings}") + text)


def refusal_of(*edits: tuple[str, str]) -> str:
    """What the validator says of the program with some pieces of its text replaced."""
    with pytest.raises(ProgramError) as caught:
        validate(program_of(*edits))
    return str(caught.value)
