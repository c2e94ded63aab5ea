"""Frames between a client and a server: a fixed prefix, a JSON header and raw bytes.

The server greets with a nonce; a client that must know the token proves it with an HMAC of that
nonce, so the token itself is never sent. Nothing is encrypted. Requests and answers alternate.
"""

import hashlib
import hmac
import json
import socket
import struct
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from tilewright.isa.errors import TilewrightError
from tilewright.sim.timeline import Timeline

#: First bytes of a frame.
MAGIC = b"tlwrnt\r\n"
#: Version of frames and their headers.
VERSION = 1
#: Bytes of a header at the most.
HEADER_LIMIT = 1 << 20

_PREFIX = struct.Struct("<8sIIQ")
_CHUNK_BYTES = 1 << 16
_T = TypeVar("_T")


class Kind(Enum):
    """Kinds of frames."""

    #: From the server: ``nonce``, ``needs_token``, ``description``.
    GREETING = "greeting"
    #: From the client: ``proof``.
    LOGIN = "login"
    #: From the client: asks for a program by ``digest``.
    FIND = "find"
    #: From the client: the body is the file of a program.
    PROGRAM = "program"
    #: From the client: ``digest``, ``patches`` and ``regions``; the body is the patches' data.
    RUN = "run"
    #: From the client: asks to try the registers of the machine, when it is this client's turn.
    CHECK = "check"
    #: From the server: done; ``config`` is what its machine runs programs of, or null for every
    #: one, after a `LOGIN`; ``known`` says whether it has the program of a `FIND`; ``tried`` what
    #: was tried for a `CHECK`, or null where there are no registers.
    DONE = "done"
    #: From the server: ``cycles``, ``timeline``, ``counters``; the body is regions and timeline.
    RESULT = "result"
    #: From the server: ``type``, ``message``, ``hint``.
    ERROR = "error"


class ProtocolError(TilewrightError):
    """The other side sent what is no frame, or left in the middle of one."""


class Disconnected(ProtocolError):
    """The other side has closed the connection between two frames."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One message."""

    kind: Kind
    fields: dict[str, Any]
    body: bytes = b""

    def field(self, name: str, kind: type[_T]) -> _T:
        """Return a field of the header; raises `ProtocolError` where its type is another."""
        value = self.fields.get(name)
        if type(value) is not kind:
            raise ProtocolError(
                f"{name} of a {self.kind.value} frame must be of type {kind.__name__},"
                f" not {value!r:.40}"
            )
        checked: _T = value
        return checked

    def pairs(self, name: str, limit: int) -> list[tuple[int, int]]:
        """Return a field that lists addresses and sizes, `limit` of them at most."""
        rows = self.field(name, list)
        if len(rows) > limit:
            raise ProtocolError(f"{name} must list at most {limit} places, not {len(rows)}")
        for row in rows:
            if type(row) is not list or [type(item) for item in row] != [int, int]:
                raise ProtocolError(f"{name} must list addresses and sizes, not {row!r:.40}")
            if not all(0 <= item < 1 << 40 for item in row):
                raise ProtocolError(f"{name} must not hold {row!r:.60}")
        return [(address, size) for address, size in rows]


def send_frame(connection: socket.socket, frame: Frame) -> None:
    """Send a frame; raises `OSError` where the other side has gone."""
    header = json.dumps(
        {"kind": frame.kind.value, **frame.fields}, separators=(",", ":"), allow_nan=False
    ).encode()
    prefix = _PREFIX.pack(MAGIC, VERSION, len(header), len(frame.body))
    connection.sendall(prefix + header)
    connection.sendall(frame.body)


