"""The patch in `docs/extending.md` applies to the tree, and the tree with it passes its tests."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path("docs", "extending.md")
#: What the patch changes or its tests read.
COPIED = ("boards", "compiler", "cpu_gpu_backends", "docs", "hw", "isa", "runtime", "sim", "tests")


class Extended:
    """A copy of the checkout with the patch of the page applied.

    Parameters
    ----------
    folder
        An empty folder.
    """

    def __init__(self, repository: Path, folder: Path) -> None:
        self.tree = folder / "tree"
        self._path = folder / "path"
        for name in ("api", *COPIED):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(repository / name, self.tree / name, ignore=ignored)
        shutil.copy(repository / "pyproject.toml", self.tree)
        package = self._path / "tilewright"
        package.mkdir(parents=True)
        for path in (self.tree / "api").iterdir():
            (package / path.name).symlink_to(path)
        for name in COPIED:
            (package / name).symlink_to(self.tree / name)
        # a repository around the folder would make git look for the files in its own root
        self._run("git", "apply", str(PAGE), GIT_CEILING_DIRECTORIES=str(folder))

    def python(self, *arguments: str) -> str:
        """Run Python in the copy, which imports the copy's packages, and return what it prints."""
        return self._run(sys.executable, *arguments, PYTHONPATH=str(self._path))

    def _run(self, *command: str, **environment: str) -> str:
        done = subprocess.run(
            command,
            cwd=self.tree,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def extended(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Extended:
    if shutil.which("git") is None:
        pytest.skip("needs git, which applies the patch")
    return Extended(repository, tmp_path_factory.mktemp("extended"))


def test_the_patch_applies_and_the_operation_means_what_the_page_says(extended: Extended) -> None:
    tests = "tests/isa/test_semantics.py"
    selected = "test_magnitudes_wrap_around or test_random_vector"
    extended.python("-m", "pytest", "-q", "-p", "no:cacheprovider", tests, "-k", selected)


def test_a_schedule_reaches_the_operation(extended: Extended, tmp_path: Path) -> None:
    page = (extended.tree / PAGE).read_text(encoding="utf-8")
    shown = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
    ((code, printed),) = shown.findall(page)
    script = tmp_path / "schedule.py"
    script.write_text(code, encoding="utf-8")
    assert extended.python(str(script)) == printed


def test_every_changed_file_is_explained(repository: Path) -> None:
    page = (repository / PAGE).read_text(encoding="utf-8")
    changed = re.findall(r"^\+\+\+ b/(.*)$", page, re.MULTILINE)
    table = page[: page.index("```diff")]
    assert changed
    assert sorted(re.findall(r"^\| `(\S+)` \|", table, re.MULTILINE)) == changed


@pytest.mark.slow
def test_the_patched_tree_passes_its_tests(extended: Extended) -> None:
    page = extended.python("-m", "tilewright", "isa")
    (extended.tree / "docs" / "isa.md").write_text(page, encoding="utf-8")
    tests = ("tests/isa", "tests/hw/test_vector.py", "tests/sim/test_rtl.py")
    extended.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
