"""``tilewright selftest``: what it prints, writes and answers."""

import json
from pathlib import Path

import pytest

from tilewright.cli import main


def test_the_simulator_needs_no_change(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    assert main(["selftest", "--device", "sim", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "the simulator, configuration tiny" in printed
    assert printed.endswith("the timing model of tiny needs no change\n")
    record = json.loads(file.read_text())
    assert record["passed"]
    assert record["changes"] == []
    assert {check["result"] for check in record["checks"]} == {"passed", "skipped"}
    for item in record["measurements"]:
        assert item["model"] in (None, item["measured"])


def test_a_configuration_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["selftest", "--config", "pynq", "--set", "dram.read_latency_cycles=50"]
    assert main(words) == 0
    assert "pynq, dram.read_latency_cycles=50 needs no change" in capsys.readouterr().out


def test_a_device_without_programs_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "--device", "reference"]) == 2
    assert capsys.readouterr().err == "tilewright: device 'reference' runs no programs\n"
