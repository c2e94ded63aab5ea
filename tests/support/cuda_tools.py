"""NVRTC and ptxas from the wheels of CUDA, wherever on the path they are installed."""

import ctypes
import importlib.util
import subprocess
from pathlib import Path

import pytest

from tilewright.cpu_gpu_backends.gpu.device import Capability

#: Generations that kernels are compiled for: Pascal, Turing, Ampere, Hopper.
GENERATIONS = (61, 75, 80, 90)


def capability(generation: int) -> Capability:
    """What a small GPU of a generation can do (CUDA C++ Programming Guide, technical data)."""
    return Capability(
        name="GPU",
        identity=f"sm_{generation}",
        threads_per_block=1024,
        block_extents=(1024, 1024, 64),
        shared_bytes=48 * 1024,
        memory_bytes=8 << 30,
        units=40,
        generation=generation,
    )


def require_nvrtc() -> None:
    """Load NVRTC, or skip the test."""
    for library in sorted(_folder("cuda_nvrtc", "lib").glob("libnvrtc.so.*")):
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the package cuda-python")


def assemble(ptx: bytes, generation: int, folder: Path) -> str:
    """Return what ptxas says about `ptx`: registers, spills and shared memory per kernel."""
    tool = _folder("cuda_nvcc", "bin") / "ptxas"
    source = folder / f"kernels_{generation}.ptx"
    source.write_bytes(ptx.rstrip(b"\0"))
    command = [tool, "-v", f"-arch=sm_{generation}", source, "-o", source.with_suffix(".cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stderr


def _folder(package: str, part: str) -> Path:
    spec = importlib.util.find_spec("nvidia")
    locations = [] if spec is None else list(spec.submodule_search_locations or ())
    for location in locations:
        folder = Path(location) / package / part
        if folder.is_dir():
            return folder
    return pytest.skip(f"needs the wheel nvidia-{package.replace('_', '-')}-cu12")
