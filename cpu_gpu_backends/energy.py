"""Energy that has been used, where the platform counts it: RAPL for processors, NVML for GPUs."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

#: Joules since some point in time.
Meter: TypeAlias = Callable[[], float]

#: Where Linux shows the counters of RAPL (Linux, Documentation/power/powercap).
POWERCAP = Path("/sys/class/powercap")


def processor_meter(folder: Path = POWERCAP) -> Meter | None:
    """Return what counts the energy of all processor packages; None where nothing may be read."""
    counters = [path / "energy_uj" for path in sorted(folder.glob("intel-rapl:?"))]
    try:
        if not counters or sum(int(path.read_text()) for path in counters) < 0:
            return None
    except (OSError, ValueError):
        return None
    return lambda: sum(int(path.read_text()) for path in counters) * 1e-6


def cuda_meter(library: str = "libnvidia-ml.so.1") -> Meter | None:
    """Return what counts the energy of the first CUDA device; None where it does not say."""
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return None
    device, millijoules = ctypes.c_void_p(), ctypes.c_ulonglong()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)):
        return None

    def read() -> float:
        status = nvml.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(millijoules))
        if status:
            raise OSError(f"NVML cannot read the energy: status {status}")
        return millijoules.value * 1e-3

    try:
        read()
    except OSError:
        return None
    return read
