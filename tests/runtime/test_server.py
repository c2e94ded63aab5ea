"""The server and its client on loopback: results, order, limits, and clients that misbehave."""

import json
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import numpy as np
import pytest

from tilewright.isa.errors import DeadlockError, InputError, ProgramError, TilewrightError
from tilewright.isa.presets import TINY
from tilewright.isa.program import Program
from tilewright.runtime.board_machine import (
    Counters,
    EngineCounters,
    MachineRun,
    Patch,
    Region,
    SimulatorMachine,
)
from tilewright.runtime.remote_client import (
    RemoteAddress,
    RemoteError,
    RemoteMachine,
    parse_address,
)
from tilewright.runtime.remote_protocol import (
    MAGIC,
    VERSION,
    Frame,
    Kind,
    ProtocolError,
    prove,
    receive_frame,
    send_frame,
)
from tilewright.runtime.selftest_report import Failure
from tilewright.runtime.server import Server, ServerLimits
from tilewright.sim.random_programs import random_program
from tilewright.sim.simulator import Progress, simulate
from tilewright.sim.timeline import Timeline

PREFIX = struct.Struct("<8sIIQ")
SECONDS = 20.0


class FakeMachine:
    """Notes how many jobs run at once; a job waits until it may end."""

    description = "a fake"
    config = None

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.may_end.set()
        self.running = 0
        self.most = 0
        self.started = 0
        self.error: TilewrightError | None = None

    def run(
        self,
        program: Program,
        patches: Sequence[Patch],
        regions: Sequence[Region],
        progress: Progress | None = None,
    ) -> MachineRun:
        self.running += 1
        self.started += 1
        self.most = max(self.most, self.running)
        try:
            while not self.may_end.wait(0.01):
                if progress is not None:
                    progress(0, 1)
            if self.error is not None:
                raise self.error
            counters = EngineCounters(
                started=1, finished=2, busy=3, memory_wait=4, token_wait=5, fetch_wait=6, drain=7
            )
            data = np.concatenate([patch.data for patch in patches]) if patches else None
            return MachineRun(
                regions=tuple(
                    np.resize(data, region.size_bytes)
                    if data is not None
                    else np.zeros(region.size_bytes, np.uint8)
                    for region in regions
                ),
                cycles=9,
                counters=Counters(cycles=9, engines=(counters,) * 4),
            )
        finally:
            self.running -= 1

    def check_registers(self) -> str:
        if self.error is not None:
            raise self.error
        return f"{self.running} jobs while registers were tried"

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def program() -> Program:
    return random_program(TINY, 3, size=12)


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine()


@pytest.fixture
def server(machine: FakeMachine) -> Iterator[Server]:
    with Server(machine) as running:
        yield running
        machine.may_end.set()


def connect(server: Server, token: str | None = None) -> RemoteMachine:
    host, port = server.address
    return RemoteMachine(RemoteAddress(host=host, port=port), token=token)


def raw(server: Server) -> socket.socket:
    """A connection that has been greeted and has not logged in."""
    connection = socket.create_connection(server.address, timeout=SECONDS)
    assert receive_frame(connection, 0).kind is Kind.GREETING
    return connection


def logged_in(server: Server) -> socket.socket:
    connection = raw(server)
    send_frame(connection, Frame(kind=Kind.LOGIN, fields={"proof": ""}))
    assert receive_frame(connection, 0).kind is Kind.DONE
    return connection


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.01)


def works(server: Server, program: Program) -> None:
    """A fresh client gets its job done."""
    with connect(server) as client:
        (data,) = client.run(program, [patch(b"ab")], [Region(address=0, size_bytes=4)]).regions
    assert bytes(data) == b"abab"


def patch(data: bytes, address: int = 0) -> Patch:
    return Patch(address=address, data=np.frombuffer(data, np.uint8))


def test_simulator_behind_a_server_gives_the_same_bytes_and_cycles() -> None:
    with Server(SimulatorMachine()) as server, connect(server) as client:
        for seed in range(3):
            program = random_program(TINY, seed, size=20)
            rng = np.random.default_rng(seed)
            dram = program.initial_dram()
            free = np.flatnonzero(dram == 0)[:1]
            place = int(free[0])
            data = rng.integers(0, 256, 1, dtype=np.uint8)
            dram[place] = data[0]
            expected = simulate(program, dram)
            whole = Region(address=0, size_bytes=program.dram_bytes)
            run = client.run(program, [Patch(address=place, data=data)], [whole])
            np.testing.assert_array_equal(run.regions[0], expected.dram)
            assert run.cycles == expected.timeline.cycles
            assert run.timeline is not None
            for field in fields(Timeline):
                ours = getattr(run.timeline, field.name)
                np.testing.assert_array_equal(ours, getattr(expected.timeline, field.name))


