"""What the README shows is what happens."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright import demo

Run = Callable[..., Any]


def test_its_python_runs(
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (repository / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    variables: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), variables)
    inputs, outcome = capsys.readouterr().out.splitlines()
    assert inputs == "image: float32[1, 1, 16, 16]"
    label = demo.load_samples().labels[0]
    assert outcome == f"{label} {variables['result'].stats.cycles}"
    assert Path("report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_its_demo_is_what_the_command_prints(
    command: Run, repository: Path, update_golden: bool
) -> None:
    path = repository / "README.md"
    printed = command("demo").out.partition("\nPlacement")[0]
    text = path.read_text(encoding="utf-8")
    ((before, block, after),) = re.findall(
        r"(.*?```\n)(A network of int8.*?)(```\n.*)", text, re.DOTALL
    )
    if update_golden:
        path.write_text(f"{before}{printed}{after}", encoding="utf-8")
        block = printed
    assert block == printed, "renew it: pytest tests/api/test_readme.py --update-golden"


def test_its_devices_and_presets_are_those_that_exist(repository: Path) -> None:
    text = (repository / "README.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| Machines \| presets (.*?);", text, re.MULTILINE)
    assert re.findall(r"`(\w+)`", row) == list(tw.presets)
