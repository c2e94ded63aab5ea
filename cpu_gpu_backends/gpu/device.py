"""What runs kernels: one protocol for OpenCL and CUDA, and how it says what went wrong."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.cpu_gpu_backends.energy import Meter
from tilewright.cpu_gpu_backends.gpu.dialects import Dialect
from tilewright.cpu_gpu_backends.gpu.kernels import Kernel
from tilewright.isa.errors import TilewrightError

Array: TypeAlias = npt.NDArray[Any]


#: The first generation that copies to shared memory by itself.
_COPYING_GENERATION = 80


class DeviceError(TilewrightError):
    """A GPU, or what drives it, is missing, lost, too small, or refuses a kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """What a device can do.

    Attributes
    ----------
    name
        How the device calls itself.
    identity
        Everything that compiled code depends on: device, driver, platform.
    threads_per_block, block_extents
        The most threads of a block, in all and along each axis.
    shared_bytes
        Memory that the threads of a block share.
    units
        Multiprocessors or compute units.
    is_processor
        Whether it is no GPU but the processor of this computer.
    generation
        The compute capability of a CUDA device, ``75`` for 7.5; 0 for any other one.
    """

    name: str
    identity: str
    threads_per_block: int
    block_extents: tuple[int, int, int]
    shared_bytes: int
    memory_bytes: int
    units: int
    generation: int = 0
    is_processor: bool = False

    @property
    def fetches_ahead(self) -> bool:
        """Whether copies to shared memory need no thread to wait for them (PTX ISA, cp.async)."""
        return self.generation >= _COPYING_GENERATION


class Buffer(Protocol):
    """Memory of a device, or a part of one."""

    @property
    def size_bytes(self) -> int:
        """Size."""

    def part(self, offset_bytes: int, size_bytes: int) -> "Buffer":
        """Return a part, which begins at a multiple of `PART_ALIGNMENT`."""

    def release(self) -> None:
        """Give the memory back."""


#: Bytes: where parts of a buffer may begin on any device.
PART_ALIGNMENT = 512


class LoadedKernel(Protocol):
    """A kernel that a device can launch."""

    def launch(self, buffers: Sequence[Buffer]) -> None:
        """Enqueue one launch, `buffers` being its parameters in order."""


class KernelDevice(Protocol):
    """A device that compiles and launches kernels; launches run in the order of the calls."""

    @property
    def capability(self) -> Capability:
        """What it can do."""

    @property
    def dialect(self) -> Dialect:
        """The language of its kernels."""

    def load(self, kernels: tuple[Kernel, ...], source: str) -> tuple[LoadedKernel, ...]:
        """Compile `source`, which holds `kernels`.

        Raises
        ------
        DeviceError
            If the compiler refuses it or a kernel needs more than the device has.
        """

    def allocate(self, size_bytes: int) -> Buffer:
        """Return memory.

        Raises
        ------
        DeviceError
            If there is not enough.
        """

    def upload(self, buffer: Buffer, values: Array) -> None:
        """Copy `values` to the beginning of `buffer`."""

    def download(self, buffer: Buffer, dtype: "np.dtype[Any]", shape: tuple[int, ...]) -> Array:
        """Wait for all launches and return what `buffer` begins with."""

    def synchronise(self) -> None:
        """Wait for all launches."""

    def record(self, launches: Callable[[], None]) -> Callable[[], None]:
        """Return what does the same launches again, at less cost where the device has a way."""

    def meter(self) -> Meter | None:
        """Return what counts the energy of the device; None where nothing does."""

    def close(self) -> None:
        """Give everything back."""


def fits(kernel: Kernel, capability: Capability) -> bool:
    """Whether a launch needs no more than the device has."""
    return _threads_fit(kernel, capability) and kernel.shared_bytes <= capability.shared_bytes


def _threads_fit(kernel: Kernel, capability: Capability) -> bool:
    limits = zip(kernel.block, capability.block_extents, strict=True)
    return kernel.threads <= capability.threads_per_block and all(
        own <= most for own, most in limits
    )


def check_fits(kernel: Kernel, capability: Capability) -> None:
    """Raise `DeviceError` if a launch needs more than the device has."""
    if not _threads_fit(kernel, capability):
        raise DeviceError(
            f"kernel {kernel.name!r} needs blocks of {' x '.join(map(str, kernel.block))} threads, "
            f"{capability.name} allows {capability.threads_per_block}"
        )
    if kernel.shared_bytes > capability.shared_bytes:
        raise DeviceError(
            f"kernel {kernel.name!r} needs {kernel.shared_bytes:,} bytes of shared memory, "
            f"{capability.name} has {capability.shared_bytes:,}"
        )


def shape_bytes(shape: tuple[int, ...], dtype: "np.dtype[Any]") -> int:
    """Return the size of an array in bytes."""
    return prod(shape) * int(dtype.itemsize)
