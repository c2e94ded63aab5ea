"""Fixtures of the runtime's tests: the demo network, read and compiled once."""

import numpy as np
import numpy.typing as npt
import pytest

from tilewright import demo
from tilewright.isa.presets import PYNQ
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.model import Model, compile_model, load


@pytest.fixture(scope="session")
def digits() -> Model:
    return load(demo.MODEL_PATH)


@pytest.fixture(scope="session")
def compiled_digits(digits: Model) -> CompiledModel:
    return compile_model(digits, PYNQ)


@pytest.fixture(scope="session")
def image() -> npt.NDArray[np.float32]:
    """One of the demo's labelled images, shape (1, 1, 16, 16)."""
    return demo.load_samples().images[:1]
