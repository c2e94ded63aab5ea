"""A client of a server as a process: right jobs, checked, between all kinds of wrong ones.

``python rude_client.py HOST PORT SEED JOBS`` with the token in TILEWRIGHT_TOKEN ends with status 0
after that many right results. JOBS 0 sends a job and waits to be killed in the middle of it.
"""

import contextlib
import json
import os
import random
import socket
import struct
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

from tilewright.isa.errors import TilewrightError
from tilewright.isa.presets import TINY
from tilewright.isa.program import Program
from tilewright.runtime.board_machine import Patch, Region
from tilewright.runtime.remote_client import TOKEN_VARIABLE, RemoteAddress, RemoteMachine
from tilewright.runtime.remote_protocol import (
    MAGIC,
    VERSION,
    Disconnected,
    Frame,
    Kind,
    prove,
    receive_frame,
    send_frame,
)
from tilewright.sim.random_programs import random_program
from tilewright.sim.simulator import simulate

PREFIX = struct.Struct("<8sIIQ")
SECONDS = 60


class Client:
    """Talks to one server."""

    def __init__(self, address: tuple[str, int], token: str, rng: random.Random) -> None:
        self.address, self.token, self.rng = address, token, rng
        self.programs = [random_program(TINY, rng.randrange(50), size=8) for _ in range(3)]

    def work(self, jobs: int) -> None:
        """Get a few jobs done over one connection, with other data each time."""
        host, port = self.address
        with RemoteMachine(RemoteAddress(host=host, port=port), token=self.token) as machine:
            for _ in range(jobs):
                program = self.rng.choice(self.programs)
                dram = program.initial_dram()
                data = np.frombuffer(self.rng.randbytes(512), np.uint8)
                place = program.constants[-1].address + len(program.constants[-1].data)
                dram[place : place + data.size] = data
                whole = Region(address=0, size_bytes=program.dram_bytes)
                run = machine.run(program, [Patch(address=place, data=data)], [whole])
                expected = simulate(program, dram)
                # What the host has not written is arbitrary, and zero on a simulator.
                np.testing.assert_array_equal(run.regions[0], expected.dram)
                assert run.cycles == expected.timeline.cycles

    def enter(self) -> socket.socket:
        """Connect and log in."""
        connection = socket.create_connection(self.address, timeout=SECONDS)
        nonce = receive_frame(connection, 0).field("nonce", str)
        proof = prove(self.token, nonce)
        send_frame(connection, Frame(kind=Kind.LOGIN, fields={"proof": proof}))
        assert receive_frame(connection, 0).kind is Kind.DONE
        return connection

    def send_job(self, connection: socket.socket) -> Program:
        """Ask for a run, and take no answer."""
        program = self.rng.choice(self.programs)
        send_frame(connection, Frame(kind=Kind.PROGRAM, fields={}, body=program.to_bytes()))
        assert receive_frame(connection, 0).kind is Kind.DONE
        digest = program.to_bytes()[-32:].hex()
        fields = {"digest": digest, "patches": [], "regions": [[0, program.dram_bytes]]}
        send_frame(connection, Frame(kind=Kind.RUN, fields=fields))
        return program

    def leave(self) -> None:
        """Go away in the middle of a job."""
        with self.enter() as connection:
            self.send_job(connection)
            time.sleep(self.rng.random() * 0.02)

    def babble(self) -> None:
        """Send a damaged frame, before or after the login."""
        header = json.dumps({"kind": "program"}).encode()
        body = self.programs[0].to_bytes()
        frame = bytearray(PREFIX.pack(MAGIC, VERSION, len(header), len(body)) + header + body)
        for _ in range(self.rng.randrange(1, 9)):
            frame[self.rng.randrange(len(frame))] = self.rng.randrange(256)
        cut = self.rng.randrange(1, len(frame) + 1)
        inside = self.rng.random() < 0.7
        with self.enter() if inside else self.greeted() as connection:
            # The server may have seen enough, and left, before all is sent.
            with contextlib.suppress(OSError):
                connection.sendall(frame[:cut])
                connection.shutdown(socket.SHUT_WR)
            self.expect_no_result(connection)

    def ask_too_much(self) -> None:
        """Announce more than the server takes."""
        header, body = self.rng.choice([(1 << 30, 0), (2, 1 << 40), (2, 1 << 63)])
        with self.enter() as connection:
            connection.sendall(PREFIX.pack(MAGIC, VERSION, header, body))
            self.expect_no_result(connection)

    def guess(self) -> None:
        """Try to get in without the token."""
        host, port = self.address
        wrong = self.rng.choice(["", "0" * 64, self.token[:-1], self.token + "0"])
        with pytest.raises(TilewrightError, match=r"^the token is wrong$"):
            RemoteMachine(RemoteAddress(host=host, port=port), token=wrong)
        with self.greeted() as connection:
            send_frame(connection, Frame(kind=Kind.FIND, fields={"digest": "0"}))
            self.expect_no_result(connection)

    def greeted(self) -> socket.socket:
        """Connect without a login."""
        connection = socket.create_connection(self.address, timeout=SECONDS)
        assert receive_frame(connection, 0).kind is Kind.GREETING
        return connection

    def expect_no_result(self, connection: socket.socket) -> None:
        """Take an error, an acknowledgement of a frame that happened to be whole, or the end."""
        try:
            answer = receive_frame(connection, 1 << 20)
        except Disconnected:
            return
        assert answer.kind in (Kind.ERROR, Kind.DONE)


def main() -> None:
    host, port, seed, jobs = sys.argv[1], *map(int, sys.argv[2:])
    rng = random.Random(seed)
    client = Client((host, port), os.environ[TOKEN_VARIABLE], rng)
    if jobs == 0:
        with client.enter() as connection:
            client.send_job(connection)
            sys.stdout.write("sent\n")
            sys.stdout.flush()
            time.sleep(SECONDS)
        return
    wrongs: list[Callable[[], None]] = [
        client.leave,
        client.babble,
        client.ask_too_much,
        client.guess,
    ]
    while jobs > 0:
        count = min(jobs, rng.randrange(1, 9))
        client.work(count)
        jobs -= count
        rng.choice(wrongs)()


if __name__ == "__main__":
    main()
