"""Assembler and disassembler are inverses; errors name line and token."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isa_programs import HEADER, LEGAL, program_of
from isa_strategies import configs, instructions

from tilewright.isa.assembly import assemble, disassemble
from tilewright.isa.assembly_line import format_instruction, parse_instruction
from tilewright.isa.errors import ProgramError
from tilewright.isa.instructions import (
    Finish,
    Gemm,
    GemmLoop,
    Load,
    Vector,
    VectorOperation,
    VectorTarget,
)
from tilewright.isa.memories import Engine, Memory
from tilewright.isa.presets import PRESETS
from tilewright.isa.program import (
    Buffer,
    BufferRole,
    Program,
    Segment,
    code_alignment_bytes,
)

TINY = PRESETS["tiny"]


@given(st.data())
@settings(max_examples=200)
def test_parsing_inverts_formatting(data: st.DataObject) -> None:
    config = data.draw(configs())
    instruction = data.draw(instructions(config))
    line = format_instruction(instruction)
    assert "\n" not in line
    assert parse_instruction(line, config) == instruction


@given(st.data())
@settings(max_examples=100)
def test_assembling_inverts_disassembling(data: st.DataObject) -> None:
    config = data.draw(configs()).replace(
        name=data.draw(st.text(max_size=8)), **{"dram.size_bytes": 1 << 32}
    )
    listed = tuple(data.draw(st.lists(instructions(config), max_size=6)))
    layers = tuple(data.draw(st.lists(st.text(max_size=4), max_size=3)))
    layer = st.integers(-1, len(layers) - 1)
    count = data.draw(st.sampled_from([0, len(listed)]))
    data_ = st.binary(max_size=100) | st.builds(bytes, st.integers(0, 200))
    alignment = code_alignment_bytes(config)
    program = Program(
        config=config,
        instructions=listed,
        code_address=alignment * data.draw(st.integers(0, 9)),
        constants=(
            Segment(address=1 << 30, data=data.draw(data_)),
            Segment(address=(1 << 30) + 200, data=data.draw(data_)),
        ),
        buffers=(
            Buffer(
                name=data.draw(st.text(max_size=6)),
                address=1 << 29,
                size_bytes=data.draw(st.integers(0, 1000)),
                role=data.draw(st.sampled_from(BufferRole)),
            ),
        ),
        dram_bytes=1 << 31,
        layers=layers,
        layer_of_instruction=tuple(data.draw(st.lists(layer, min_size=count, max_size=count))),
    )
    assert assemble(disassemble(program)) == program


def test_a_hand_written_program() -> None:
    program = assemble(HEADER + LEGAL)
    assert program.config == TINY
    assert program.dram_bytes == 0x4000
    assert program.code_address == 0x3000
    assert program.instructions[0] == Load(memory=Memory.GUOP, dst=0, address=0x1000, entries=2)
    assert program.instructions[5] == Gemm(
        loops=(GemmLoop(), GemmLoop(), GemmLoop(extent=8, dst=1, src=1)),
        wait=1 << Engine.LOAD,
        signal=1 << Engine.VECTOR,
    )
    assert program.instructions[-1] == Finish()
    words = [int.from_bytes(program.constants[0].data[i : i + 8], "little") for i in (0, 8, 24)]
    assert words == [0, 1 << TINY.acc_index_bits, 1]


def test_a_listing_shows_micro_ops_and_names_the_rest() -> None:
    program = replace(program_of(), layers=("first; layer",), layer_of_instruction=(*[-1] * 9, 0))
    lines = disassemble(program, data=False).splitlines()
    begin = lines.index(".constant 0x1000  ; 352 bytes")
    assert lines[begin + 1 : begin + 8] == [
        ".gemm_uop",
        ".gemm_uop src=1",
        ".vector_uop",
        ".vector_uop dst=1",
        "; 320 bytes of data",
        '.layers "first; layer"',
        ".layer none",
    ]
    assert lines[-4:] == [
        "store src=0 address=0x2800 entries=8 wait=vector signal=load",
        "load memory=vec dst=0 address=0x2800 entries=8 wait=store",
        ".layer 0  ; 'first; layer'",
        "finish",
    ]


@pytest.mark.parametrize(
    ("instruction", "line"),
    [
        (Finish(), "finish"),
        (
            Load(memory=Memory.INP, dst=3, entries=0, address=0x1000, pad_value=-7, signal=0b0110),
            "load memory=inp dst=3 address=0x1000 entries=0 pad_value=-7 signal=gemm,vector",
        ),
        (
            Gemm(accumulate=True, loops=(GemmLoop(extent=2), GemmLoop(), GemmLoop(wgt=1))),
            "gemm accumulate loop(extent=2) loop() loop(wgt=1)",
        ),
        (
            Vector(operation=VectorOperation.MAX, target=VectorTarget.ACC, low=0, wait=0b1001),
            "vector operation=max target=acc low=0 wait=load,store",
        ),
    ],
)
def test_lines(instruction: Load | Gemm | Vector | Finish, line: str) -> None:
    assert format_instruction(instruction) == line


def test_spelling_is_free() -> None:
    assert parse_instruction(
        '  gemm\tsignal=vector,load loop( extent=0b11,src=0x2 dst=1 ) accumulate=true ; "(', TINY
    ) == Gemm(
        accumulate=True,
        signal=0b0101,
        loops=(GemmLoop(), GemmLoop(), GemmLoop(extent=3, src=2, dst=1)),
    )


def test_the_machine_may_be_given() -> None:
    text = ".dram_bytes 4096\n.code 0\nfinish"
    assert assemble(text, TINY).config == TINY
    with pytest.raises(ProgramError) as caught:
        assemble(text)
    assert str(caught.value) == (
        "line 3: a program must name its machine first, .preset or .config"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lod dst=1", "'lod' is no instruction"),
        ("load memory=inp dst=256 entries=1", "'dst=256': dst must be an integer from 0 to 255"),
        ("load memory=inp dst=a entries=1", "'dst=a': dst must be an integer from 0 to 255"),
        ("load memory=inp dst= entries=1", "'dst=': dst must be an integer from 0 to 255"),
        ("load dst=0 entries=1", "load must have the operand memory"),
        (
            "load memory=ram dst=0 entries=1",
            (
                "'memory=ram': the value must be one of inp, wgt, vec, coef, prm, guop, vuop, lut,"
                " acc, out"
            ),
        ),
        ("gemm dts=4", "'dts=4': gemm has no such operand"),
        ("gemm loops=4", "'loops=4': gemm has no such operand"),
        ("gemm dst(4)", "'dst(4)': gemm has no such operand"),
        ("gemm dst=4 dst=4", "'dst=4': dst is given twice"),
        ("gemm loop(extent=0)", "'extent=0': extent must be an integer from 1 to 4095"),
        ("gemm loop(prm=0)", "'prm=0': gemm has no such operand"),
        ("gemm loop() loop() loop() loop(src=1)", "'loop(src=1)': gemm has at most 3 loops"),
        ("gemm wait=lod", "'wait=lod': the value must be one of load, gemm, vector, store"),
        ("gemm wait=", "'wait=': the value must be one of load, gemm, vector, store"),
        ("gemm accumulate=2", "'accumulate=2': the value must be one of true, false"),
        ("gemm loop(", "a bracket or quote is not closed or not opened: 'gemm loop('"),
        ("gemm )", "a bracket or quote is not closed or not opened: 'gemm )'"),
        (".text", "'.text' is no directive"),
        (".code", "the directive must have 1 argument, not 0"),
        (".code x", "'x' must be an integer from 0 to 4294967296"),
        (".preset pinq", "'pinq': there is no such preset, only vta, pynq, ultra96, ecp5, tiny"),
        (".config batch", "'batch' must be of the form name=value"),
        (".config batch=x", "'x' must be a JSON value, for batch"),
        (".bytes 00", "data must follow the directive .constant"),
        (".layer 0", "'0' must be an integer from 0 to -1"),
        (".layers conv", "'conv' must be a JSON value, for a name"),
        (".layers 5", "'5' must be a name in double quotes"),
        (
            '.buffer "x" address=1',
            "a buffer must have address, size_bytes and role (input, output, scratch)",
        ),
    ],
)
def test_errors_name_line_and_token(line: str, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        assemble(f".preset tiny\n\n{line}\nfinish")
    assert str(caught.value) == f"line 3: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".preset tiny\nfinish", "a program must have the directive .dram_bytes"),
        (".preset tiny\n.dram_bytes 64\nfinish", "a program must have the directive .code"),
        (
            ".preset tiny\nfinish\n.config batch=2",
            "line 3: the machine must be named before what depends on it",
        ),
        (
            ".preset tiny\n.config block=2\nfinish",
            "line 3: a configuration has no field 'block'",
        ),
        (
            ".preset tiny\n.constant 0\n.bytes 1",
            "line 3: '1' must be hexadecimal digits, two a byte",
        ),
        (
            ".preset tiny\n.constant 0\n.zeros 99999999999",
            "line 3: '99999999999' must be an integer from 0 to 16777216",
        ),
        (
            ".preset tiny\n.constant 0\n.int32 4294967296",
            "line 3: '4294967296' must be an integer from -2147483648 to 4294967295",
        ),
        (
            ".preset tiny\n.constant 0\n.gemm_uop coef=1",
            "line 3: 'coef=1': .gemm_uop has no such operand",
        ),
    ],
)
def test_errors_of_whole_programs(text: str, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        assemble(text)
    assert str(caught.value) == message


def test_mutated_texts_are_read_or_refused() -> None:
    text = disassemble(program_of())
    rng = random.Random(3)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(600):
        at = rng.randrange(len(text))
        size = rng.choice([0, 1, 3, 20])
        changed = (
            text[:at]
            + rng.choice(["", " ", "9", "=", "(", '"', ";", "\n", "é"])
            + text[at + size :]
        )
        try:
            program = assemble(changed)
        except ProgramError:
            outcomes["refused"] += 1
        else:
            assert assemble(disassemble(program)) == program
            outcomes["read"] += 1
    assert min(outcomes.values()) > 20, outcomes
