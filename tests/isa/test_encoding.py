"""Encoder and decoder are inverses, agree with a bit-by-bit model, and refuse what does not fit."""

from typing import Any

import numpy as np
import pytest
from effort import growth
from hypothesis import given, settings
from hypothesis import strategies as st
from isa_strategies import configs, instructions, uops

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import (
    OPCODE_BITS,
    decode,
    decode_program,
    decode_uops,
    encode,
    encode_program,
    encode_uop,
    encode_uops,
    encoded_bits,
    instruction_bytes,
    layout,
)
from tilewright.isa.errors import ProgramError
from tilewright.isa.instructions import (
    INSTRUCTION_CLASSES,
    Finish,
    Gemm,
    GemmLoop,
    GemmUop,
    Load,
    Opcode,
    Store,
    Vector,
    VectorOperation,
    VectorUop,
)
from tilewright.isa.memories import UOP_BYTES, Memory, memory_shapes
from tilewright.isa.presets import PRESETS

PYNQ, TINY = PRESETS["pynq"], PRESETS["tiny"]


def bits_of(instance: Any, config: AcceleratorConfig) -> str:
    """The encoding written out as a string of bits, lowest first, from the dataclass alone."""
    text = ""
    for item in layout(type(instance), config):
        value = instance
        for key in item.field.path.split("."):
            value = value[int(key)] if key.isdigit() else getattr(value, key)
        width = item.field.operand.width(config)
        text += format(int(value) % (1 << width), f"0{width}b")[::-1]
    return text


@given(st.data())
@settings(max_examples=150)
def test_decoding_inverts_encoding(data: st.DataObject) -> None:
    config = data.draw(configs())
    program = data.draw(st.lists(instructions(config), min_size=1, max_size=6))
    code = encode_program(program, config)
    assert code.size == len(program) * instruction_bytes(config)
    assert decode_program(code, config) == tuple(program)
    assert decode(encode(program[0], config), config) == program[0]


@given(st.data())
@settings(max_examples=100)
def test_bits_follow_each_other_in_the_order_of_the_fields(data: st.DataObject) -> None:
    config = data.draw(configs())
    instruction = data.draw(instructions(config))
    number = int.from_bytes(encode(instruction, config), "little")
    text = bits_of(instruction, config)
    assert format(number, f"0{len(text)}b")[::-1] == text


@given(st.data())
@settings(max_examples=100)
def test_decoding_inverts_encoding_of_micro_ops(data: st.DataObject) -> None:
    config = data.draw(configs())
    uop = data.draw(uops(config))
    encoded = encode_uop(uop, config)
    text = bits_of(uop, config)
    assert len(encoded) == UOP_BYTES
    assert format(int.from_bytes(encoded, "little"), f"0{len(text)}b")[::-1] == text
    (values,) = decode_uops(type(uop), np.frombuffer(encoded, dtype=np.uint8), config).tolist()
    names = [item.field.path for item in layout(type(uop), config)]
    assert type(uop)(**dict(zip(names, values, strict=True))) == uop


def test_arrays_of_micro_ops(rng: np.random.Generator) -> None:
    values = rng.integers(0, 64, (5000, 3))
    encoded = encode_uops(VectorUop, values, TINY)
    assert encoded.shape == (5000, UOP_BYTES)
    one = VectorUop(**dict(zip(("dst", "src", "coef"), values[77].tolist(), strict=True)))
    assert encoded[77].tobytes() == encode_uop(one, TINY)
    np.testing.assert_array_equal(decode_uops(VectorUop, encoded, TINY), values)


@given(st.binary(min_size=32, max_size=32))
def test_what_decodes_encodes_to_the_same_bytes(data: bytes) -> None:
    try:
        instruction = decode(data, PYNQ)
    except ProgramError:
        return
    assert encode(instruction, PYNQ) == data


@given(configs())
def test_every_class_fits_the_instruction_and_no_smaller_power_of_two_would(
    config: AcceleratorConfig,
) -> None:
    size = instruction_bytes(config)
    longest = max(encoded_bits(cls, config) for cls in INSTRUCTION_CLASSES.values())
    assert size & (size - 1) == 0
    assert longest <= 8 * size
    assert size == 8 or longest > 4 * size
    assert max(encoded_bits(cls, config) for cls in (GemmUop, VectorUop)) <= 8 * UOP_BYTES


def test_tables_have_every_member() -> None:
    assert set(INSTRUCTION_CLASSES) == set(Opcode)
    assert all(cls.opcode is opcode for opcode, cls in INSTRUCTION_CLASSES.items())
    assert set(memory_shapes(TINY)) == set(Memory)
    assert max(Opcode) < 1 << OPCODE_BITS


