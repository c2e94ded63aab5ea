"""What a board needs: compiled models run without the packages that have no wheel for it."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.inputs import random_inputs

#: Packages without a wheel for 32-bit ARM, or that only readers, hardware and tools need.
ABSENT = ("onnx", "onnxruntime", "google", "flatbuffers", "tflite", "amaranth", "PIL", "llvmlite")

CODE = """
import sys
for name in {absent}:
    sys.modules[name] = None
from tilewright.cli import main
sys.exit(main({words}))
"""


def run_without(absent: tuple[str, ...], *words: str) -> subprocess.CompletedProcess[str]:
    code = CODE.format(absent=absent, words=list(words))
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )


def test_a_compiled_model_runs(compiled_file: str) -> None:
    done = run_without(ABSENT, "run", compiled_file)
    assert done.returncode == 0, done.stderr
    assert "cycles" in done.stdout


def test_a_board_without_pynq_is_told() -> None:
    done = run_without((*ABSENT, "pynq"), "serve", "--device", "pynq")
    assert done.returncode == 2
    assert done.stderr.startswith("tilewright: device pynq needs the package pynq")


def test_a_board_tests_itself() -> None:
    done = run_without(ABSENT, "selftest")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("the timing model of tiny needs no change\n")


#: What a board's image has, or pip installs there, besides tilewright itself.
PRESENT = ("numpy", "typing_extensions", "rich", "tomli")


@pytest.fixture(scope="module")
def old_python(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Python 3.10 with the packages of a board; PYNQ 3.0 has that version."""
    python = shutil.which("python3.10")
    if python is None:
        pytest.skip("needs Python 3.10 on the path")
    folder = tmp_path_factory.mktemp("python")
    made = subprocess.run([python, "-m", "venv", folder], capture_output=True, check=False)
    pip = [str(folder / "bin/pip"), "install", "-q", *PRESENT]
    if made.returncode or subprocess.run(pip, capture_output=True, check=False).returncode:
        pytest.skip("needs a Python 3.10 that makes environments, and a package index")
    return [str(folder / "bin/python")]


@pytest.fixture(scope="module")
def other_python() -> list[str]:
    """Another computer's Python with numpy and rich, such as an ARM one that QEMU runs."""
    command = os.environ.get("TILEWRIGHT_BOARD_PYTHON")
    if not command:
        pytest.skip("TILEWRIGHT_BOARD_PYTHON names no other Python; see docs/boards.md")
    return shlex.split(command)


@pytest.mark.slow
@pytest.mark.parametrize("python", ["old_python", "other_python"])
def test_another_python_runs_it(
    python: str, request: pytest.FixtureRequest, tmp_path: Path, compiled_file: str
) -> None:
    """Nothing but the packages of a board is there; cycles and bytes are those of this computer."""
    command = request.getfixturevalue(python)
    (tmp_path / "tilewright").symlink_to(Path(tilewright.__file__).parent)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from tilewright.cli import main\nsys.exit(main(sys.argv[1:]))"
    )

    def run(*words: str) -> str:
        done = subprocess.run(
            [*command, "-c", code, *words], capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("selftest").endswith("the timing model of tiny needs no change\n")
    there = json.loads(run("run", compiled_file, "--json", "-"))
    here = subprocess.run(
        [sys.executable, "-m", "tilewright", "run", compiled_file, "--json", "-"],
        capture_output=True,
        check=True,
    )
    expected = json.loads(here.stdout)
    for name in ("cycles", "layers", "outputs", "dram_read_bytes", "dram_write_bytes"):
        assert there[name] == expected[name]


@pytest.mark.slow
def test_an_arm_processor_takes_host_steps_from_the_file(
    other_python: list[str], tmp_path: Path, compiled_file: str
) -> None:
    """The code was linked elsewhere, against another C library, and the outputs keep every bit."""
    if shutil.which("arm-linux-gnueabihf-gcc") is None:
        pytest.skip("needs arm-linux-gnueabihf-gcc")
    (tmp_path / "tilewright").symlink_to(Path(tilewright.__file__).parent)
    coded = CompiledModel.load(compiled_file).with_host_code("cortex-a9")
    coded.save(tmp_path / "coded.tw")
    inputs = random_inputs(coded.graph, 0)
    np.savez(tmp_path / "inputs.npz", **inputs)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import numpy as np\n"
        "from tilewright.runtime.compiled_model import CompiledModel\n"
        f"model = CompiledModel.load({str(tmp_path / 'coded.tw')!r})\n"
        f"outputs = model.run(dict(np.load({str(tmp_path / 'inputs.npz')!r}))).outputs\n"
        f"np.savez({str(tmp_path / 'outputs.npz')!r}, **outputs)\n"
        "print(len(model.libraries._loaded))"
    )
    done = subprocess.run(
        [*other_python, "-c", code], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    assert coded.libraries.code is not None
    assert int(done.stdout) == len(coded.libraries.code.libraries) > 0
    found = np.load(tmp_path / "outputs.npz")
    for name, values in coded.run(inputs, "reference").outputs.items():
        np.testing.assert_array_equal(found[name], values)
