"""Energy that has been used, where the platform counts it: RAPL for processors, NVML for GPUs."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

#: Joules since some point in time.
Meter: TypeAlias = Callable[[], float]

#: Where Linux shows the counters of RAPL (Linux, Documentation/power/powercap).
POWERCAP = Path("/sys/class/powercap")
#: What the names of processor packages begin with: other domains are parts of one, or, as the
#: platform of a laptop, more than one.
_PACKAGE = "package-"
#: How long energy is counted: counters move in steps, those of NVML about ten times a second.
_COUNTED_SECONDS = 0.5


@dataclass(slots=True, kw_only=True)
class _Package:
    """The counter of one processor package, in microjoules, which starts again at `size`."""

    path: Path
    size: int
    last: int
    total: int = 0

    def read(self) -> int:
        """Return the microjoules since the first reading."""
        now = int(self.path.read_text())
        self.total += now - self.last if now >= self.last else now - self.last + self.size
        self.last = now
        return self.total


def processor_meter(folder: Path = POWERCAP) -> Meter | None:
    """Return what counts the energy of all processor packages; None where nothing may be read."""
    try:
        packages = [
            _Package(
                path=path / "energy_uj",
                size=int((path / "max_energy_range_uj").read_text()),
                last=int((path / "energy_uj").read_text()),
            )
            for path in sorted(folder.glob("intel-rapl:*"))
            if (path / "name").read_text().startswith(_PACKAGE)
        ]
    except (OSError, ValueError):
        return None
    return (lambda: sum(one.read() for one in packages) * 1e-6) if packages else None


def cuda_meter(bus_address: str) -> Meter | None:
    """Return what counts the energy of the GPU at an address of the PCI bus.

    None where nvidia-ml-py is not installed, or the GPU does not count.
    """
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus_address.encode())
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except pynvml.NVMLError:
        return None
    return lambda: _millijoules(pynvml, handle) * 1e-3


def _millijoules(nvml: Any, handle: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
    except nvml.NVMLError as error:
        raise OSError(f"NVML cannot read the energy: {error}") from error


def joules_of(call: Callable[[], object], meter: Meter) -> float | None:
    """Return the energy of one call, the mean of as many as take a while.

    None where the counter could not be read, or has not moved.
    """
    calls, start = 0, time.perf_counter()
    try:
        before = meter()
        while calls == 0 or time.perf_counter() - start < _COUNTED_SECONDS:
            call()
            calls += 1
        joules = meter() - before
    except (OSError, ValueError):
        return None
    return joules / calls if joules > 0 else None
