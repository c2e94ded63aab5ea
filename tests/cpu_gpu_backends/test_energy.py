from pathlib import Path

from tilewright.cpu_gpu_backends.energy import cuda_meter, processor_meter


def test_packages_are_added_and_parts_of_them_are_not(tmp_path: Path) -> None:
    for name, value in (("intel-rapl:0", 1_500_000), ("intel-rapl:1", 500_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{value}\n")
    part = tmp_path / "intel-rapl:0:0"
    part.mkdir()
    (part / "energy_uj").write_text("7000000\n")
    meter = processor_meter(tmp_path)
    assert meter is not None
    assert meter() == 2.0
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("1500000\n")
    assert meter() == 3.0


def test_what_the_platform_does_not_count_is_left_out(tmp_path: Path) -> None:
    assert processor_meter(tmp_path) is None
    (tmp_path / "intel-rapl:0").mkdir()
    assert processor_meter(tmp_path) is None
    assert cuda_meter("libnothing-of-that-name.so") is None
