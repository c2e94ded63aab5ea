"""What the README shows is what happens."""

import json
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


COMMANDS = {
    "compile": ["{model}"],
    "compare": ["{model}"],
    "diff": ["{model}"],
    "disasm": ["{compiled}"],
    "isa": [],
    "build": ["--board", "pynq-z2", "--dry-run", "-o", "project"],
    "demo": ["--images", "1"],
}


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_keys_of_each_json_are_documented(
    command: Run, repository: Path, model: str, compiled_file: str, name: str
) -> None:
    words = [word.format(model=model, compiled=compiled_file) for word in COMMANDS[name]]
    record = json.loads(command(name, *words, "--json", "-").out)
    page = (repository / "docs" / "command_line.md").read_text(encoding="utf-8")
    section = page.split("### The other commands")[1]
    (row,) = re.findall(rf"^\| `{name}` \|(.*)\|$", section, re.MULTILINE)
    documented = set(re.findall(r"`(\w+)`", row))
    if "as in `run`" in row:
        documented |= set(re.findall(r"`(\w+)`", page.partition("### run")[2]))
    assert record.keys() <= documented
