"""Fixtures of the command line's tests."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tilewright import demo
from tilewright.cli import main
from tilewright.isa.presets import PYNQ
from tilewright.runtime.model import compile_model, load


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Exit status and streams of a command."""

    status: int
    out: str
    err: str


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Run the command line in this process, inside an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Done:
        capsys.readouterr()
        status = main(words)
        streams = capsys.readouterr()
        return Done(status=status, out=streams.out, err=streams.err)

    return run


@pytest.fixture
def model() -> str:
    """The path of the demo network."""
    return str(demo.MODEL_PATH)


@pytest.fixture(scope="session")
def compiled_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of the demo network compiled for preset pynq."""
    path = tmp_path_factory.mktemp("compiled") / "digits.tw"
    compile_model(load(demo.MODEL_PATH), PYNQ).save(path)
    return str(path)


@pytest.fixture(scope="session")
def image_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of one of the labelled images, a six."""
    samples = demo.load_samples()
    index = int(np.flatnonzero(samples.labels == 6)[0])
    path = tmp_path_factory.mktemp("images") / "six.npy"
    np.save(path, samples.images[index : index + 1])
    return str(path)
