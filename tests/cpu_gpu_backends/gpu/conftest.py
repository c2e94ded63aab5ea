"""An OpenCL device for tests: PoCL, or whatever this computer has."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.cpu_gpu_backends.gpu.device import DeviceError
from tilewright.cpu_gpu_backends.gpu.opencl_device import OpenClDevice


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
