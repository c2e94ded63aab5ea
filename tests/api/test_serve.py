"""``tilewright serve`` as a process: a client of the command line uses it, a signal ends it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

TOKEN = "0123456789abcdef" * 4


@contextmanager
def serving(*words: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tilewright", "serve", "--port", "0", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.fullmatch(r"the simulator at (tcp://127\.0\.0\.1:\d+); interrupt to end\n", line)
        assert found, line + process.stderr.read()
        yield process, found[1]
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_model_runs_on_a_server_until_it_is_told_to_end(
    command: Callable[..., Any], compiled_file: str, number: signal.Signals
) -> None:
    here = command("run", compiled_file, "--json", "-")
    with serving() as (process, address):
        there = command("run", compiled_file, "--device", address, "--json", "-")
        process.send_signal(number)
        assert process.wait(20) == 0
    assert (there.status, here.status) == (0, 0), there.err
    records = json.loads(here.out), json.loads(there.out)
    assert records[1]["device"] == address
    for record in records:
        del record["device"], record["wall_seconds"]
    assert records[0] == records[1]


def test_a_token_is_asked_for(
    command: Callable[..., Any],
    compiled_file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    with serving("--token-file", str(tmp_path / "token")) as (_, address):
        refused = command("run", compiled_file, "--device", address)
        monkeypatch.setenv("TILEWRIGHT_TOKEN", "0" * 64)
        wrong = command("run", compiled_file, "--device", address)
        monkeypatch.setenv("TILEWRIGHT_TOKEN", TOKEN)
        right = command("run", compiled_file, "--device", address)
    assert [done.status for done in (refused, wrong, right)] == [2, 2, 0]
    assert f"tilewright: the server at {address} asks for a token" in refused.err
    assert "tilewright: the token is wrong" in wrong.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--host", "0.0.0.0"], "listening on 0.0.0.0 needs a token"),
        (["--port", "65536"], "--port must be from 0 to 65535, not 65536"),
        (["--job-seconds", "0"], "--job-seconds must be above 0, not 0"),
        (["--token-file", "short"], "a token must have 32 characters at least, not 5"),
        (["--token-file", "none"], "cannot read token none: no such file or directory"),
        (["--device", "reference"], "device 'reference' runs no programs"),
    ],
)
def test_what_cannot_be_served_is_refused(
    command: Callable[..., Any], tmp_path: Path, words: list[str], message: str
) -> None:
    (tmp_path / "short").write_text("12345")
    done = command("serve", *words)
    assert done.status == 2
    assert done.err.startswith(f"tilewright: {message}")
