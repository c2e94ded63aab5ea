"""Devices for tests: PoCL, or whatever this computer has."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.cpu_gpu_backends.gpu.cuda_device import open_cuda_device
from tilewright.cpu_gpu_backends.gpu.device import DeviceError, KernelDevice
from tilewright.cpu_gpu_backends.gpu.opencl_device import OpenClDevice

#: With the value ``cuda``, what runs on any device runs on the first CUDA device.
DEVICE_VARIABLE = "TILEWRIGHT_TEST_GPU"


@pytest.fixture(scope="session")
def gpu(request: pytest.FixtureRequest) -> Iterator[KernelDevice]:
    """The device on which kernels are tested: OpenCL's, unless the environment names another."""
    match os.environ.get(DEVICE_VARIABLE, "opencl"):
        case "opencl":
            yield request.getfixturevalue("opencl")
        case "cuda":
            device = open_cuda_device()
            yield device
            device.close()
        case other:
            raise ValueError(f"{DEVICE_VARIABLE} must be opencl or cuda, not {other!r}")


@pytest.fixture(scope="session")
def opencl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenClDevice]:
    """The device; without one the test is skipped and says why."""
    folder: Path = tmp_path_factory.mktemp("pocl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POCL_CACHE_DIR", str(folder))
        try:
            device = OpenClDevice(optimise=False)
        except DeviceError as error:
            pytest.skip(str(error))
        yield device
        device.close()
