"""``tilewright quantize`` from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import demo
from tilewright.cli import main


@pytest.fixture
def samples_file(tmp_path: Path) -> Path:
    samples = demo.load_samples()
    path = tmp_path / "samples.npz"
    np.savez(path, image=samples.images, labels=samples.labels)
    return path


def test_it_writes_a_model_that_loads_and_says_what_it_costs(
    samples_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, record = tmp_path / "int8.onnx", tmp_path / "record.json"
    words = ["quantize", str(demo.FLOAT_MODEL_PATH), "--samples", str(samples_file)]
    assert main([*words, "-o", str(output), "--method", "min-max", "--json", str(record)]) == 0
    shown = capsys.readouterr().out
    assert "accuracy on 40 samples:" in shown
    assert "output logits: signal to quantisation noise" in shown
    found = json.loads(record.read_text())
    assert found["accuracy"]["samples"] == 40
    assert found["accuracy"]["int8"] >= found["accuracy"]["float"] - 1 / 40
    assert found["method"] == "min-max"
    assert all(layer["sqnr_db"] is None or layer["sqnr_db"] > 15 for layer in found["layers"])
    graph = tw.load(output).graph
    assert graph.inputs == ("image",)


def test_a_sole_array_is_for_the_only_input(tmp_path: Path) -> None:
    path = tmp_path / "samples.npz"
    np.savez(path, demo.load_samples().images)
    assert main(["quantize", str(demo.FLOAT_MODEL_PATH), "--samples", str(path)]) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"no archive", "cannot be read: it is damaged or not an .npz archive"),
        (b"PK\x03\x04 damaged", "cannot be read: it is damaged or not an .npz archive"),
    ],
)
def test_samples_that_cannot_be_read(
    content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "samples.npz"
    if content is not None:
        path.write_bytes(content)
    assert main(["quantize", str(demo.FLOAT_MODEL_PATH), "--samples", str(path)]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"tilewright: samples file {path} {message}"
    )


def test_a_quantised_model_is_refused(
    samples_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quantize", str(demo.MODEL_PATH), "--samples", str(samples_file)]) == 2
    assert "tilewright: the network is quantised already" in capsys.readouterr().err
