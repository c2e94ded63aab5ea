"""Damaged model files: each is refused in one line, or read as a network that is valid."""

import random
import resource
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest
from float_networks import small_cnn, small_transformer
from mutations import mutated_bytes, mutated_network
from onnx_networks import serialized

from tilewright.compiler.graph import Graph
from tilewright.compiler.passes.pipeline import lower_to_integer
from tilewright.compiler.readers import read_model
from tilewright.compiler.readers.onnx_reader import HANDLERS, MICROSOFT_HANDLERS, read_onnx
from tilewright.compiler.readers.tflite_reader import read_tflite
from tilewright.isa.errors import ModelError

ONNX_MODELS = (
    "mnist_cnn_qdq_u8s8.onnx",
    "resnet20_cifar10_qop_u8u8_pt.onnx",
    "mnist_cnn.onnx",
    "ultraface_rfb320.onnx",
)
TFLITE_MODELS = (
    "kws_dscnn_int8.tflite",
    "resnet8_cifar10_int8.tflite",
    "mobilenet_v1_0.25_128_uint8.tflite",
    "blazeface_short_range.tflite",
)
KINDS = (*sorted({*HANDLERS, *MICROSOFT_HANDLERS}), "Det", "Shape", "Range", "ConstantOfShape")
#: What a single file may take; reading an undamaged one takes a tenth of it.
MAX_SECONDS = 3.0
MAX_GROWTH_KIB = 400 * 1024

Reader = Callable[[bytes, str], Graph]


def outcome(read: Reader, data: bytes) -> str:
    """Read and lower a file, demand one of the two outcomes, and return which it was."""
    start = process_time()
    message: str | None = None
    try:
        lower_to_integer(read(data, "mutant"))
    except ModelError as error:
        message = str(error)
    assert process_time() - start < MAX_SECONDS
    if message is None:
        return "read"
    assert message
    assert "\n" not in message
    return "refused"


def check(read: Reader, mutate: Callable[[random.Random], bytes], cases: int, seed: int) -> None:
    """Try `cases` mutants; both outcomes must occur, and memory must not grow."""
    rng = random.Random(seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = {outcome(read, mutate(rng)) for _ in range(cases)}
    assert outcomes == {"refused", "read"}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_GROWTH_KIB


def bytes_mutator(folder: Path, name: str) -> Callable[[random.Random], bytes]:
    data = (folder / name).read_bytes()
    others = [path.read_bytes() for path in sorted(folder.glob(f"*{Path(name).suffix}"))]
    return lambda rng: mutated_bytes(data, others, rng)


def network_mutator(folder: Path, name: str) -> Callable[[random.Random], bytes]:
    data = (folder / name).read_bytes()
    return lambda rng: mutated_network(data, KINDS, rng)


@pytest.mark.parametrize("name", ONNX_MODELS)
def test_damaged_onnx_files(name: str, shared_models: Path) -> None:
    check(read_onnx, bytes_mutator(shared_models / "models", name), 60, 1)


@pytest.mark.parametrize("name", ONNX_MODELS)
def test_onnx_networks_with_invalid_contents(name: str, shared_models: Path) -> None:
    check(read_onnx, network_mutator(shared_models / "models", name), 80, 2)


@pytest.mark.parametrize("name", TFLITE_MODELS)
def test_damaged_tflite_files(name: str, shared_models: Path) -> None:
    check(read_tflite, bytes_mutator(shared_models / "models", name), 80, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
@pytest.mark.parametrize("name", ONNX_MODELS)
def test_many_damaged_onnx_files(name: str, seed: int, shared_models: Path) -> None:
    check(read_onnx, bytes_mutator(shared_models / "models", name), 1000, seed)
    check(read_onnx, network_mutator(shared_models / "models", name), 1000, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 24))
@pytest.mark.parametrize("name", TFLITE_MODELS)
def test_many_damaged_tflite_files(name: str, seed: int, shared_models: Path) -> None:
    check(read_tflite, bytes_mutator(shared_models / "models", name), 1000, seed)


@pytest.mark.parametrize("build", [small_cnn, small_transformer])
def test_float_networks_with_invalid_contents(build: Callable[..., Any]) -> None:
    data = serialized(build(np.random.default_rng(1)))
    check(read_onnx, lambda rng: mutated_network(data, KINDS, rng), 250, 4)
    check(read_onnx, lambda rng: mutated_bytes(data, [data], rng), 100, 5)


def test_every_truncation_of_a_small_file_is_refused(shared_models: Path) -> None:
    data = (shared_models / "models" / "mnist_cnn_qdq_u8s8.onnx").read_bytes()
    for length in range(0, len(data), 97):
        assert outcome(read_onnx, data[:length]) == "refused"


UNREADABLE = {
    "empty": (b"", "the file is not an ONNX model, or holds no nodes"),
    "text": (b"not a model\n", "the file is not an ONNX model, or is damaged"),
    "zeros": (bytes(4096), "the file is not an ONNX model, or is damaged"),
    "only the mark of TFLite": (
        b"\x08\x00\x00\x00TFL3",
        "the TFLite model is damaged: an offset points outside the file",
    ),
}


@pytest.mark.parametrize("case", sorted(UNREADABLE))
def test_files_that_are_no_model(case: str, tmp_path: Path) -> None:
    data, message = UNREADABLE[case]
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        read_model(path)
    assert str(caught.value) == message


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with pytest.raises(ModelError) as caught:
        read_model(path)
    assert str(caught.value) == "the file cannot be read: No such file or directory"


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        read_model(tmp_path)
    assert str(caught.value) == "the file cannot be read: Is a directory"


def test_the_content_decides_not_the_suffix(shared_models: Path, tmp_path: Path) -> None:
    disguised = tmp_path / "network.onnx"
    disguised.write_bytes((shared_models / "models" / "kws_dscnn_int8.tflite").read_bytes())
    assert read_model(disguised).inputs == ("input_1",)
