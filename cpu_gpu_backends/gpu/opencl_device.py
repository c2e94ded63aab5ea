"""OpenCL devices, through pyopencl."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.cpu_gpu_backends.energy import Meter, processor_meter
from tilewright.cpu_gpu_backends.gpu.device import (
    PART_ALIGNMENT,
    Array,
    Buffer,
    Capability,
    DeviceError,
    LoadedKernel,
    check_fits,
    shape_bytes,
)
from tilewright.cpu_gpu_backends.gpu.dialects import OPENCL, Dialect
from tilewright.cpu_gpu_backends.gpu.kernel_cache import KernelCache
from tilewright.cpu_gpu_backends.gpu.kernels import Kernel

_DOUBLE = "cl_khr_fp64"
#: What every device can compile.
_PROBE = "__kernel void probe(__global int *x) { x[get_global_id(0)] = 1; }"


@dataclass(kw_only=True, eq=False)
class OpenClBuffer:
    """A buffer, or a part of one."""

    memory: Any
    size_bytes: int

    def part(self, offset_bytes: int, size_bytes: int) -> "OpenClBuffer":
        """Return a part, which begins at a multiple of `PART_ALIGNMENT`."""
        assert offset_bytes % PART_ALIGNMENT == 0, "parts begin at boundaries"
        memory = self.memory.get_sub_region(offset_bytes, size_bytes)
        return OpenClBuffer(memory=memory, size_bytes=size_bytes)

    def release(self) -> None:
        """Give the memory back."""
        self.memory.release()


@dataclass(kw_only=True, eq=False)
class _OpenClKernel:
    device: "OpenClDevice"
    kernel: Kernel
    function: Any

    def launch(self, buffers: Sequence[Buffer]) -> None:
        """Enqueue one launch."""
        memories = [_own(buffer).memory for buffer in buffers]
        sizes = zip(self.kernel.grid, self.kernel.block, strict=True)
        everything = tuple(blocks * threads for blocks, threads in sizes)
        with _reported(f"kernel {self.kernel.name!r}", self.device.capability.name):
            self.function(self.device.queue, everything, self.kernel.block, *memories)


def _own(buffer: Buffer) -> OpenClBuffer:
    assert isinstance(buffer, OpenClBuffer), "a device is given its own buffers"
    return buffer


class OpenClDevice:
    """One OpenCL device with a queue that runs launches in order.

    Parameters
    ----------
    cache
        The folder that compiled kernels are kept in.
    optimise
        Whether the driver's compiler optimises; without, it takes a sixth of the time.

    Raises
    ------
    DeviceError
        If pyopencl is missing or there is no device.
    """

    def __init__(self, cache: Path | None = None, *, optimise: bool = True) -> None:
        cl = _pyopencl()
        self._device = _find_device(cl)
        with _reported("the context", self._device.name):
            self._context = cl.Context([self._device])
            self.queue = cl.CommandQueue(self._context)
        self._cache = KernelCache(folder=cache)
        self.capability = _capability(cl, self._device)
        self._options = tuple(_build_options(cl, self._device))
        if not optimise:
            self._options = (*self._options, "-cl-opt-disable")

    @property
    def dialect(self) -> Dialect:
        """The language of its kernels."""
        return OPENCL

    def load(self, kernels: tuple[Kernel, ...], source: str) -> tuple[LoadedKernel, ...]:
        """Compile `source`, which holds `kernels`; see `KernelDevice.load`."""
        cl = _pyopencl()
        for kernel in kernels:
            check_fits(kernel, self.capability)
        parts = (source, *self._options, self.capability.identity)
        binary = self._cache.get(parts, lambda: self._compiled(source))
        try:
            program = cl.Program(self._context, [self._device], [binary])
            program.build(options=list(self._options))
        except cl.Error:
            # A driver may refuse a binary of its own, for example after a change of settings.
            self._cache.forget(parts)
            program = self._program(source)
        return tuple(
            _OpenClKernel(device=self, kernel=kernel, function=cl.Kernel(program, kernel.name))
            for kernel in kernels
        )

    def _compiled(self, source: str) -> bytes:
        cl = _pyopencl()
        binary: bytes = self._program(source).get_info(cl.program_info.BINARIES)[0]
        return binary

    def _program(self, source: str) -> Any:
        cl = _pyopencl()
        try:
            return cl.Program(self._context, source).build(
                options=list(self._options), cache_dir=False
            )
        except cl.Error as error:
            raise DeviceError(
                f"{self.capability.name} cannot compile a kernel: {_first_complaint(str(error))}"
            ) from error

    def allocate(self, size_bytes: int) -> OpenClBuffer:
        """Return memory; see `KernelDevice.allocate`."""
        cl = _pyopencl()
        if size_bytes > self.capability.memory_bytes:
            raise DeviceError(
                f"{self.capability.name} has {self.capability.memory_bytes:,} bytes of memory, "
                f"{size_bytes:,} are needed"
            )
        with _reported(f"a buffer of {size_bytes:,} bytes", self.capability.name):
            memory = cl.Buffer(self._context, cl.mem_flags.READ_WRITE, max(size_bytes, 1))
        return OpenClBuffer(memory=memory, size_bytes=size_bytes)

    def upload(self, buffer: Buffer, values: Array) -> None:
        """Copy `values` to the beginning of `buffer`."""
        if values.size:
            data = np.ascontiguousarray(values)
            with _reported("an upload", self.capability.name):
                _pyopencl().enqueue_copy(self.queue, _own(buffer).memory, data)

    def download(self, buffer: Buffer, dtype: "np.dtype[Any]", shape: tuple[int, ...]) -> Array:
        """Wait for all launches and return what `buffer` begins with."""
        values = np.empty(shape, dtype)
        if shape_bytes(shape, dtype):
            with _reported("a download", self.capability.name):
                _pyopencl().enqueue_copy(self.queue, values, _own(buffer).memory)
        return values

    def synchronise(self) -> None:
        """Wait for all launches."""
        with _reported("waiting", self.capability.name):
            self.queue.finish()

    def record(self, launches: Callable[[], None]) -> Callable[[], None]:
        """Return `launches`: OpenCL 1.2 cannot record them."""
        return launches

    def meter(self) -> Meter | None:
        """Return what counts the energy where the device is the processor."""
        return processor_meter() if self.capability.is_processor else None

    def close(self) -> None:
        """Nothing is held beyond this object's life."""


