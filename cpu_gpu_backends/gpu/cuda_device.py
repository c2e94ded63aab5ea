"""CUDA devices, through the driver's interface; kernels are compiled by NVRTC."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.cpu_gpu_backends.energy import Meter, cuda_meter
from tilewright.cpu_gpu_backends.gpu.device import (
    PART_ALIGNMENT,
    Array,
    Buffer,
    Capability,
    DeviceError,
    LoadedKernel,
    check_fits,
)
from tilewright.cpu_gpu_backends.gpu.dialects import CUDA, Dialect
from tilewright.cpu_gpu_backends.gpu.kernel_cache import KernelCache
from tilewright.cpu_gpu_backends.gpu.kernels import Kernel
from tilewright.cpu_gpu_backends.gpu.nvrtc import Form, compile_cuda, nvrtc_version

#: The first generation whose instruction adds four products of int8 (PTX ISA, dp4a).
_OLDEST_GENERATION = 61
#: After these a context is of no use any more (CUDA driver API, CUresult).
_LOST = frozenset(
    {
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    }
)


@dataclass(kw_only=True, eq=False)
class CudaBuffer:
    """Memory of the device, or a part of it, by address."""

    device: "CudaDevice"
    address: int
    size_bytes: int
    owner: bool

    def part(self, offset_bytes: int, size_bytes: int) -> "CudaBuffer":
        """Return a part, which begins at a multiple of `PART_ALIGNMENT`."""
        assert offset_bytes % PART_ALIGNMENT == 0, "parts begin at boundaries"
        address = self.address + offset_bytes
        return CudaBuffer(device=self.device, address=address, size_bytes=size_bytes, owner=False)

    def release(self) -> None:
        """Give the memory back."""
        if self.owner:
            self.device.call("cuMemFree", self.address)


@dataclass(kw_only=True, eq=False)
class _CudaKernel:
    device: "CudaDevice"
    kernel: Kernel
    function: Any

    def launch(self, buffers: Sequence[Buffer]) -> None:
        """Enqueue one launch."""
        values = np.array([_own(buffer).address for buffer in buffers], np.uint64)
        places = values.ctypes.data + np.arange(len(buffers), dtype=np.uint64) * 8
        self.device.call(
            "cuLaunchKernel",
            self.function,
            *self.kernel.grid,
            *self.kernel.block,
            0,
            self.device.stream,
            places.ctypes.data,
            0,
        )


def _own(buffer: Buffer) -> CudaBuffer:
    assert isinstance(buffer, CudaBuffer), "a device is given its own buffers"
    return buffer


@dataclass(kw_only=True, eq=False)
class CudaDevice:
    """The first CUDA device with a stream of its own.

    Parameters
    ----------
    driver
        The module ``cuda.bindings.driver``.
    cache
        What keeps compiled kernels.

    Raises
    ------
    DeviceError
        If there is no device, or it is too old.
    """

    driver: Any
    cache: KernelCache
    capability: Capability = field(init=False)
    stream: Any = field(init=False)
    _handle: Any = field(init=False)
    _context: Any = field(init=False)
    _generation: int = field(init=False)
    _modules: list[Any] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.call("cuInit", 0)
        if self.call("cuDeviceGetCount") < 1:
            raise DeviceError("this computer has no CUDA device")
        self._handle = self.call("cuDeviceGet", 0)
        self._generation, self.capability = self._examined()
        self._context = self.call("cuDevicePrimaryCtxRetain", self._handle)
        self._enter()
        self.stream = self.call("cuStreamCreate", 0)

    def _enter(self) -> None:
        """Make the device's context that of the thread at hand."""
        self.call("cuCtxSetCurrent", self._context)

    def _examined(self) -> tuple[int, Capability]:
        names = self.driver.CUdevice_attribute

        def attribute(name: str) -> int:
            value: int = self.call(
                "cuDeviceGetAttribute",
                getattr(names, f"CU_DEVICE_ATTRIBUTE_{name}"),
                self._handle,
            )
            return value

        name = self.call("cuDeviceGetName", 100, self._handle).decode().rstrip("\0")
        generation = 10 * attribute("COMPUTE_CAPABILITY_MAJOR") + attribute(
            "COMPUTE_CAPABILITY_MINOR"
        )
        if generation < _OLDEST_GENERATION:
            raise DeviceError(
                f"{name} has compute capability {generation / 10:.1f}, "
                f"{_OLDEST_GENERATION / 10:.1f} is needed"
            )
        return generation, Capability(
            name=name,
            identity=f"{name}\nsm_{generation}",
            threads_per_block=attribute("MAX_THREADS_PER_BLOCK"),
            block_extents=(
                attribute("MAX_BLOCK_DIM_X"),
                attribute("MAX_BLOCK_DIM_Y"),
                attribute("MAX_BLOCK_DIM_Z"),
            ),
            shared_bytes=attribute("MAX_SHARED_MEMORY_PER_BLOCK"),
            memory_bytes=self.call("cuDeviceTotalMem", self._handle),
            units=attribute("MULTIPROCESSOR_COUNT"),
            generation=generation,
        )

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the driver and return its result.

        Raises
        ------
        DeviceError
            If it fails, in one sentence.
        """
        status, *values = getattr(self.driver, name)(*arguments)
        if int(status) != 0:
            raise self._failure(name, str(getattr(status, "name", status)))
        return values[0] if len(values) == 1 else tuple(values)

    def _failure(self, name: str, status: str) -> DeviceError:
        known = getattr(self, "capability", None)
        device = "the CUDA device" if known is None else known.name
        if status == "CUDA_ERROR_NO_DEVICE":
            return DeviceError("this computer has no CUDA device")
        if status == "CUDA_ERROR_OUT_OF_MEMORY":
            return DeviceError(f"{device} is out of memory at {name}")
        if status in _LOST:
            return DeviceError(
                f"{device} is lost: {name} failed with {status}",
                hint="other devices are not affected; a new process finds it again",
            )
        return DeviceError(f"{device} failed at {name} with {status}")

    @property
    def dialect(self) -> Dialect:
        """The language of its kernels."""
        return CUDA

    def load(self, kernels: tuple[Kernel, ...], source: str) -> tuple[LoadedKernel, ...]:
        """Compile `source`, which holds `kernels`; see `KernelDevice.load`."""
        self._enter()
        for kernel in kernels:
            check_fits(kernel, self.capability)
        parts = (source, f"sm_{self._generation}", nvrtc_version())
        data = self.cache.get(parts, lambda: compile_cuda(source, self._generation, Form.CUBIN))
        module = self.call("cuModuleLoadData", data)
        self._modules.append(module)
        return tuple(
            _CudaKernel(
                device=self,
                kernel=kernel,
                function=self.call("cuModuleGetFunction", module, kernel.name.encode()),
            )
            for kernel in kernels
        )

    def allocate(self, size_bytes: int) -> CudaBuffer:
        """Return memory; see `KernelDevice.allocate`."""
        if size_bytes > self.capability.memory_bytes:
            raise DeviceError(
                f"{self.capability.name} has {self.capability.memory_bytes:,} bytes of memory, "
                f"{size_bytes:,} are needed"
            )
        address = int(self.call("cuMemAlloc", max(size_bytes, 1)))
        return CudaBuffer(device=self, address=address, size_bytes=size_bytes, owner=True)

    def upload(self, buffer: Buffer, values: Array) -> None:
        """Copy `values` to the beginning of `buffer`."""
        self._enter()
        data = np.ascontiguousarray(values)
        if data.nbytes:
            place = _own(buffer).address
            self.call("cuMemcpyHtoDAsync", place, data.ctypes.data, data.nbytes, self.stream)
            # The copy reads `data` until then.
            self.synchronise()

    def download(self, buffer: Buffer, dtype: "np.dtype[Any]", shape: tuple[int, ...]) -> Array:
        """Wait for all launches and return what `buffer` begins with."""
        values = np.empty(shape, dtype)
        if values.nbytes:
            place = _own(buffer).address
            self.call("cuMemcpyDtoHAsync", values.ctypes.data, place, values.nbytes, self.stream)
        self.synchronise()
        return values

    def synchronise(self) -> None:
        """Wait for all launches."""
        self.call("cuStreamSynchronize", self.stream)

    def record(self, launches: Callable[[], None]) -> Callable[[], None]:
        """Return what repeats `launches` as one graph, so that each costs the host nothing."""
        self._enter()
        mode = self.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self.call("cuStreamBeginCapture", self.stream, mode)
        launches()
        graph = self.call("cuStreamEndCapture", self.stream)
        executable = self.call("cuGraphInstantiate", graph, 0)
        self.call("cuGraphDestroy", graph)

        def repeat() -> None:
            self._enter()
            self.call("cuGraphLaunch", executable, self.stream)

        return repeat

    def meter(self) -> Meter | None:
        """Return what counts the energy of the device; None where nothing does."""
        address: bytes = self.call("cuDeviceGetPCIBusId", 20, self._handle)
        return cuda_meter(address.decode().rstrip("\0"))

    def close(self) -> None:
        """Give kernels, stream and context back."""
        for module in self._modules:
            self.call("cuModuleUnload", module)
        self._modules.clear()
        self.call("cuStreamDestroy", self.stream)
        self.call("cuDevicePrimaryCtxRelease", self._handle)


def open_cuda_device(cache: Path | None = None) -> CudaDevice:
    """Return the first CUDA device.

    Raises
    ------
    DeviceError
        If cuda-python, the driver or the device is missing.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise DeviceError(
            "device 'cuda' needs the package cuda-python", hint="pip install 'tilewright[cuda]'"
        ) from error
    try:
        return CudaDevice(driver=driver, cache=KernelCache(folder=cache))
    except RuntimeError as error:
        raise DeviceError(
            "no driver for CUDA devices is installed on this computer",
            hint="install NVIDIA's driver, or use device 'opencl'",
        ) from error
