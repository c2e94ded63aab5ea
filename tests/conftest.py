"""Fixtures that the tests of every package share."""

from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the flag that renews golden files and the printed blocks of documentation pages."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what is printed today into the golden files instead of comparing",
    )


@pytest.fixture(scope="session")
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be renewed."""
    return bool(request.config.getoption("--update-golden"))


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
