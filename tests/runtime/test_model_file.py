"""The file of a compiled model: it comes back equal, and every other file is refused."""

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.isa.errors import InputError, ModelError, TilewrightError
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.inputs import random_inputs
from tilewright.runtime.model_file import (
    MAGIC,
    VERSION,
    compiled_from_bytes,
    compiled_to_bytes,
    has_signature,
)

PREFIX = struct.Struct("<8sII")
OTHER_CONFIGURATION = "the program was made for another configuration than 'pynq': "
DAMAGED = "the compiled model is damaged: "


@pytest.fixture(scope="module")
def data(compiled_digits: CompiledModel) -> bytes:
    return compiled_to_bytes(compiled_digits.compiled)


def seal(body: bytes) -> bytes:
    """Append the checksum that makes a changed file look whole."""
    return body + hashlib.sha256(body).digest()


def with_header(data: bytes, change: Callable[[Any], None]) -> bytes:
    """Change the JSON header of a file and seal it again."""
    _, _, size = PREFIX.unpack_from(data)
    header = json.loads(data[PREFIX.size : PREFIX.size + size])
    change(header)
    text = json.dumps(header).encode()
    return seal(PREFIX.pack(MAGIC, VERSION, len(text)) + text + data[PREFIX.size + size : -32])


def test_it_comes_back_equal(compiled_digits: CompiledModel, tmp_path: Path) -> None:
    path = tmp_path / "digits.tw"
    compiled_digits.save(path)
    assert has_signature(path)
    loaded = CompiledModel.load(path)
    assert loaded.placement == compiled_digits.placement
    assert loaded.programs == compiled_digits.programs
    inputs = random_inputs(loaded.graph, 3)
    first, second = compiled_digits.run(inputs), loaded.run(inputs)
    assert first.stats == second.stats
    np.testing.assert_array_equal(first.outputs["logits"], second.outputs["logits"])


def test_equal_models_make_equal_files(compiled_digits: CompiledModel, data: bytes) -> None:
    assert compiled_to_bytes(*compiled_from_bytes(data)) == data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "not a compiled model: 0 bytes are too few"),
        (lambda data: data[:47], "not a compiled model: 47 bytes are too few"),
        (
            lambda data: b"X" + data[1:],
            "not a compiled model: it does not begin with the signature",
        ),
        (lambda data: data[:-1], DAMAGED + "its checksum does not match"),
        (lambda data: data + b"\0", DAMAGED + "its checksum does not match"),
        (
            lambda data: data[:8] + struct.pack("<I", 1) + data[12:],
            "the compiled model has version 1, this is version 3",
        ),
        (
            lambda data: seal(PREFIX.pack(MAGIC, VERSION, 1 << 31)),
            DAMAGED + "its header is cut off",
        ),
        (
            lambda data: seal(PREFIX.pack(MAGIC, VERSION, 9) + b"[" * 9),
            DAMAGED + "its header is not JSON",
        ),
        (
            lambda data: seal(PREFIX.pack(MAGIC, VERSION, 100_000) + b"[" * 100_000),
            DAMAGED + "its header is not JSON",
        ),
        (
            lambda data: seal(PREFIX.pack(MAGIC, VERSION, 2) + b"{}"),
            DAMAGED + "its header lacks its parts",
        ),
        (lambda data: seal(data[:-33]), DAMAGED + "a section is cut off"),
        (lambda data: seal(data[:-32] + b"\0"), DAMAGED + "1 bytes too many"),
    ],
)
def test_a_damaged_file_is_refused(
    data: bytes, change: Callable[[bytes], bytes], message: str
) -> None:
    with pytest.raises(ModelError) as caught:
        compiled_from_bytes(change(data))
    assert str(caught.value) == message


def drop_step(header: Any) -> None:
    del header["compiled"]["steps"][1]


def move_binding(header: Any) -> None:
    layout = header["compiled"]["steps"][1]["AcceleratorStep"]["outputs"][0]["layout"]
    layout["address"] = 1 << 40


def rename_node(header: Any) -> None:
    header["compiled"]["steps"][0]["HostStep"]["nodes"][0]["name"] = "other"


def change_clock(header: Any) -> None:
    header["compiled"]["config"]["clock_mhz"] = 151.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop_step, DAMAGED + "node 'logits/dequantized' does not fit the graph"),
        (move_binding, DAMAGED + "binding 'logits/vector' does not fit its tensor"),
        (rename_node, DAMAGED + "node 'other' does not fit the graph"),
        (
            change_clock,
            OTHER_CONFIGURATION + "clock_mhz 150.0 instead of 151.0",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    data: bytes, change: Callable[[Any], None], message: str
) -> None:
    with pytest.raises(TilewrightError) as caught:
        compiled_from_bytes(with_header(data, change))
    assert str(caught.value) == message


def test_every_flipped_bit_is_noticed(data: bytes, rng: np.random.Generator) -> None:
    for position in rng.integers(0, len(data) * 8, 300).tolist():
        changed = bytearray(data)
        changed[position // 8] ^= 1 << position % 8
        with pytest.raises(TilewrightError):
            compiled_from_bytes(bytes(changed))


def leaves(node: Any) -> list[tuple[Any, Any]]:
    """List container and key of everything in a JSON value."""
    keys = node.keys() if isinstance(node, dict) else range(len(node))
    found = [(node, key) for key in keys]
    for key in keys:
        if isinstance(node[key], dict | list):
            found += leaves(node[key])
    return found


JUNK = (None, True, 0, -1, 1 << 31, 1 << 70, 1.5, float("nan"), "", "int8", [], {}, [[]])


def test_a_sealed_header_with_anything_in_it_is_refused_or_runs(
    data: bytes, rng: np.random.Generator
) -> None:
    refused = 0
    for _ in range(150):

        def change(header: Any) -> None:
            places = leaves(header)
            holder, key = places[rng.integers(len(places))]
            holder[key] = JUNK[rng.integers(len(JUNK))]

        try:
            compiled = CompiledModel(compiled=compiled_from_bytes(with_header(data, change))[0])
            compiled.run(random_inputs(compiled.graph, 0))
        except TilewrightError:
            refused += 1
    assert refused > 100


def test_a_failed_save_leaves_the_old_file(
    compiled_digits: CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "digits.tw"
    path.write_bytes(b"old")

    def fail(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(InputError) as caught:
        compiled_digits.save(path)
    assert str(caught.value) == f"cannot write {path}: no space left on device"
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_path_stands_in_the_message(tmp_path: Path) -> None:
    path = tmp_path / "junk.tw"
    path.write_bytes(b"junk" * 100)
    assert not has_signature(path)
    with pytest.raises(ModelError) as caught:
        CompiledModel.load(path)
    assert str(caught.value) == (
        f"{path}: not a compiled model: it does not begin with the signature"
    )


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        CompiledModel.load(tmp_path / "none.tw")
    assert str(caught.value) == (
        f"cannot read compiled model {tmp_path}/none.tw: no such file or directory"
    )
