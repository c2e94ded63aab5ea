"""What a board needs: compiled models run without the packages that have no wheel for it."""

import subprocess
import sys

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
