"""Fixtures that the tests of every package share."""

from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root folder of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_models() -> Path:
    """The folder of third-party models, data and golden outputs that lies beside the checkout."""
    folder = REPOSITORY.parent / "shared" / "models"
    if not (folder / "MANIFEST.md").is_file():
        pytest.skip("needs ../shared/models beside the checkout, which is not part of it")
    return folder


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that starts at the same seed in every test."""
    return np.random.default_rng(20_261_130)
