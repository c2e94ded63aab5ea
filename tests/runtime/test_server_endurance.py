"""A server process under many clients, most of them rude: no wrong result, no way in, no leak."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import rude_client

from tilewright.runtime.remote_client import (
    TOKEN_VARIABLE,
    RemoteAddress,
    RemoteMachine,
    parse_address,
)

TOKEN = "f00d" * 16
ENVIRONMENT = {**os.environ, TOKEN_VARIABLE: TOKEN}
#: Bytes by which the server's memory may grow: allocators keep some of what threads gave back.
SLACK_BYTES = 16 << 20


@contextmanager
def serving() -> Iterator[tuple[subprocess.Popen[str], RemoteAddress]]:
    words = [sys.executable, "-m", "tilewright", "serve", "--port", "0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r"tcp://\S+(?=;)", line)
        assert found is not None, line
        yield process, parse_address(found[0])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.wait()


def client(address: RemoteAddress, seed: int, jobs: int) -> subprocess.Popen[str]:
    numbers = map(str, (address.port, seed, jobs))
    return subprocess.Popen(
        [sys.executable, rude_client.__file__, address.host, *numbers],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT,
    )


def status(process: subprocess.Popen[str], name: str) -> int:
    """A number of the process's status: ``VmRSS`` in bytes, ``Threads``."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    (value, unit) = re.search(rf"^{name}:\s+(\d+)( kB)?$", text, re.MULTILINE).groups()  # type: ignore[union-attr]
    return int(value) * (1024 if unit else 1)


def storm(address: RemoteAddress, seed: int, *, clients: int, jobs: int, killed: int) -> None:
    """Let clients work at a time, and kill others in the middle of their jobs."""
    workers = [client(address, seed + number, jobs) for number in range(clients)]
    for number in range(killed):
        victim = client(address, 1000 + seed + number, 0)
        assert victim.stdout is not None
        assert victim.stdout.readline() == "sent\n"
        victim.kill()
        victim.wait()
    for worker in workers:
        output, _ = worker.communicate(timeout=1500)
        assert worker.returncode == 0, output


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")
@pytest.mark.parametrize(
    ("clients", "jobs", "killed"),
    [(2, 12, 1), pytest.param(8, 125, 8, marks=pytest.mark.slow)],
    ids=["quick", "a thousand jobs"],
)
def test_a_server_outlasts_rude_clients(clients: int, jobs: int, killed: int) -> None:
    with serving() as (process, address):
        storm(address, 1, clients=clients, jobs=12, killed=0)
        before, threads = status(process, "VmRSS"), status(process, "Threads")
        storm(address, 100, clients=clients, jobs=jobs, killed=killed)
        with RemoteMachine(address, token=TOKEN) as machine:
            assert machine.description.startswith("the simulator")
        growth = status(process, "VmRSS") - before
        sys.stdout.write(f"{before >> 20} MiB grew by {growth >> 10} KiB, {threads} threads\n")
        assert growth < SLACK_BYTES
        assert status(process, "Threads") <= threads + 2
