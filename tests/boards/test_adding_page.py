"""The patch in `docs/adding-a-board.md` applies, and adds a board that passes its tests."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path("docs", "adding-a-board.md")
NAME = "zybo-z7-20"


@pytest.fixture(scope="module")
def python(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Python with the packages of a copy of the checkout in which the patch is applied."""
    if shutil.which("git") is None:
        pytest.skip("needs git, which applies the patch")
    folder = tmp_path_factory.mktemp("patched")
    tree = folder / "tree"
    for name in ("boards", "docs", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(repository / name, tree / name, ignore=ignored)
    shutil.copy(repository / "pyproject.toml", tree)
    package = folder / "path" / "tilewright"
    package.mkdir(parents=True)
    for path in (repository / "api").iterdir():
        (package / path.name).symlink_to(path)
    folders = ("compiler", "cpu_gpu_backends", "hw", "isa", "runtime", "sim")
    for name in folders:
        (package / name).symlink_to(repository / name)
    (package / "boards").symlink_to(tree / "boards")
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder)}
    subprocess.run(["git", "apply", str(PAGE)], cwd=tree, env=environment, check=True)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        path = {**os.environ, "PYTHONPATH": str(folder / "path")}
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=tree, env=path, capture_output=True, text=True)

    return run


def test_a_board_touches_one_file(repository: Path) -> None:
    page = (repository / PAGE).read_text(encoding="utf-8")
    assert re.findall(r"^\+\+\+ b/(.*)$", page, re.MULTILINE) == ["boards/catalogue.py"]


def test_the_new_board_passes_the_tests_of_all_boards(
    python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    files = [f"tests/boards/test_{name}.py" for name in ("catalogue", "hwh", "vivado")]
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", NAME)
    assert done.returncode == 0, done.stdout
    assert re.search(r"^(5 passed|4 passed, 1 skipped)", done.stdout, re.MULTILINE), done.stdout


def test_the_new_board_is_built(
    python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    words = ["build", "--board", NAME, "--config", "tiny", "--dry-run", "-o", str(tmp_path)]
    done = python("-m", "tilewright", *words)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "config.json").read_text())
    assert record["board"] == NAME
    assert record["clock"] == {"mhz": 50.0, "pll": "IO_PLL", "divisors": [5, 4]}


def test_an_impossible_clock_is_told_with_the_nearest(
    python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    words = ["build", "--board", NAME, "--config", "pynq", "--dry-run", "-o", str(tmp_path)]
    done = python("-m", "tilewright", *words)
    assert done.returncode == 2
    assert "Zybo Z7-20 cannot make a clock of 150 MHz, the nearest below is 148.148" in done.stderr
