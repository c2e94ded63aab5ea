"""Imports point only from a layer to those below it; third-party packages stay in their place."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What the modules of one folder may import, the standard library and themselves aside."""

    ours: frozenset[str]
    third_party: frozenset[str]


def layer(ours: str = "", third_party: str = "") -> Layer:
    return Layer(ours=frozenset(ours.split()), third_party=frozenset(third_party.split()))


EVERYWHERE = frozenset({"numpy", "typing_extensions"})

LAYERS = {
    "isa": layer(),
    "hw": layer("isa", "amaranth"),
    "sim": layer("isa"),
    "compiler": layer("isa"),
    "cpu_gpu_backends": layer("isa compiler", "llvmlite"),
    "runtime": layer("isa compiler sim cpu_gpu_backends"),
    "boards": layer("isa hw", "amaranth amaranth_boards"),
    "api": layer(
        "isa hw sim compiler cpu_gpu_backends runtime boards",
        "PIL joblib rich tomli tomllib",  # the standard library has tomllib from Python 3.11 on
    ),
}

#: What files of a matching path, relative to the repository, may import besides.
EXCEPTIONS = {
    "sim/rtl*": layer("hw"),
    "compiler/readers/*": layer("", "flatbuffers google onnx tflite"),
    "compiler/writers/*": layer("", "onnx"),
    "runtime/torch_model.py": layer("", "torch"),
    "runtime/model.py": layer("", "torch"),  # for annotations only
    "runtime/quantisation.py": layer("", "torch"),  # for annotations only
    "compiler/tuning/*": layer("", "joblib sklearn"),
    "runtime/board_pynq.py": layer("", "pynq"),
    "runtime/serial_line.py": layer("", "serial"),
    "cpu_gpu_backends/energy.py": layer("", "pynvml"),
    "cpu_gpu_backends/gpu/opencl_device.py": layer("", "pyopencl"),
    "cpu_gpu_backends/gpu/cuda_device.py": layer("", "cuda"),
    "cpu_gpu_backends/gpu/nvrtc.py": layer("", "cuda"),
}


def imported_modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and absolute name of everything that a module imports, at any depth.

    A name taken from a package may be a module, so ``from a import b`` yields ``a.b``. A relative
    import keeps its leading dots.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                prefix = "." * level + (f"{module}." if module else "")
                yield from ((node.lineno, prefix + alias.name) for alias in names)
            case ast.Call(func=ast.Attribute(attr="import_module") | ast.Name(id="__import__")):
                yield node.lineno, "(computed at run time)"


def folder_of(name: str) -> str:
    """Return the folder that holds ``tilewright.*`` module `name`."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS else "api"


def allowed(path: PurePosixPath) -> tuple[frozenset[str], frozenset[str]]:
    """Return the folders of ours and the third-party packages that a file may import."""
    home = LAYERS[path.parts[0]]
    extra = [rule for pattern, rule in EXCEPTIONS.items() if path.match(pattern)]
    ours = home.ours.union({path.parts[0]}, *(rule.ours for rule in extra))
    return ours, EVERYWHERE.union(home.third_party, *(rule.third_party for rule in extra))


def violations(path: PurePosixPath, source: str) -> list[str]:
    """List the imports of one file that break the table."""
    ours, third_party = allowed(path)
    found = []
    for line, name in imported_modules(ast.parse(source)):
        top = name.split(".")[0]
        if top == "tilewright":
            legal = folder_of(name) in ours
        else:
            legal = top in third_party or top in sys.stdlib_module_names
        if not legal:
            found.append(f"{path}:{line} imports {name}")
    return found


def test_every_import_points_down(repository: Path) -> None:
    found = []
    for folder in LAYERS:
        files = sorted((repository / folder).rglob("*.py"))
        assert files, f"{folder}/ holds no module"
        for file in files:
            path = PurePosixPath(file.relative_to(repository).as_posix())
            found += violations(path, file.read_text(encoding="utf-8"))
    assert found == []


@pytest.mark.parametrize(
    ("path", "source", "imported"),
    [
        ("isa/a.py", "import tilewright.sim.b", "tilewright.sim.b"),
        ("isa/a.py", "from tilewright.compiler import graph", "tilewright.compiler.graph"),
        ("isa/a.py", "from tilewright import hw", "tilewright.hw"),
        ("sim/a.py", "import tilewright", "tilewright"),
        ("sim/a.py", "from tilewright import load", "tilewright.load"),
        ("sim/a.py", "def f():\n    import tilewright.compiler", "tilewright.compiler"),
        ("sim/engine.py", "import tilewright.hw.core", "tilewright.hw.core"),
        ("hw/a.py", "from tilewright.sim import b", "tilewright.sim.b"),
        ("compiler/a.py", "import tilewright.runtime", "tilewright.runtime"),
        ("compiler/a.py", "import onnx", "onnx"),
        ("compiler/readers/a.py", "import onnxruntime", "onnxruntime"),
        ("isa/a.py", "from isa import integers", "isa.integers"),
        ("isa/a.py", "from . import integers", ".integers"),
        ("isa/a.py", "from .integers import requantize", ".integers.requantize"),
        ("isa/a.py", "importlib.import_module(name)", "(computed at run time)"),
        ("isa/a.py", "__import__('onnx')", "(computed at run time)"),
    ],
)
def test_a_forbidden_import_is_found(path: str, source: str, imported: str) -> None:
    (found,) = violations(PurePosixPath(path), source)
    assert found == f"{path}:{source.count(chr(10)) + 1} imports {imported}"


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("isa/a.py", "import dataclasses, numpy.typing\nfrom tilewright.isa.errors import E"),
        ("sim/rtl.py", "from tilewright.hw.core import Core"),
        ("sim/rtl_build.py", "import tilewright.hw"),
        ("compiler/readers/a.py", "import onnx.numpy_helper\nimport tflite"),
        ("runtime/a.py", "from tilewright.sim.machine import Machine"),
        ("api/cli.py", "import rich.table\nimport tilewright.boards\nimport tilewright as tw"),
    ],
)
def test_an_allowed_import_is_not_found(path: str, source: str) -> None:
    assert violations(PurePosixPath(path), source) == []
