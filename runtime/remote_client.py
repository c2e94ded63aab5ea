"""A machine behind a server on another computer: ``tcp://host:port``."""

import contextlib
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from typing_extensions import Self

from tilewright.isa import errors
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_from_record
from tilewright.isa.errors import InputError, TilewrightError
from tilewright.isa.memories import Engine
from tilewright.isa.program import Program
from tilewright.runtime.board_access import BoardError
from tilewright.runtime.board_machine import (
    Counters,
    EngineCounters,
    MachineRun,
    Patch,
    Region,
    check_places,
)
from tilewright.runtime.remote_protocol import (
    Frame,
    Kind,
    ProtocolError,
    prove,
    receive_frame,
    send_frame,
    timeline_from_fields,
)
from tilewright.runtime.selftest_report import Failure
from tilewright.runtime.server_queue import BusyError
from tilewright.sim.simulator import Progress

#: How the name of a server begins.
REMOTE_PREFIX = "tcp://"
#: The variable that holds the token of servers that ask for one.
TOKEN_VARIABLE = "TILEWRIGHT_TOKEN"
#: Where no port is given.
DEFAULT_PORT = 7320
#: Seconds to wait for a connection, and for the answer to a job.
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 3600.0
#: Bytes of an answer at the most.
_BODY_LIMIT = 1 << 32

#: Errors of the server and of its board, by name, besides those of `tilewright.isa.errors`.
_SERVER_ERRORS: Mapping[str, type[TilewrightError]] = MappingProxyType(
    {"BoardError": BoardError, "BusyError": BusyError, "Failure": Failure}
)
#: Seconds of silence until the other computer is asked whether it is still there, between two such
#: questions, and questions without an answer until it counts as gone.
_KEEP_ALIVE = (10, 5, 3)

_ADDRESS = re.compile(
    r"tcp://(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^\[\]:/@]+))(?::(?P<port>\d+))?/?"
)


class RemoteError(TilewrightError):
    """A server cannot be reached, or has gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAddress:
    """Where a server listens."""

    host: str
    port: int

    @property
    def value(self) -> str:
        """Name of the device."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{REMOTE_PREFIX}{host}:{self.port}"

    def __str__(self) -> str:
        return self.value


def parse_address(text: str) -> RemoteAddress:
    """Return the address that ``tcp://host:port`` means; the port may be left out.

    Raises
    ------
    InputError
        If it is none.
    """
    found = _ADDRESS.fullmatch(text)
    port = int(found["port"] or DEFAULT_PORT) if found else 0
    if found is None or not 0 < port < 1 << 16:
        raise InputError(f"a server's address must be tcp://host:port, not {text!r:.80}")
    return RemoteAddress(host=found["six"] or found["host"], port=port)


