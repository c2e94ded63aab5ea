"""Programs check their regions, survive their file, and every other file is refused cleanly."""

import errno
import hashlib
import json
import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isa_programs import program_of
from isa_strategies import configs, instructions

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_digest, config_from_record, config_to_record
from tilewright.isa.encoding import encode_program
from tilewright.isa.errors import ConfigError, ProgramError
from tilewright.isa.instructions import Finish
from tilewright.isa.presets import PRESETS
from tilewright.isa.program import (
    MAGIC,
    VERSION,
    Buffer,
    BufferRole,
    Program,
    Segment,
    check_config,
    code_alignment_bytes,
)

PYNQ, TINY = PRESETS["pynq"], PRESETS["tiny"]


def full_program() -> Program:
    """A program that uses everything a file can hold."""
    program = program_of()
    return replace(
        program,
        buffers=(
            Buffer(name="in", address=0x2000, size_bytes=32, role=BufferRole.INPUT),
            Buffer(name="größer", address=0x2800, size_bytes=32, role=BufferRole.OUTPUT),
            Buffer(name="", address=0x2000, size_bytes=0, role=BufferRole.SCRATCH),
        ),
        layers=("conv", "conv"),
        layer_of_instruction=(-1, *[1] * (len(program.instructions) - 1)),
    )


@given(st.data())
@settings(max_examples=80)
def test_the_file_brings_back_the_program(data: st.DataObject) -> None:
    config = data.draw(configs())
    alignment = code_alignment_bytes(config)
    program = Program(
        config=config.replace(**{"dram.size_bytes": 1 << 32}, name=data.draw(st.text(max_size=5))),
        instructions=tuple(data.draw(st.lists(instructions(config), max_size=5))),
        code_address=alignment * data.draw(st.integers(0, 100)),
        constants=(Segment(address=1 << 30, data=data.draw(st.binary(max_size=50))),),
        dram_bytes=1 << 31,
    )
    assert Program.from_bytes(program.to_bytes()) == program


def test_a_saved_program_loads(tmp_path: Path) -> None:
    program = full_program()
    path = tmp_path / "network.program"
    path.write_bytes(b"old")
    program.save(path)
    assert Program.load(path) == program
    assert [item.name for item in tmp_path.iterdir()] == ["network.program"]


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "network.program"
    path.write_bytes(b"old")
    program = full_program()

    def full_disk(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(ProgramError) as caught:
        program.save(path)
    assert str(caught.value) == f"cannot write program file {path}: disk full"
    assert [item.read_bytes() for item in tmp_path.iterdir()] == [b"old"]


def test_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(ProgramError) as caught:
        Program.load(path)
    assert str(caught.value) == f"cannot read program file {path}: No such file or directory"


def test_initial_dram_holds_code_and_constants() -> None:
    program = full_program()
    dram = program.initial_dram()
    assert dram.size == program.dram_bytes
    code = encode_program(program.instructions, program.config)
    expected = np.zeros(program.dram_bytes, dtype=np.uint8)
    expected[program.code_address :][: code.size] = code
    for segment in program.constants:
        expected[segment.address :][: len(segment.data)] = list(segment.data)
    np.testing.assert_array_equal(dram, expected)
    assert program.code_bytes == code.size
    assert [item.name for item in program.inputs] == ["in"]
    assert [item.name for item in program.outputs] == ["größer"]


BASE: dict[str, Any] = {
    "config": TINY,
    "instructions": (Finish(),),
    "code_address": 0x1000,
    "dram_bytes": 0x2000,
}


def buffer(address: int, size_bytes: int, name: str = "b") -> Buffer:
    return Buffer(name=name, address=address, size_bytes=size_bytes, role=BufferRole.SCRATCH)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dram_bytes": 0}, "dram_bytes must be from 1 to 16777216, not 0"),
        ({"dram_bytes": 1 << 25}, "dram_bytes must be from 1 to 16777216, not 33554432"),
        ({"code_address": 0x1020}, "code_address must be a multiple of 128, not 4128"),
        (
            {"code_address": 0x2000},
            "the code at 0x2000 to 0x2020 does not lie within dram_bytes (0x2000)",
        ),
        (
            {"constants": (Segment(address=-1, data=b"a"),)},
            "constant segment 0 at -0x1 to 0x0 does not lie within dram_bytes (0x2000)",
        ),
        (
            {"constants": (Segment(address=0x1010, data=b"a"),)},
            "constant segment 0 at 0x1010 to 0x1011 overlaps the code at 0x1000 to 0x1020",
        ),
        (
            {"constants": (Segment(address=4, data=b"abc"), Segment(address=2, data=b"abc"))},
            "constant segment 0 at 0x4 to 0x7 overlaps constant segment 1 at 0x2 to 0x5",
        ),
        (
            {"constants": (Segment(address=8, data=b"abc"),), "buffers": (buffer(0, 9),)},
            "buffer 'b' at 0x0 to 0x9 overlaps constant segment 0 at 0x8 to 0xb",
        ),
        (
            {"buffers": (buffer(0x101F, 1),)},
            "buffer 'b' at 0x101f to 0x1020 overlaps the code at 0x1000 to 0x1020",
        ),
        (
            {"buffers": (buffer(0, 4), buffer(4, 4))},
            "buffer names must be unique, 'b' is not",
        ),
        (
            {"buffers": (buffer(0, -4),)},
            "buffer 'b' at 0x0 to -0x4 does not lie within dram_bytes (0x2000)",
        ),
        (
            {"layer_of_instruction": (0, 0), "layers": ("a",)},
            "layer_of_instruction must have 1 items or none, not 2",
        ),
        (
            {"layer_of_instruction": (1,), "layers": ("a",)},
            "layer_of_instruction must hold numbers from -1 to 0, not 1",
        ),
    ],
)
def test_regions_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        Program(**{**BASE, **changes})
    assert str(caught.value) == message