def _pyopencl() -> Any:
    try:
        import pyopencl
    except ImportError as error:
        raise DeviceError(
            "device 'opencl' needs the package pyopencl",
            hint="pip install 'tilewright[opencl]'",
        ) from error
    return pyopencl


def _find_device(cl: Any) -> Any:
    """Return the first GPU, or where there is none the first device that compiles kernels.

    A PoCL older than the processor that it runs on is a device, and compiles nothing.
    """
    try:
        devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error:
        devices = []
    if not devices:
        raise DeviceError(
            "no OpenCL device is installed on this computer",
            hint="install the driver of the GPU, or PoCL to use the processor",
        )
    gpus = [device for device in devices if device.type & cl.device_type.GPU]
    if gpus:
        return gpus[0]
    complaints = []
    for device in devices:
        try:
            cl.Program(cl.Context([device]), _PROBE).build()
        except cl.Error as error:
            complaints.append(f"{device.name.strip()}: {_first_complaint(str(error))}")
        else:
            return device
    raise DeviceError(
        f"no OpenCL device of this computer compiles a kernel: {'; '.join(complaints)}",
        hint="install a PoCL that knows this processor, for example Debian's pocl-opencl-icd",
    )


def _capability(cl: Any, device: Any) -> Capability:
    extents = tuple(device.max_work_item_sizes[:3])
    return Capability(
        name=device.name.strip(),
        identity="\n".join((device.platform.version, device.name, device.driver_version)),
        threads_per_block=device.max_work_group_size,
        block_extents=(extents[0], extents[1], extents[2]),
        shared_bytes=device.local_mem_size,
        memory_bytes=device.global_mem_size,
        units=device.max_compute_units,
        is_processor=bool(device.type & cl.device_type.CPU),
    )


def _build_options(cl: Any, device: Any) -> Iterator[str]:
    modern = tuple(map(int, device.version.split()[1].split("."))) >= (3, 0)
    yield "-cl-std=CL3.0" if modern else "-cl-std=CL1.2"
    exact = cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
    if device.single_fp_config & exact:
        yield "-cl-fp32-correctly-rounded-divide-sqrt"
        yield "-DTW_EXACT_DIVISION"
    elif _DOUBLE not in device.extensions.split():
        raise DeviceError(
            f"{device.name.strip()} does not round divisions correctly and has no float64 to do so"
        )


def _first_complaint(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if "error" in line.lower()]
    wanted = [line for line in lines if "error:" in line] or lines or [log.strip()]
    return wanted[0][:200]


@contextmanager
def _reported(what: str, device: str) -> Iterator[None]:
    """Turn errors of OpenCL into one sentence about `what` on `device`."""
    cl = _pyopencl()
    try:
        yield
    except cl.MemoryError as error:
        raise DeviceError(f"{device} is out of memory at {what}") from error
    except cl.Error as error:
        raise DeviceError(f"{device} failed at {what}: {_first_complaint(str(error))}") from error