class RemoteMachine:
    """The machine of a server; a context manager.

    Raises
    ------
    RemoteError
        If the server cannot be reached.
    ProtocolError
        If it does not speak this protocol, or the token is wrong.
    """

    def __init__(self, address: RemoteAddress, *, token: str | None = None) -> None:
        self._address = address
        self._config: AcceleratorConfig | None = None
        try:
            self._connection = socket.create_connection(
                (address.host, address.port), timeout=_CONNECT_SECONDS
            )
        except OSError as error:
            raise RemoteError(f"cannot reach {address}: {error.strerror or error}") from error
        try:
            self._description = self._log_in(token)
        except TilewrightError:
            self.close()
            raise

    @property
    def description(self) -> str:
        """What it is, in one line."""
        return f"{self._description} at {self._address}"

    @property
    def config(self) -> AcceleratorConfig | None:
        """The only configuration that it runs programs of, or None."""
        return self._config

    def check_registers(self) -> str | None:
        """Let the server try those of its machine; see `Machine.check_registers`."""
        answer = self._ask(Frame(kind=Kind.CHECK, fields={}), Kind.DONE)
        return None if answer.fields.get("tried") is None else answer.field("tried", str)

    def run(
        self,
        program: Program,
        patches: Sequence[Patch],
        regions: Sequence[Region],
        progress: Progress | None = None,
    ) -> MachineRun:
        """Run a legal program once; `progress` is called at the start and at the end."""
        check_places(program, patches, regions)
        if progress is not None:
            progress(0, len(program.instructions))
        data = program.to_bytes()
        digest = data[-32:].hex()
        known = self._ask(Frame(kind=Kind.FIND, fields={"digest": digest}), Kind.DONE)
        if not known.field("known", bool):
            self._ask(Frame(kind=Kind.PROGRAM, fields={}, body=data), Kind.DONE)
        request = Frame(
            kind=Kind.RUN,
            fields={
                "digest": digest,
                "patches": [[patch.address, patch.data.size] for patch in patches],
                "regions": [[region.address, region.size_bytes] for region in regions],
            },
            body=b"".join(patch.data.tobytes() for patch in patches),
        )
        run = _machine_run(self._ask(request, Kind.RESULT), regions)
        if progress is not None:
            progress(len(program.instructions), len(program.instructions))
        return run

    def close(self) -> None:
        """Leave the server."""
        with contextlib.suppress(OSError):
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _log_in(self, token: str | None) -> str:
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(self._connection)
        greeting = self._receive(Kind.GREETING)
        if greeting.field("needs_token", bool) and token is None:
            raise InputError(
                f"the server at {self._address} asks for a token",
                hint=f"put it into the variable {TOKEN_VARIABLE}",
            )
        proof = prove(token or "", greeting.field("nonce", str))
        answer = self._ask(Frame(kind=Kind.LOGIN, fields={"proof": proof}), Kind.DONE)
        if (own := answer.fields.get("config")) is not None:
            self._config = config_from_record(own)
        self._connection.settimeout(_ANSWER_SECONDS)
        return greeting.field("description", str)

    def _ask(self, frame: Frame, expected: Kind) -> Frame:
        try:
            send_frame(self._connection, frame)
        except OSError as error:
            raise RemoteError(
                f"the connection to {self._address} broke: {error.strerror or error}"
            ) from error
        return self._receive(expected)

    def _receive(self, expected: Kind) -> Frame:
        try:
            answer = receive_frame(self._connection, _BODY_LIMIT)
        except ProtocolError as error:
            raise RemoteError(f"{self._address}: {error}") from error
        if answer.kind is Kind.ERROR:
            raise _error(answer)
        if answer.kind is not expected:
            raise ProtocolError(
                f"{self._address} answers with {answer.kind.value}, not {expected.value}"
            )
        return answer


def keep_alive(connection: socket.socket) -> None:
    """Notice within half a minute that the other computer has lost its power or its network."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
    for name, value in zip(names, _KEEP_ALIVE, strict=True):
        if hasattr(socket, name):  # Linux and others, not every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _machine_run(frame: Frame, regions: Sequence[Region]) -> MachineRun:
    size = sum(region.size_bytes for region in regions)
    if len(frame.body) < size:
        raise ProtocolError(f"a result of {size} bytes was cut off after {len(frame.body)}")
    arrays, position = [], 0
    for region in regions:
        part = frame.body[position : position + region.size_bytes]
        arrays.append(np.frombuffer(part, dtype=np.uint8).copy())
        position += region.size_bytes
    timeline = frame.fields.get("timeline")
    counters = frame.fields.get("counters")
    return MachineRun(
        regions=tuple(arrays),
        cycles=frame.field("cycles", int),
        timeline=None
        if timeline is None
        else timeline_from_fields(frame, frame.field("timeline", dict), frame.body[position:]),
        counters=None if counters is None else _counters(frame.field("counters", dict)),
    )


def _counters(record: dict[str, Any]) -> Counters:
    try:
        engines = tuple(EngineCounters(**engine) for engine in record["engines"])
        if len(engines) != len(Engine):
            raise ProtocolError(f"counters of {len(engines)} engines came, not {len(Engine)}")
        return Counters(cycles=record["cycles"], engines=engines)
    except (KeyError, TypeError):
        raise ProtocolError("the counters of a result are damaged") from None


def _error(frame: Frame) -> TilewrightError:
    """Make the error that the server met."""
    hint = frame.fields.get("hint")
    name = frame.field("type", str)
    known = _SERVER_ERRORS.get(name) or getattr(errors, name, None)
    cls = TilewrightError
    if isinstance(known, type) and issubclass(known, TilewrightError):
        cls = known
    return cls(frame.field("message", str), hint=hint if isinstance(hint, str) else None)