def test_regions_may_touch_and_buffers_may_share() -> None:
    Program(
        **BASE,
        constants=(Segment(address=0x0FFF, data=b"a"), Segment(address=0x1020, data=b"b")),
        buffers=(buffer(0x1021, 9, "x"), buffer(0x1021, 9, "y"), buffer(0, 0x0FFF, "z")),
    )


def with_checksum(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def file_of(header: bytes, sections: bytes = b"", version: int = VERSION) -> bytes:
    return with_checksum(struct.pack("<8sII", MAGIC, version, len(header)) + header + sections)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a program file: 0 bytes are too few"),
        (bytes(100), "not a program file: it does not begin with the program signature"),
        (file_of(b"{}", version=2), "program file has version 2, this is version 1"),
        (
            full_program().to_bytes()[:-1] + b"x",
            "program file is damaged: its checksum does not match",
        ),
        (
            full_program().to_bytes()[:300],
            "program file is damaged: its checksum does not match",
        ),
        (file_of(b"{"), "program file is damaged: its header is not JSON"),
        (file_of(b"[" * 100_000), "program file is damaged: its header is not JSON"),
        (file_of(b"[]"), "program file is damaged: config must be of type dict, not None"),
        (
            file_of(b'{"config": {"name": 5}}'),
            (
                "program file holds a configuration that cannot be:"
                " a configuration must have the field block_in"
            ),
        ),
    ],
)
def test_files_that_are_no_program(data: bytes, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        Program.from_bytes(data)
    assert str(caught.value) == message


def header_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and sections of a file."""
    size = struct.unpack_from("<8sII", data)[2]
    return json.loads(data[16 : 16 + size]), data[16 + size : -32]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("instructions", 1 << 40, "program file is damaged: its code is cut off"),
        ("instructions", -1, "program file is damaged: instructions must not be -1"),
        ("instructions", 1.0, "program file is damaged: instructions must be of type int, not 1.0"),
        (
            "instructions",
            True,
            "program file is damaged: instructions must be of type int, not True",
        ),
        ("constants", [[0, 1 << 47]], "program file is damaged: its constants is cut off"),
        ("constants", [[0]], "program file is damaged: constants has a row of wrong length"),
        ("constants", [], "program file is damaged: 352 bytes too many"),
        ("buffers", [["x", 0, 0, "x"]], "program file is damaged: no buffer has the role 'x'"),
        ("layers", [1], "program file is damaged: layers must be of type str, not 1"),
        ("dram_bytes", 1 << 40, "dram_bytes must be from 1 to 16777216, not 1099511627776"),
    ],
)
def test_headers_that_do_not_fit(key: str, value: Any, message: str) -> None:
    header, sections = header_of(full_program().to_bytes())
    header[key] = value
    with pytest.raises(ProgramError) as caught:
        Program.from_bytes(file_of(json.dumps(header).encode(), sections))
    assert str(caught.value) == message


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Change, remove or repeat some bytes of a file, and make the checksum right again."""
    body = bytearray(data[:-32])
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(body))
        match rng.randrange(4):
            case 0:
                body[at] ^= 1 << rng.randrange(8)
            case 1:
                body[at] = rng.choice(b'0123456789"{}[],-.eE\x00\xff')
            case 2:
                del body[at : at + rng.choice([1, 4, 64])]
            case _:
                body[at:at] = body[at : at + rng.choice([1, 8, 64])]
        if len(body) < 2:
            break
    return with_checksum(bytes(body))


