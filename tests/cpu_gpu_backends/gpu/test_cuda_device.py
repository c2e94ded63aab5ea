"""The CUDA device on a driver that keeps memory and records calls, as this needs no GPU."""

import contextlib
import ctypes
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
from cuda_tools import require_nvrtc
from integer_graphs import GraphBuilder

from tilewright.cpu_gpu_backends.gpu import cuda_device
from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu
from tilewright.cpu_gpu_backends.gpu.cuda_device import CudaDevice, open_cuda_device
from tilewright.cpu_gpu_backends.gpu.device import DeviceError
from tilewright.cpu_gpu_backends.gpu.kernel_cache import KernelCache
from tilewright.cpu_gpu_backends.gpu.kernels import Barrier, Kernel
from tilewright.cpu_gpu_backends.gpu.model import GpuModel


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_INVALID_IMAGE = 200


class Driver:
    """Memory is the process's own; kernels are recorded with the addresses that they are given."""

    class CUdevice_attribute:
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 8
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 6
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1024
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 1024
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 1024
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 64
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 48 * 1024
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 20

    class CUstreamCaptureMode:
        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1

    def __init__(self, **failures: Status) -> None:
        self.failures = failures
        self.devices = 1
        self.memory: dict[int, np.ndarray] = {}
        self.capturing = False
        self.graph: list[tuple[str, tuple[int, ...]]] = []
        self.launched: list[tuple[str, tuple[int, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> tuple[Any, ...]:
            if name in self.failures:
                return (self.failures[name], None)
            result = getattr(self, f"do_{name}", lambda *_: (None,))(*arguments)
            return (Status.CUDA_SUCCESS, *result)

        return call

    def do_cuDeviceGetCount(self) -> tuple[int]:
        return (self.devices,)

    def do_cuDeviceGetName(self, _length: int, _device: Any) -> tuple[bytes]:
        return (b"Fake GPU\0\0",)

    def do_cuDeviceGetPCIBusId(self, _length: int, _device: Any) -> tuple[bytes]:
        return (b"0000:3B:00.0\0\0",)

    def do_cuDeviceTotalMem(self, _device: Any) -> tuple[int]:
        return (1 << 20,)

    def do_cuDeviceGetAttribute(self, attribute: int, _device: Any) -> tuple[int]:
        return (attribute,)

    def do_cuMemAlloc(self, size: int) -> tuple[int]:
        array = np.zeros(size, np.uint8)
        self.memory[array.ctypes.data] = array
        return (array.ctypes.data,)

    def do_cuMemFree(self, address: int) -> tuple[()]:
        del self.memory[address]
        return ()

    def do_cuMemcpyHtoDAsync(self, to: int, source: int, size: int, _stream: Any) -> tuple[()]:
        ctypes.memmove(to, source, size)
        return ()

    def do_cuMemcpyDtoHAsync(self, to: int, source: int, size: int, _stream: Any) -> tuple[()]:
        ctypes.memmove(to, source, size)
        return ()

    def do_cuModuleGetFunction(self, _module: Any, name: bytes) -> tuple[str]:
        return (name.decode(),)

    def do_cuStreamBeginCapture(self, _stream: Any, _mode: int) -> tuple[()]:
        self.capturing = True
        return ()

    def do_cuStreamEndCapture(self, _stream: Any) -> tuple[str]:
        self.capturing = False
        return ("graph",)

    def do_cuGraphLaunch(self, _graph: Any, _stream: Any) -> tuple[()]:
        self.launched += self.graph
        return ()

    def do_cuLaunchKernel(self, function: str, *arguments: Any) -> tuple[()]:
        places = arguments[8]
        count = self.parameters[function]
        pointers = (ctypes.c_uint64 * count).from_address(places)
        addresses = tuple(ctypes.c_uint64.from_address(one).value for one in pointers)
        (self.graph if self.capturing else self.launched).append((function, addresses))
        return ()


def device_of(driver: Driver) -> CudaDevice:
    return CudaDevice(driver=driver, cache=KernelCache(folder=None))


def test_a_model_is_loaded_and_launched_as_one_graph() -> None:
    require_nvrtc()
    driver = Driver()
    device = device_of(driver)
    builder = GraphBuilder(seed=3)
    x = builder.input(1, 4, 4, 8)
    graph = builder.build(builder.clip(builder.conv(x, 8), -50, 50), builder.clip(x, 0, 9))
    program = compile_for_gpu(graph, device.capability, device.dialect)
    driver.parameters = {one.name: len(one.parameters) for one in program.kernels}
    model = GpuModel.load(program, device)
    inputs = builder.values(graph)
    for runs in (1, 2):
        model.run(inputs)
        launches = [launch.kernel.name for launch in program.launches]
        assert [name for name, _ in driver.launched] == launches * runs
    (arena,) = driver.memory.items()
    addresses = [place for _, places in driver.launched for place in places]
    assert all(0 <= place - arena[0] < arena[1].size for place in addresses)
    # Every launch reads the values that were uploaded: the input, and the weights as packed.
    size = inputs["in0"].size
    place = driver.launched[0][1][0] - arena[0]
    np.testing.assert_array_equal(
        arena[1][place : place + size].view(np.int8), inputs["in0"].reshape(-1)
    )
    model.close()
    device.close()
    assert not driver.memory


def test_what_goes_wrong_is_said_in_one_line() -> None:
    with pytest.raises(DeviceError, match=r"^this computer has no CUDA device$"):
        device_of(Driver(cuInit=Status.CUDA_ERROR_NO_DEVICE))
    none = Driver()
    none.devices = 0
    with pytest.raises(DeviceError, match=r"^this computer has no CUDA device$"):
        device_of(none)
    full = device_of(Driver(cuMemAlloc=Status.CUDA_ERROR_OUT_OF_MEMORY))
    with pytest.raises(DeviceError, match=r"^Fake GPU is out of memory at cuMemAlloc$"):
        full.allocate(10)
    with pytest.raises(DeviceError, match=r"^Fake GPU has 1,048,576 bytes of memory, 2,000,000 "):
        full.allocate(2_000_000)
    lost = device_of(Driver(cuStreamSynchronize=Status.CUDA_ERROR_ILLEGAL_ADDRESS))
    with pytest.raises(DeviceError, match=r"^Fake GPU is lost: cuStreamSynchronize failed with"):
        lost.synchronise()


def test_a_kernel_that_does_not_compile_or_fit_is_one_line() -> None:
    require_nvrtc()
    device = device_of(Driver())
    with pytest.raises(
        DeviceError, match=r"^NVRTC cannot compile a kernel for sm_86: .*error"
    ) as e:
        device.load((), "__global__ void k(int *x) { x[0] = nothing_of_that_name; }")
    assert "\n" not in str(e.value)
    kernel = Kernel(
        name="k",
        parameters=(),
        grid=(1, 1, 1),
        block=(1, 2048, 1),
        shared=(),
        body=Barrier(),
    )
    with pytest.raises(DeviceError, match=r"^kernel 'k' needs blocks of 1 x 2048 x 1 threads, Fak"):
        device.load((kernel,), "")
    broken = device_of(Driver(cuModuleLoadData=Status.CUDA_ERROR_INVALID_IMAGE))
    with pytest.raises(DeviceError, match=r"^Fake GPU failed at cuModuleLoadData with CUDA_ERROR_"):
        broken.load((), 'extern "C" __global__ void k(int *x) { x[0] = 1; }')


def test_energy_is_counted_at_the_device_s_address(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(cuda_device, "cuda_meter", asked.append)
    device_of(Driver()).meter()
    assert asked == ["0000:3B:00.0"]


def test_an_old_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    attribute = "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR"
    monkeypatch.setattr(Driver.CUdevice_attribute, attribute, 5)
    with pytest.raises(DeviceError, match=r"^Fake GPU has compute capability 5.6, 6.1 is needed$"):
        device_of(Driver())


def test_without_a_driver_there_is_one_line() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    with contextlib.suppress(RuntimeError):
        driver.cuInit(0)
        pytest.skip("a driver is installed here")
    with pytest.raises(DeviceError, match=r"^no driver for CUDA devices is installed on this"):
        open_cuda_device()
