import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewright.cpu_gpu_backends.energy import cuda_meter, joules_of, processor_meter


def domain(folder: Path, name: str, microjoules: int, label: str) -> None:
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "name").write_text(f"{label}\n")
    (folder / name / "energy_uj").write_text(f"{microjoules}\n")
    (folder / name / "max_energy_range_uj").write_text("10000000\n")


def package(folder: Path, number: int, microjoules: int) -> None:
    domain(folder, f"intel-rapl:{number}", microjoules, f"package-{number}")


def test_packages_are_added_and_other_domains_are_not(tmp_path: Path) -> None:
    package(tmp_path, 0, 1_500_000)
    package(tmp_path, 1, 500_000)
    domain(tmp_path, "intel-rapl:0:0", 7_000_000, "core")
    domain(tmp_path, "intel-rapl:2", 7_000_000, "psys")
    meter = processor_meter(tmp_path)
    assert meter is not None
    before = meter()
    package(tmp_path, 1, 1_500_000)
    domain(tmp_path, "intel-rapl:0:0", 8_000_000, "core")
    domain(tmp_path, "intel-rapl:2", 8_000_000, "psys")
    assert meter() - before == 1.0
    # The counter starts again at its size.
    package(tmp_path, 0, 500_000)
    assert meter() - before == 10.0
    assert meter() - before == 10.0


def test_what_the_platform_does_not_count_is_left_out(tmp_path: Path) -> None:
    assert processor_meter(tmp_path) is None
    (tmp_path / "intel-rapl:0").mkdir()
    assert processor_meter(tmp_path) is None


class NvmlError(Exception):
    pass


def nvml(readings: list[int]) -> SimpleNamespace:
    """NVML with one GPU, whose counter shows `readings` and then is lost."""

    def find(address: bytes) -> str:
        if address != b"0000:3B:00.0":
            raise NvmlError("Not Found")
        return "handle"

    def read(handle: str) -> int:
        assert handle == "handle"
        if not readings:
            raise NvmlError("GPU is lost")
        return readings.pop(0)

    return SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByPciBusId=find,
        nvmlDeviceGetTotalEnergyConsumption=read,
    )


def test_the_counter_of_a_gpu_is_found_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml([0, 1000, 2500, 2500]))
    meter = cuda_meter("0000:3B:00.0")
    assert meter is not None
    assert (meter(), meter()) == (1.0, 2.5)
    assert cuda_meter("0000:AF:00.0") is None
    # The only reading left is the first one of a measurement.
    assert joules_of(lambda: None, meter) is None


def test_without_nvml_no_energy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert cuda_meter("0000:3B:00.0") is None


def test_energy_is_that_of_one_call_and_never_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.2, 0.4, 0.6])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    used = iter([10.0, 16.0])
    calls: list[int] = []
    assert joules_of(lambda: calls.append(1), lambda: next(used)) == 2.0
    assert len(calls) == 3
    monkeypatch.setattr("time.perf_counter", lambda: len(calls) * 1.0)
    assert joules_of(lambda: calls.append(1), lambda: 5.0) is None