def test_mutated_files_are_read_or_refused() -> None:
    data = full_program().to_bytes()
    rng = random.Random(7)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(1500):
        try:
            program = Program.from_bytes(mutated(data, rng))
        except ProgramError:
            outcomes["refused"] += 1
        else:
            assert Program.from_bytes(program.to_bytes()) == program
            outcomes["read"] += 1
    assert min(outcomes.values()) > 50, outcomes


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    for candidate in (data, with_checksum(data), with_checksum(MAGIC + b"\1\0\0\0" + data)):
        with pytest.raises(ProgramError):
            Program.from_bytes(candidate)


@given(configs())
def test_records_bring_back_configurations(config: AcceleratorConfig) -> None:
    assert config_from_record(json.loads(json.dumps(config_to_record(config)))) == config


def test_the_digest_is_of_the_machine_not_of_its_name() -> None:
    digest = config_digest(TINY)
    assert config_digest(TINY.replace(name="other", clock_mhz=50)) == digest
    record = config_to_record(TINY)
    for field, value in {**record, **record["dram"]}.items():
        if field not in ("name", "dram"):
            path = f"dram.{field}" if field in record["dram"] else field
            changed = not value if isinstance(value, bool) else value * 2
            if field == "lane_multipliers":
                changed = value - 1
            assert config_digest(TINY.replace(**{path: changed})) != digest, path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"speed": 1}, "a configuration has no field 'speed'"),
        ({"dram": {"bytes": 1}}, "a configuration has no field 'dram.bytes'"),
        ({"dram": 3}, "dram must be of type dict, not 3"),
        ({"batch": 1.0}, "batch must be of type int, not 1.0"),
        ({"batch": True}, "batch must be of type int, not True"),
        ({"clock_mhz": "fast"}, "clock_mhz must be of type float, not 'fast'"),
        ({"batch": 0}, "batch must be an integer from 1 to 256, not 0"),
    ],
)
def test_records_that_are_no_configuration(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_from_record({**config_to_record(TINY), **changes})
    assert str(caught.value) == message


def test_fields_with_a_default_may_be_missing() -> None:
    record = config_to_record(TINY)
    del record["port_bits"]
    assert config_from_record(record) == TINY


def test_a_program_for_another_machine_names_the_fields() -> None:
    program = program_of()
    check_config(program, TINY.replace(name="renamed"))
    other = TINY.replace(name="other", acc_entries=128, **{"dram.read_latency_cycles": 13})
    with pytest.raises(ConfigError) as caught:
        check_config(program, other)
    assert str(caught.value) == (
        "the program was made for another configuration than 'other': acc_entries 64 instead of"
        " 128, dram.read_latency_cycles 12 instead of 13"
    )
    assert caught.value.hint == "compile the model for the configuration that it shall run on"