LOAD = Load(memory=Memory.INP, dst=0, entries=1)


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (
            Load(memory=Memory.INP, dst=0, entries=4096),
            "instruction 1 (load 1): entries must be an integer from 0 to 4095, not 4096",
        ),
        (
            Load(memory=Memory.INP, dst=-1, entries=1),
            "instruction 1 (load 1): dst must be an integer from 0 to 255, not -1",
        ),
        (
            Load(memory=Memory.INP, dst=0, entries=1, pad_value=128),
            "instruction 1 (load 1): pad_value must be an integer from -128 to 127, not 128",
        ),
        (
            Load(memory=Memory.INP, dst=0, entries=1, address=1 << 70),
            (
                "instruction 1 (load 1): address must be an integer from 0 to 4294967295,"
                " not 1180591620717411303424"
            ),
        ),
        (
            Store(src=0, address=0, entries=1.5),  # type: ignore[arg-type]
            "instruction 1 (store 0): entries must be an integer from 1 to 4095, not 1.5",
        ),
        (
            Gemm(loops=(GemmLoop(), GemmLoop(extent=0), GemmLoop())),
            "instruction 1 (gemm 0): loops.1.extent must be an integer from 1 to 4095, not 0",
        ),
        (
            Gemm(loops=(GemmLoop(),)),
            "Gemm.loops must have 3 items, not 1",
        ),
        (
            Vector(operation=VectorOperation.MAC, prm=32),
            "instruction 1 (vector 0): prm must be an integer from 0 to 31, not 32",
        ),
        (Finish(wait=16), "instruction 1 (finish): wait must be an integer from 0 to 15, not 16"),
    ],
)
def test_values_that_do_not_fit(instruction: Any, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        encode_program([LOAD, instruction], TINY)
    assert str(caught.value) == message


def test_micro_op_values_that_do_not_fit() -> None:
    with pytest.raises(ProgramError) as caught:
        encode_uops(GemmUop, [[0, 0, 0], [0, 0, 64]], TINY)
    assert str(caught.value) == (
        "micro-op 1 (GemmUop): wgt must be an integer from 0 to 63, not 64"
    )


def with_bits(instruction: Any, position: int, width: int, value: int) -> bytes:
    """The encoding with some bits replaced."""
    number = int.from_bytes(encode(instruction, TINY), "little")
    number &= ~(((1 << width) - 1) << position)
    return (number | value << position).to_bytes(instruction_bytes(TINY), "little")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (with_bits(LOAD, 0, 3, 7), "instruction 0 has the unknown opcode 7"),
        (
            with_bits(LOAD, 11, 4, 12),
            (
                "instruction 0 (load 0): memory must be one of 0 (INP), 1 (WGT), 2 (VEC), 3 (COEF),"
                " 4 (PRM), 5 (GUOP), 6 (VUOP), 7 (LUT), 8 (ACC), 9 (OUT), not 12"
            ),
        ),
        (with_bits(Finish(), 11, 1, 1), "instruction 0 (finish): bits from 11 on must be zero"),
        (with_bits(Finish(), 255, 1, 1), "instruction 0 (finish): bits from 11 on must be zero"),
        (
            with_bits(Gemm(), layout(Gemm, TINY)[5].position, layout(Gemm, TINY)[5].width, 0),
            "instruction 0 (gemm 0): uop_count must be an integer from 1 to 127, not 0",
        ),
        (b"\0" * 31, "an instruction must be 32 bytes, not 31"),
    ],
)
def test_bytes_that_are_no_instruction(data: bytes, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        decode(data, TINY)
    assert str(caught.value) == message


def test_programs_and_micro_ops_of_a_wrong_length() -> None:
    with pytest.raises(ProgramError, match=r"^code must be a multiple of 32 bytes, not 40$"):
        decode_program(np.zeros(40, dtype=np.uint8), TINY)
    with pytest.raises(ProgramError, match=r"^micro-ops must be a multiple of 8 bytes, not 12$"):
        decode_uops(GemmUop, np.zeros(12, dtype=np.uint8), TINY)
    with pytest.raises(ProgramError, match=r"^micro-op 1 \(GemmUop\): bits from 20 on must be "):
        decode_uops(GemmUop, np.full(16, [0] * 15 + [1], dtype=np.uint8), TINY)


def test_the_effort_of_encoding_grows_with_the_length_of_the_program() -> None:
    program = [
        instruction
        for i in range(1250)
        for instruction in (
            Load(memory=Memory.INP, dst=i % 500, entries=3, address=16 * i),
            Gemm(dst=i % 500, loops=(GemmLoop(extent=3, dst=4), GemmLoop(), GemmLoop())),
            Vector(operation=VectorOperation.MAX, low=-5, src=i % 700),
            Store(src=3, address=64 * i, entries=4),
        )
    ]
    third = program[: len(program) // 3]
    # Three times as long; what is quadratic would take nine times as long.
    ratio = growth(lambda: encode_program(third, PYNQ), lambda: encode_program(program, PYNQ))
    assert ratio < 5
