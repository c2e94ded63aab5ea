"""The distribution holds the whole tree under ``tilewright``, and importing that is cheap."""

import fnmatch
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Names of our folders, which must never become modules of a user's interpreter.
FOLDERS = frozenset(
    {"api", "boards", "compiler", "cpu_gpu_backends", "hw", "isa", "runtime", "sim"}
)

#: Packages that only a command which needs them pays for.
LAZY = frozenset({"amaranth", "flatbuffers", "llvmlite", "onnx", "PIL", "rich", "tflite"})

IMPORT_EVERYTHING = """
import importlib, pkgutil, sys, tilewright
def stop(name):
    raise ImportError(name)
for module in pkgutil.walk_packages(tilewright.__path__, "tilewright.", onerror=stop):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(*sorted(sys.modules))
"""


@pytest.fixture(scope="module")
def setuptools_table(repository: Path) -> dict[str, Any]:
    with (repository / "pyproject.toml").open("rb") as file:
        table: dict[str, Any] = tomllib.load(file)["tool"]["setuptools"]
    return table


@pytest.fixture(scope="module")
def folders(repository: Path, setuptools_table: dict[str, Any]) -> dict[str, Path]:
    """The folder of every package that the tree holds."""
    found: dict[str, Path] = {}
    for package, root in setuptools_table["package-dir"].items():
        for init in (repository / root).rglob("__init__.py"):
            below = init.parent.relative_to(repository / root).parts
            found[".".join([package, *below])] = init.parent
    return found


def run(code: str, folder: Path) -> str:
    """Run code in a fresh interpreter whose working directory holds nothing of ours."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def test_every_folder_is_mapped(repository: Path, setuptools_table: dict[str, Any]) -> None:
    below = {f"tilewright.{name}": name for name in FOLDERS - {"api"}}
    assert setuptools_table["package-dir"] == {"tilewright": "api", **below}
    assert all((repository / name).is_dir() for name in FOLDERS)


def test_package_list_equals_the_tree(
    setuptools_table: dict[str, Any], folders: dict[str, Path]
) -> None:
    assert setuptools_table["packages"] == sorted(folders)


def test_every_file_is_installed(
    repository: Path, setuptools_table: dict[str, Any], folders: dict[str, Path]
) -> None:
    data = setuptools_table["package-data"]
    package_of = {folder: package for package, folder in folders.items()}
    left_out = []
    for name in FOLDERS:
        for file in (repository / name).rglob("*"):
            if file.is_dir() or "__pycache__" in file.parts:
                continue
            package = package_of.get(file.parent)
            patterns = ["*.py", *data.get(package, [])]
            if package is None or not any(fnmatch.fnmatch(file.name, p) for p in patterns):
                left_out.append(file.relative_to(repository).as_posix())
    assert left_out == []


def test_no_folder_name_becomes_a_module(tmp_path: Path, folders: dict[str, Path]) -> None:
    modules = set(run(IMPORT_EVERYTHING, tmp_path).split())
    assert modules.isdisjoint(FOLDERS)
    assert modules.issuperset(folders)


def test_importing_tilewright_leaves_heavy_packages_alone(tmp_path: Path) -> None:
    modules = set(run("import sys, tilewright; print(*sys.modules)", tmp_path).split())
    assert "tilewright" in modules
    assert modules.isdisjoint(LAZY)


def test_importing_tilewright_costs_little_more_than_numpy(tmp_path: Path) -> None:
    code = (
        "import time; start = time.perf_counter(); import numpy; middle = time.perf_counter();"
        "import tilewright; print(time.perf_counter() - middle)"
    )
    assert min(float(run(code, tmp_path)) for _ in range(5)) < 0.3
