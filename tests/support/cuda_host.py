"""A device that runs CUDA C on the processor, barriers and matrix instructions included."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.cpu_gpu_backends.gpu.device import Capability, check_fits
from tilewright.cpu_gpu_backends.gpu.dialects import CUDA, CUDA_MACHINE, Dialect
from tilewright.cpu_gpu_backends.gpu.kernels import Kernel

_HEADER = Path(__file__).with_name("cuda_host.hpp")


@dataclass(kw_only=True)
class HostBuffer:
    memory: np.ndarray

    @property
    def size_bytes(self) -> int:
        return self.memory.size

    def part(self, offset_bytes: int, size_bytes: int) -> "HostBuffer":
        return HostBuffer(memory=self.memory[offset_bytes : offset_bytes + size_bytes])

    def release(self) -> None:
        pass


@dataclass(kw_only=True)
class HostKernel:
    kernel: Kernel
    function: Any

    def launch(self, buffers: Sequence[HostBuffer]) -> None:
        pointers = (ctypes.c_void_p * len(buffers))(*(one.memory.ctypes.data for one in buffers))
        sizes = (ctypes.c_int * 6)(*self.kernel.grid, *self.kernel.block)
        self.function(sizes, pointers)


class HostCudaDevice:
    """A small GPU of a generation, as far as its kernels can tell."""

    def __init__(self, folder: Path, generation: int = 0) -> None:
        if shutil.which("g++") is None:
            pytest.skip("needs a C++ compiler")
        self._folder = folder
        self._loads = 0
        self.capability = Capability(
            name="host",
            identity="host",
            threads_per_block=1024,
            block_extents=(1024, 1024, 64),
            shared_bytes=48 * 1024,
            memory_bytes=1 << 30,
            units=4,
            generation=generation,
        )

    @property
    def dialect(self) -> Dialect:
        return CUDA

    def load(self, kernels: tuple[Kernel, ...], source: str) -> tuple[HostKernel, ...]:
        for kernel in kernels:
            check_fits(kernel, self.capability)
        self._loads += 1
        name = self._folder / f"kernels{self._loads}"
        text = source.replace(CUDA_MACHINE, f'#include "{_HEADER}"\n')
        assert text != source, "the header stands for the dialect's own functions"
        text += "\n".join(map(_entry, kernels))
        name.with_suffix(".cpp").write_text(text)
        # Contraction and overflow as the dialect's compiler has them.
        flags = [
            f"-D__CUDA_ARCH__={10 * self.capability.generation}",
            "-O1",
            "-w",
            "-std=c++17",
            "-fPIC",
            "-shared",
            "-fwrapv",
            "-ffp-contract=off",
        ]
        command = ["g++", *flags, "-fno-strict-aliasing", name.with_suffix(".cpp"), "-o"]
        subprocess.run([*command, name.with_suffix(".so")], check=True, timeout=300)
        library = ctypes.CDLL(str(name.with_suffix(".so")))
        return tuple(
            HostKernel(kernel=kernel, function=getattr(library, f"run_{kernel.name}"))
            for kernel in kernels
        )

    def allocate(self, size_bytes: int) -> HostBuffer:
        # Where nobody has written, kernels find what no test expects.
        whole = np.full(size_bytes + 512, 0x5A, np.uint8)
        start = -whole.ctypes.data % 512
        return HostBuffer(memory=whole[start : start + size_bytes])

    def upload(self, buffer: HostBuffer, values: np.ndarray) -> None:
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        buffer.memory[: data.size] = data

    def download(self, buffer: HostBuffer, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return buffer.memory[:size].copy().view(dtype).reshape(shape)

    def synchronise(self) -> None:
        pass

    def record(self, launches: Callable[[], None]) -> Callable[[], None]:
        return launches

    def meter(self) -> None:
        return None

    def close(self) -> None:
        pass


def _entry(kernel: Kernel) -> str:
    """Return a function that takes the extents of a launch and pointers to the buffers."""
    arguments = ", ".join(
        f"({CUDA.types[parameter.tensor.dtype]} *)p[{number}]"
        for number, parameter in enumerate(kernel.parameters)
    )
    call = f"{kernel.name}({arguments})"
    return (
        f'extern "C" void run_{kernel.name}(const int *sizes, void **p) '
        f"{{ launch(sizes, sizes + 3, [=] {{ {call}; }}); }}"
    )
