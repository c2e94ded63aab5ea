"""Configurations from presets, files and changes; every mistake names the field."""

import json
from pathlib import Path

import pytest

from tilewright.boards.catalogue import KV260
from tilewright.boards.project import build_record
from tilewright.boards.toolchains import Toolchain
from tilewright.config_file import change_config, config_from_toml, parse_config
from tilewright.isa.config_record import config_to_record
from tilewright.isa.errors import TilewrightError
from tilewright.isa.presets import PRESETS, PYNQ
from tilewright.runtime.board_access import BoardError


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_is_found_by_name(name: str) -> None:
    assert parse_config(name) is PRESETS[name]


def test_a_file_may_start_from_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'preset = "pynq"\nname = "mine"\nblock_out = 32\nclock_mhz = 100\n'
        "[dram]\nread_latency_cycles = 60\n"
    )
    assert parse_config(str(path)) == PYNQ.replace(
        name="mine", block_out=32, clock_mhz=100.0, **{"dram.read_latency_cycles": 60}
    )


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_file_may_hold_all_fields(name: str) -> None:
    lines = []
    record = config_to_record(PRESETS[name])
    dram = record.pop("dram")
    for fields, head in ((record, ""), (dram, "[dram]")):
        lines.append(head)
        for field, value in fields.items():
            text = f'"{value}"' if isinstance(value, str) else str(value).lower()
            lines.append(f"{field} = {text}")
    assert config_from_toml("\n".join(lines).encode()) == PRESETS[name]


def test_the_description_of_a_bitstream_is_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(build_record(KV260, KV260.config, Toolchain.VIVADO)))
    assert parse_config(str(file)) == KV260.config
    file.write_text("{}")
    with pytest.raises(BoardError) as caught:
        parse_config(str(file))
    assert str(caught.value) == f"{file} does not describe a bitstream"


def test_changes_keep_the_types_of_the_fields() -> None:
    changed = change_config(
        PYNQ,
        ["block_out=32", "clock_mhz=200", "packed_multipliers=false", "dram.size_bytes=1048576"],
    )
    expected = PYNQ.replace(
        block_out=32, clock_mhz=200.0, packed_multipliers=False, **{"dram.size_bytes": 1 << 20}
    )
    assert changed.replace(name="pynq") == expected
    assert isinstance(changed.clock_mhz, float)


def test_the_name_tells_the_changes() -> None:
    assert change_config(PYNQ, ["block_out=32", "batch=1"]).name == "pynq, block_out=32, batch=1"
    assert change_config(PYNQ, ["block_out=32", "name=wide"]).name == "wide"
    assert change_config(PYNQ, []) is PYNQ


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("block_out", "a change must be field=value, not 'block_out'"),
        ("block=1", "a configuration has no field 'block'"),
        ("dram=1", "a configuration has no field 'dram'"),
        ("dram.latency=1", "a configuration has no field 'dram.latency'"),
        ("isa.batch=1", "a configuration has no field 'isa.batch'"),
        ("block_out=many", "block_out must be of type int, not 'many'"),
        ("block_out=1.5", "block_out must be of type int, not '1.5'"),
        ("clock_mhz=", "clock_mhz must be of type float, not ''"),
        ("clock_mhz=nan", "clock_mhz must be between 1 and 2000, not nan"),
        ("packed_multipliers=1", "packed_multipliers must be true or false, not '1'"),
        ("block_out=0", "block_out must be an integer from 1 to 256, not 0"),
        ("acc_entries=3", "acc_entries must be even (two banks), not 3"),
    ],
)
def test_a_wrong_change_is_refused(change: str, message: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        change_config(PYNQ, [change])
    assert str(caught.value) == message


def test_an_unknown_field_lists_the_known_ones() -> None:
    with pytest.raises(TilewrightError) as caught:
        change_config(PYNQ, ["block=1"])
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("fields: name, batch, block_in, block_out, ")
    assert "dram.read_latency_cycles" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("block_out = 1", "a configuration must have the field name"),
        ('preset = "none"', "there is no preset 'none'"),
        ("preset = 3", "there is no preset 3"),
        ('preset = "pynq"\nblocks = 1', "a configuration has no field 'blocks'"),
        ('preset = "pynq"\nblock_in = "16"', "block_in must be of type int, not '16'"),
        ('preset = "pynq"\nblock_in = 16.0', "block_in must be of type int, not 16.0"),
        ('preset = "pynq"\ndram = 5', "dram must be a table, not 5"),
        ('preset = "pynq"\n[dram]\nsize = 5', "a configuration has no field 'dram.size'"),
        ('preset = "pynq"\nbatch = 0', "batch must be an integer from 1 to 256, not 0"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(TilewrightError) as caught:
        parse_config(str(path))
    assert str(caught.value) == f"{path}: {message}"


@pytest.mark.parametrize("data", [b"a =", b"\xff\xfe", b"a = " + b"[" * 5000, b"a = 1\na = 2"])
def test_what_is_not_toml_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "wrong.toml"
    path.write_bytes(data)
    with pytest.raises(TilewrightError) as caught:
        parse_config(str(path))
    assert str(caught.value).startswith(f"{path}: is not a TOML file: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pink", "there is no preset 'pink'"),
        ("none.toml", "cannot read configuration none.toml: no such file or directory"),
        (".", "cannot read configuration .: it is a folder"),
    ],
)
def test_neither_preset_nor_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        parse_config(text)
    assert str(caught.value) == message
