"""A server that runs programs for clients on other computers, on the machine that it was given."""

import contextlib
import hmac
import ipaddress
import secrets
import select
import socket
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from typing_extensions import Self

from tilewright.isa.config_record import config_to_record
from tilewright.isa.errors import InputError, TilewrightError
from tilewright.isa.program import Program
from tilewright.isa.validator import validate
from tilewright.runtime.board_machine import Machine, MachineRun, Patch, Region
from tilewright.runtime.remote_protocol import (
    Disconnected,
    Frame,
    Kind,
    ProtocolError,
    prove,
    receive_frame,
    send_frame,
    timeline_to_fields,
)
from tilewright.runtime.server_queue import BusyError, Deadline, JobQueue

#: Places that a run may patch or read.
_PLACES = 1024
#: Seconds between two looks at whether the server is to be closed.
_LOOK_SECONDS = 0.2
#: Bytes of a login frame's body.
_NO_BODY = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What a server grants its clients."""

    #: Bytes of a frame's body: the file of a program, or the inputs of a run.
    body_bytes: int = 1 << 29
    #: DRAM that a program may need.
    dram_bytes: int = 1 << 30
    #: Bytes of programs that are kept for runs to come.
    program_bytes: int = 1 << 30
    connections: int = 32
    #: Jobs that run or wait.
    jobs: int = 32
    #: Time that a job may take, once it runs.
    job_seconds: float = 600.0
    #: Time between two requests of a client, and for each of its packets.
    idle_seconds: float = 300.0
    #: Time until a client has logged in.
    login_seconds: float = 10.0


class Server:
    """Listens on an address until it is closed; a context manager.

    Parameters
    ----------
    machine
        Runs the programs.
    host, port
        Address to listen on; port 0 takes a free one. Other hosts than loopback need a token.
    token
        What clients must know.
    parallel
        Jobs that the machine runs at a time.

    Raises
    ------
    InputError
        If the address cannot be listened on, or lacks a token.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        limits: ServerLimits | None = None,
        parallel: int = 1,
    ) -> None:
        if token is None and not _is_loopback(host):
            raise InputError(
                f"listening on {host} needs a token, as every computer of the network could"
                " use the machine"
            )
        self._machine = machine
        self._token = token
        self._limits = limits or ServerLimits()
        self._queue = JobQueue(self._limits.jobs, parallel=parallel)
        self._programs: OrderedDict[str, tuple[Program, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._closing = threading.Event()
        try:
            self._listener = socket.create_server((host, port))
            self._listener.settimeout(_LOOK_SECONDS)
        except OSError as error:
            raise InputError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        host, port = self._listener.getsockname()[:2]
        self._address: tuple[str, int] = host, port
        self._acceptor = threading.Thread(target=self._accept, name="tilewright-accept")
        self._acceptor.start()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self._address

    @property
    def jobs(self) -> int:
        """Jobs that run or wait."""
        return self._queue.length

    def close(self) -> None:
        """Stop listening, drop all clients and wait for the job that runs."""
        self._closing.set()
        self._listener.close()
        self._acceptor.join()
        with self._lock:
            connections, threads = list(self._connections), list(self._threads)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                # Closed, or out of file descriptors: the next client may have better luck.
                self._closing.wait(0.1)
                continue
            self._welcome(connection)

    def _welcome(self, connection: socket.socket) -> None:
        with self._lock:
            full = len(self._connections) >= self._limits.connections
            if not full:
                self._connections.add(connection)
        if full:
            with contextlib.suppress(OSError), connection:
                connection.settimeout(1.0)
                send_frame(connection, _error_frame(BusyError("too many clients are connected")))
            return
        thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def _serve(self, connection: socket.socket) -> None:
        """Talk to one client until it leaves or breaks the protocol."""
        try:
            # A client that has gone cannot be told of it.
            with contextlib.suppress(OSError), connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._converse(connection)
        finally:
            with self._lock:
                self._connections.discard(connection)
                self._threads.discard(threading.current_thread())

    def _converse(self, connection: socket.socket) -> None:
        try:
            self._log_in(connection)
            connection.settimeout(self._limits.idle_seconds)
            while not self._closing.is_set():
                frame = receive_frame(connection, self._limits.body_bytes)
                send_frame(connection, self._answer(connection, frame))
        except Disconnected:
            return
        except ProtocolError as error:
            send_frame(connection, _error_frame(error))

    def _log_in(self, connection: socket.socket) -> None:
        nonce = secrets.token_hex(32)
        connection.settimeout(self._limits.login_seconds)
        greeting = {
            "nonce": nonce,
            "needs_token": self._token is not None,
            "description": self._machine.description,
        }
        send_frame(connection, Frame(kind=Kind.GREETING, fields=greeting))
        frame = receive_frame(connection, _NO_BODY)
        if frame.kind is not Kind.LOGIN:
            raise ProtocolError(f"a client must log in first, not send {frame.kind.value}")
        proof = frame.field("proof", str)
        expected = prove(self._token or "", nonce)
        if self._token is not None and not hmac.compare_digest(proof.encode(), expected.encode()):
            raise ProtocolError("the token is wrong")
        own = self._machine.config
        fields = {"config": None if own is None else config_to_record(own)}
        send_frame(connection, Frame(kind=Kind.DONE, fields=fields))

    def _answer(self, connection: socket.socket, frame: Frame) -> Frame:
        """Do what a client asks; what fails is an answer, too."""
        try:
            match frame.kind:
                case Kind.FIND:
                    known = self._find(frame.field("digest", str)) is not None
                    return Frame(kind=Kind.DONE, fields={"known": known})
                case Kind.PROGRAM:
                    with self._turn(connection):
                        self._keep(frame)
                    return Frame(kind=Kind.DONE, fields={})
                case Kind.RUN:
                    return self._run(connection, frame)
                case Kind.CHECK:
                    with self._turn(connection):
                        tried = self._machine.check_registers()
                    return Frame(kind=Kind.DONE, fields={"tried": tried})
                case Kind.GREETING | Kind.LOGIN | Kind.DONE | Kind.RESULT | Kind.ERROR:
                    raise ProtocolError(f"a client must not send {frame.kind.value}")
        except (Disconnected, ProtocolError):
            raise
        except TilewrightError as error:
            return _error_frame(error)
        except MemoryError:
            return _error_frame(TilewrightError("the server has not enough memory for the job"))

    @contextlib.contextmanager
    def _turn(self, connection: socket.socket) -> Iterator[None]:
        with self._queue.turn(lambda: self._is_wanted(connection)) as wanted:
            if not wanted:
                raise Disconnected("the client has gone")
            yield

    def _is_wanted(self, connection: socket.socket) -> bool:
        """Whether the client is still there; it must not speak while it waits for an answer."""
        if self._closing.is_set():
            return False
        readable, _, _ = select.select([connection], [], [], 0)
        if not readable:
            return True
        try:
            return bool(connection.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def _find(self, digest: str) -> Program | None:
        with self._lock:
            if digest not in self._programs:
                return None
            self._programs.move_to_end(digest)
            return self._programs[digest][0]

    def _keep(self, frame: Frame) -> None:
        """Check a program and keep it, in the place of those that were used the longest ago."""
        program = Program.from_bytes(frame.body)
        if program.dram_bytes > self._limits.dram_bytes:
            raise InputError(
                f"the program needs {program.dram_bytes} bytes of DRAM,"
                f" the server grants {self._limits.dram_bytes}"
            )
        validate(program)
        digest = frame.body[-32:].hex()
        with self._lock:
            self._programs[digest] = program, len(frame.body)
            while sum(size for _, size in self._programs.values()) > self._limits.program_bytes:
                self._programs.popitem(last=False)

    def _run(self, connection: socket.socket, frame: Frame) -> Frame:
        program = self._find(frame.field("digest", str))
        if program is None:
            raise InputError("the server does not have the program any more", hint="send it again")
        patches = _patches(frame)
        regions = [
            Region(address=address, size_bytes=size)
            for address, size in frame.pairs("regions", _PLACES)
        ]
        if sum(region.size_bytes for region in regions) > self._limits.body_bytes:
            raise InputError(f"a result may have {self._limits.body_bytes} bytes at most")
        with self._turn(connection):
            deadline = Deadline(self._limits.job_seconds, lambda: self._is_wanted(connection))
            run = self._machine.run(program, patches, regions, deadline)
        return _result_frame(run)


def _patches(frame: Frame) -> list[Patch]:
    patches, position = [], 0
    for address, size in frame.pairs("patches", _PLACES):
        data = frame.body[position : position + size]
        if len(data) != size:
            raise ProtocolError(f"the patches have more than the {len(frame.body)} bytes sent")
        patches.append(Patch(address=address, data=np.frombuffer(data, dtype=np.uint8)))
        position += size
    if position != len(frame.body):
        raise ProtocolError(f"the patches have {position} bytes, not the {len(frame.body)} sent")
    return patches


def _result_frame(run: MachineRun) -> Frame:
    fields: dict[str, Any] = {
        "cycles": run.cycles,
        "counters": None if run.counters is None else asdict(run.counters),
        "timeline": None,
    }
    body = b"".join(region.tobytes() for region in run.regions)
    if run.timeline is not None:
        fields["timeline"], arrays = timeline_to_fields(run.timeline)
        body += arrays
    return Frame(kind=Kind.RESULT, fields=fields, body=body)


def _error_frame(error: TilewrightError) -> Frame:
    fields = {"type": type(error).__name__, "message": str(error), "hint": error.hint}
    return Frame(kind=Kind.ERROR, fields=fields)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
