"""``tilewright build`` without the vendor's tools."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
SMALL = ("--config", "tiny")


@pytest.mark.parametrize("dry_run", [False, True])
def test_without_the_tool_a_complete_project_is_left(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ["build", "--board", "pynq-z2", *SMALL, "-o", "out", "--json", "record.json"]
    done = command(*words, *(["--dry-run"] if dry_run else []))
    assert done.status == 0
    run = "cd out && vivado -mode batch -nojournal -source build.tcl"
    assert done.err == f"no bitstream: vivado is not on the path; where it is, run: {run}\n"
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["missing_tools"] == ["vivado"]
    assert record["bitstream"] is None
    names = ["build.tcl", "config.json", "tilewright.hwh", "tilewright.v", "tilewright.xdc"]
    assert record["files"] == names == sorted(path.name for path in (tmp_path / "out").iterdir())


def test_with_the_tool_there_is_a_bitstream(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "vivado"
    tool.write_text("#!/bin/sh\n: > tilewright.bit\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = command("build", "--board", "pynq-z2", *SMALL, "-o", "out")
    assert (done.status, done.err) == (0, "")
    assert "bitstream     out/tilewright.bit" in done.out
    assert (tmp_path / "out" / "tilewright.bit").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--board", "z9", "-o", "out"], "there is no board 'z9'"),
        (["--board", "pynq-z1"], "the following arguments are required: -o/--output"),
        (
            ["--board", "zcu104", "--toolchain", "openxc7", "-o", "out"],
            "toolchain 'openxc7' does not build for ZCU104",
        ),
        (
            ["--board", "pynq-z1", "--set", "port_bits=128", "-o", "out"],
            "port_bits must be 32 or 64 on PYNQ-Z1, not 128",
        ),
        (
            ["--board", "pynq-z1", "--set", "packed_multipliers=false", "-o", "out"],
            "the array of 'pynq, packed_multipliers=false' takes 256 DSP blocks,"  # noqa: ISC004
            " xc7z020clg400-1 has 220",
        ),
    ],
    ids=range(5),
)
def test_what_cannot_be_built_is_refused(
    command: Run, tmp_path: Path, words: list[str], message: str
) -> None:
    done = command("build", *words)
    assert done.status == 2
    assert done.err.splitlines()[0] == f"tilewright: {message}"
    assert not (tmp_path / "out").exists()