def receive_frame(connection: socket.socket, body_limit: int) -> Frame:
    """Receive a frame; what it may need of memory is known before it is taken.

    Raises
    ------
    Disconnected
        If the connection is closed before its first byte.
    ProtocolError
        If what comes is no frame, too large, cut off, or too slow.
    """
    prefix = _receive(connection, _PREFIX.size, first=True)
    magic, version, header_bytes, body_bytes = _PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise ProtocolError("what came is no frame: it does not begin with the signature")
    if version != VERSION:
        raise ProtocolError(f"the frame has version {version}, this is version {VERSION}")
    if header_bytes > HEADER_LIMIT:
        raise ProtocolError(f"a header has {HEADER_LIMIT} bytes at most, not {header_bytes}")
    if body_bytes > body_limit:
        raise ProtocolError(f"a frame may carry {body_limit} bytes here, not {body_bytes}")
    header = _parse_header(_receive(connection, header_bytes))
    return Frame(
        kind=_parse_kind(header.pop("kind", None)),
        fields=header,
        body=_receive(connection, body_bytes),
    )


def prove(token: str, nonce: str) -> str:
    """Return the proof that one knows the token."""
    return hmac.new(token.encode(), nonce.encode(), hashlib.sha256).hexdigest()


def timeline_to_fields(timeline: Timeline) -> tuple[dict[str, Any], bytes]:
    """Return a timeline as a field of a header and the part of a body."""
    arrays = {name: getattr(timeline, name) for name in _arrays()}
    record = {
        "cycles": timeline.cycles,
        "fetch_bytes": timeline.fetch_bytes,
        "instructions": len(timeline.engine),
    }
    body = b"".join(
        array.astype(_arrays()[name].newbyteorder("<")).tobytes() for name, array in arrays.items()
    )
    return record, body


def timeline_from_fields(frame: Frame, record: dict[str, Any], body: bytes) -> Timeline:
    """Return the timeline of a result; the inverse of `timeline_to_fields`."""
    checked = Frame(kind=frame.kind, fields=record)
    count = checked.field("instructions", int)
    sizes = {name: dtype.itemsize * count for name, dtype in _arrays().items()}
    if count < 0 or sum(sizes.values()) != len(body):
        raise ProtocolError(f"a timeline of {count} instructions has not {len(body)} bytes")
    position, arrays = 0, {}
    for name, size in sizes.items():
        dtype = _arrays()[name]
        part = body[position : position + size]
        arrays[name] = np.frombuffer(part, dtype=dtype.newbyteorder("<")).astype(dtype)
        position += size
    return Timeline(
        cycles=checked.field("cycles", int),
        fetch_bytes=checked.field("fetch_bytes", int),
        **arrays,
    )


def _arrays() -> dict[str, np.dtype[Any]]:
    """Arrays of a timeline, in the order in which they are sent."""
    narrow, wide, scalars = ("engine", "token_giver"), np.dtype("i8"), ("cycles", "fetch_bytes")
    names = [field.name for field in fields(Timeline) if field.name not in scalars]
    return {name: np.dtype("i1") if name in narrow else wide for name in names}


def _receive(connection: socket.socket, size: int, *, first: bool = False) -> bytes:
    data = bytearray()
    while len(data) < size:
        try:
            part = connection.recv(min(_CHUNK_BYTES, size - len(data)))
        except TimeoutError:
            raise ProtocolError("a frame did not come in time") from None
        except OSError as error:
            raise Disconnected(f"the connection broke: {error.strerror}") from error
        if not part and first and not data:
            raise Disconnected("the connection was closed")
        if not part:
            raise ProtocolError(f"a frame was cut off after {len(data)} of {size} bytes")
        data += part
    return bytes(data)


def _parse_header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolError("the header of a frame is not JSON") from None
    if type(header) is not dict:
        raise ProtocolError(f"the header of a frame must be an object, not {header!r:.40}")
    return header


def _parse_kind(value: object) -> Kind:
    kinds = {kind.value: kind for kind in Kind}
    if type(value) is not str or value not in kinds:
        raise ProtocolError(f"there is no frame of kind {value!r:.40}")
    return kinds[value]