def test_counters_of_a_board_arrive(server: Server, program: Program) -> None:
    with connect(server) as client:
        run = client.run(program, [], [])
    assert run.timeline is None
    assert run.counters is not None
    assert (run.counters.cycles, len(run.counters.engines)) == (9, 4)
    assert run.counters.engines[3].drain == 7


def test_a_program_is_sent_once(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    original = Program.from_bytes

    def counted(data: bytes) -> Program:
        sent.append(len(data))
        return original(data)

    with Server(FakeMachine()) as server:
        monkeypatch.setattr(Program, "from_bytes", counted)
        for _ in range(3):
            works(server, program)
    assert len(sent) == 1


def test_programs_beyond_the_limit_are_forgotten_and_sent_again() -> None:
    programs = [random_program(TINY, seed, size=8) for seed in range(3)]
    largest = max(len(program.to_bytes()) for program in programs)
    limits = ServerLimits(program_bytes=largest + 1)
    with Server(FakeMachine(), limits=limits) as server, connect(server) as client:
        for program in programs * 2:
            assert client.run(program, [], []).cycles == 9


def test_jobs_of_eight_clients_run_one_at_a_time(
    server: Server, machine: FakeMachine, program: Program
) -> None:
    def work(number: int) -> bool:
        with connect(server) as client:
            for job in range(5):
                data = bytes([number, job])
                (got,) = client.run(
                    program, [patch(data)], [Region(address=0, size_bytes=6)]
                ).regions
                if bytes(got) != data * 3:
                    return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert (machine.started, machine.most) == (40, 1)
    assert server.jobs == 0


def test_registers_are_tried_between_two_jobs(
    server: Server, machine: FakeMachine, program: Program
) -> None:
    machine.may_end.clear()
    with ThreadPoolExecutor(2) as clients:
        with connect(server) as first, connect(server) as second:
            job = clients.submit(first.run, program, [], [])
            eventually(lambda: machine.running == 1)
            check = clients.submit(second.check_registers)
            eventually(lambda: server.jobs == 2)
            machine.may_end.set()
            assert job.result(SECONDS).cycles == 9
            assert check.result(SECONDS) == "0 jobs while registers were tried"


def test_what_is_wrong_with_registers_arrives_as_it_is(
    server: Server, machine: FakeMachine
) -> None:
    machine.error = Failure("CODE_ADDRESS reads 1, not 5 as written")
    with connect(server) as client:
        with pytest.raises(Failure, match=r"^CODE_ADDRESS reads 1, not 5 as written$"):
            client.check_registers()
        machine.error = None
        assert client.check_registers() is not None


def test_a_client_that_leaves_loses_its_place_and_nobody_elses(
    server: Server, machine: FakeMachine, program: Program
) -> None:
    works(server, program)
    machine.may_end.clear()
    digest = program.to_bytes()[-32:].hex()
    run = Frame(kind=Kind.RUN, fields={"digest": digest, "patches": [], "regions": []})
    clients = [logged_in(server) for _ in range(3)]
    for number, client in enumerate(clients):
        send_frame(client, run)
        eventually(lambda number=number: server.jobs == number + 1)  # type: ignore[misc]
    clients[1].close()
    eventually(lambda: server.jobs == 2)
    machine.may_end.set()
    for client in (clients[0], clients[2]):
        assert receive_frame(client, 1 << 20).kind is Kind.RESULT
        client.close()
    assert machine.started == 3


def test_a_running_job_ends_when_its_client_leaves(
    server: Server, machine: FakeMachine, program: Program
) -> None:
    works(server, program)
    machine.may_end.clear()
    digest = program.to_bytes()[-32:].hex()
    client = logged_in(server)
    fields = {"digest": digest, "patches": [], "regions": []}
    send_frame(client, Frame(kind=Kind.RUN, fields=fields))
    eventually(lambda: machine.running == 1)
    client.close()
    eventually(lambda: server.jobs == 0)
    machine.may_end.set()
    works(server, program)


def test_a_job_beyond_its_time_is_ended(machine: FakeMachine, program: Program) -> None:
    limits = ServerLimits(job_seconds=0.1)
    with Server(machine, limits=limits) as server, connect(server) as client:
        machine.may_end.clear()
        with pytest.raises(TilewrightError, match=r"^the job takes longer than 0\.1 s$"):
            client.run(program, [], [])
        machine.may_end.set()
        assert client.run(program, [], []).cycles == 9


def test_too_many_jobs_are_refused(machine: FakeMachine, program: Program) -> None:
    with Server(machine, limits=ServerLimits(jobs=1)) as server, connect(server) as client:
        client.run(program, [], [])
        machine.may_end.clear()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(client.run, program, [], [])
            eventually(lambda: machine.running == 1)
            with connect(server) as second, pytest.raises(TilewrightError) as caught:
                second.run(program, [], [])
            assert str(caught.value) == "1 jobs wait already"
            machine.may_end.set()
            assert first.result(SECONDS).cycles == 9


def test_errors_of_the_machine_arrive_as_they_are(
    server: Server, machine: FakeMachine, program: Program
) -> None:
    with connect(server) as client:
        machine.error = DeadlockError("gemm waits for load at instruction 3", hint="look there")
        with pytest.raises(
            DeadlockError, match=r"^gemm waits for load at instruction 3$"
        ) as caught:
            client.run(program, [], [])
        assert caught.value.hint == "look there"
        machine.error = None
        assert client.run(program, [], []).cycles == 9


def test_an_illegal_program_is_refused_before_it_runs(server: Server, machine: FakeMachine) -> None:
    program = random_program(TINY, 1, size=6)
    broken = Program(
        config=program.config,
        instructions=program.instructions[1:] + program.instructions[:1],
        code_address=program.code_address,
        dram_bytes=program.dram_bytes,
    )
    with connect(server) as client, pytest.raises(ProgramError):
        client.run(broken, [], [])
    assert machine.started == 0


def test_a_program_that_needs_too_much_memory_is_refused(program: Program) -> None:
    limits = ServerLimits(dram_bytes=program.dram_bytes - 1)
    with Server(FakeMachine(), limits=limits) as server, connect(server) as client:
        with pytest.raises(InputError) as caught:
            client.run(program, [], [])
    granted = program.dram_bytes - 1
    assert str(caught.value) == (
        f"the program needs {program.dram_bytes} bytes of DRAM, the server grants {granted}"
    )


@pytest.mark.parametrize("token", ["wrong", "", None])
def test_nobody_gets_in_without_the_token(program: Program, token: str | None) -> None:
    with Server(FakeMachine(), token="right") as server:
        with pytest.raises(TilewrightError, match=r"^(the token is wrong|the server at .* asks)"):
            connect(server, token)
        with connect(server, "right") as client:
            assert client.run(program, [], []).cycles == 9


def test_a_proof_of_another_connection_is_refused() -> None:
    with Server(FakeMachine(), token="right") as server:
        first = socket.create_connection(server.address, timeout=SECONDS)
        nonce = receive_frame(first, 0).field("nonce", str)
        second = raw(server)
        send_frame(second, Frame(kind=Kind.LOGIN, fields={"proof": prove("right", nonce)}))
        assert receive_frame(second, 0).fields["message"] == "the token is wrong"
        first.close()
        second.close()


@pytest.mark.parametrize("kind", [Kind.FIND, Kind.RUN, Kind.PROGRAM, Kind.CHECK])
def test_nothing_is_answered_before_the_login(kind: Kind) -> None:
    with Server(FakeMachine(), token="right") as server, raw(server) as connection:
        send_frame(connection, Frame(kind=kind, fields={"digest": "0"}))
        answer = receive_frame(connection, 0)
        assert answer.fields["message"] == f"a client must log in first, not send {kind.value}"
        assert connection.recv(1) == b""


def test_other_hosts_need_a_token() -> None:
    with pytest.raises(InputError, match=r"^listening on 0\.0\.0\.0 needs a token"):
        Server(FakeMachine(), host="0.0.0.0")


def test_a_port_in_use_is_named(server: Server) -> None:
    host, port = server.address
    with pytest.raises(InputError, match=rf"^cannot listen on {host}:{port}: "):
        Server(FakeMachine(), port=port)


OVERSIZED = {
    "body": (PREFIX.pack(MAGIC, VERSION, 2, 1 << 40), "a frame may carry 536870912 bytes here"),
    "header": (PREFIX.pack(MAGIC, VERSION, 1 << 30, 0), "a header has 1048576 bytes at most"),
    "version": (PREFIX.pack(MAGIC, 9, 2, 0), "the frame has version 9, this is version 1"),
    "magic": (PREFIX.pack(b"GET / HT", VERSION, 2, 0), "what came is no frame"),
}


@pytest.mark.parametrize("name", OVERSIZED)
def test_a_frame_that_cannot_be_is_refused_by_its_prefix(
    server: Server, program: Program, name: str
) -> None:
    prefix, message = OVERSIZED[name]
    with logged_in(server) as connection:
        connection.sendall(prefix)
        assert receive_frame(connection, 0).fields["message"].startswith(message)
        assert connection.recv(1) == b""
    works(server, program)


HEADERS = [
    {"kind": "run"},
    {"kind": "run", "digest": 3, "patches": [], "regions": []},
    {"kind": "run", "digest": "0", "patches": {}, "regions": []},
    {"kind": "run", "digest": "0", "patches": [[0, 1]], "regions": []},
    {"kind": "run", "digest": "0", "patches": [], "regions": [[0]]},
    {"kind": "run", "digest": "0", "patches": [], "regions": [[-1, 4]]},
    {"kind": "run", "digest": "0", "patches": [], "regions": [[0, 1 << 50]]},
    {"kind": "run", "digest": "0", "patches": [], "regions": [[0, True]]},
    {"kind": "run", "digest": "0", "patches": [], "regions": [[0, 0]] * 2000},
    {"kind": "find", "digest": None},
    {"kind": "program"},
    {"kind": "result"},
    {"kind": "nonsense"},
    {"kind": ["run"]},
    {},
    [],
    3,
]


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_a_header_that_makes_no_sense_is_answered(
    server: Server, program: Program, header: object
) -> None:
    text = json.dumps(header).encode()
    with logged_in(server) as connection:
        connection.sendall(PREFIX.pack(MAGIC, VERSION, len(text), 0) + text)
        assert receive_frame(connection, 0).kind is Kind.ERROR
    works(server, program)


def test_random_damage_harms_nobody_else(server: Server, program: Program) -> None:
    rng = random.Random(17)
    data = program.to_bytes()
    text = json.dumps({"kind": "program"}).encode()
    valid = PREFIX.pack(MAGIC, VERSION, len(text), len(data)) + text + data
    for _ in range(60):
        damaged = bytearray(valid)
        for _ in range(rng.randrange(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        cut = rng.randrange(len(damaged)) if rng.random() < 0.5 else len(damaged)
        with logged_in(server) as connection:
            connection.sendall(damaged[:cut])
            if rng.random() < 0.5:
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(SECONDS)
                try:
                    assert receive_frame(connection, 1 << 20).kind in (Kind.ERROR, Kind.DONE)
                except ProtocolError as error:
                    # Closed without a word is fine; a half answer is not.
                    assert "closed" in str(error) or "broke" in str(error)  # noqa: PT017
    works(server, program)
    eventually(lambda: server.jobs == 0)


def test_a_client_that_says_nothing_is_dropped(program: Program) -> None:
    limits = ServerLimits(login_seconds=0.1, idle_seconds=0.2)
    with Server(FakeMachine(), limits=limits) as server:
        for connection in (raw(server), logged_in(server)):
            with connection:
                answer = receive_frame(connection, 0)
                assert answer.fields["message"] == "a frame did not come in time"
        works(server, program)


def test_more_clients_than_allowed_are_told(program: Program) -> None:
    with Server(FakeMachine(), limits=ServerLimits(connections=1)) as server:
        with connect(server), pytest.raises(TilewrightError) as caught:
            connect(server)
        assert str(caught.value) == "too many clients are connected"
        eventually(lambda: len(server._connections) == 0)
        works(server, program)


def test_a_closed_server_is_named(program: Program) -> None:
    server = Server(FakeMachine())
    client = connect(server)
    host, port = server.address
    server.close()
    with pytest.raises(RemoteError, match=rf"^(tcp://{host}:{port}: |the connection to )"):
        client.run(program, [], [])
    client.close()
    with pytest.raises(RemoteError, match=rf"^cannot reach tcp://{host}:{port}: "):
        connect(server)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("tcp://board:99", "board", 99),
        ("tcp://192.168.2.99", "192.168.2.99", 7320),
        ("tcp://[fe80::1]:5/", "fe80::1", 5),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    address = parse_address(text)
    assert (address.host, address.port) == (host, port)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    ["tcp://", "tcp://:5", "tcp://a:0", "tcp://a:65536", "http://a:5", "tcp://a:b", "tcp://u@a"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_address(text)
    assert str(caught.value) == f"a server's address must be tcp://host:port, not {text!r}"


@pytest.mark.slow
def test_a_thousand_jobs_with_disconnects() -> None:
    programs = [random_program(TINY, seed, size=6) for seed in range(4)]
    expected = [simulate(program, program.initial_dram()).dram for program in programs]

    def work(number: int) -> int:
        rng = random.Random(number)
        done = 0
        while done < 125:
            with connect(server) as client:
                for _ in range(rng.randrange(1, 20)):
                    index = rng.randrange(len(programs))
                    whole = Region(address=0, size_bytes=programs[index].dram_bytes)
                    (data,) = client.run(programs[index], [], [whole]).regions
                    np.testing.assert_array_equal(data, expected[index])
                    done += 1
            with logged_in(server) as rude:
                digest = programs[0].to_bytes()[-32:].hex()
                fields = {"digest": digest, "patches": [], "regions": []}
                send_frame(rude, Frame(kind=Kind.RUN, fields=fields))
        return done

    with Server(SimulatorMachine()) as server, ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) >= 1000
        eventually(lambda: server.jobs == 0)
