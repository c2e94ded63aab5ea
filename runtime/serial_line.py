"""Registers and memory of an accelerator at the other end of a serial line."""

import time
from typing import Protocol

import numpy as np
from typing_extensions import Self

from tilewright.isa.registers import REGISTER_BYTES
from tilewright.isa.serial_commands import (
    ACKNOWLEDGE,
    BAUD,
    MEMORY_BIT,
    READ,
    SERIAL_ADDRESS_BYTES,
    SERIAL_COUNT_BYTES,
    WRITE,
)
from tilewright.runtime.board_access import BoardError
from tilewright.runtime.board_machine import Bytes

#: Words of one command at the most; zeros for as many bring the other side back into step.
_MOST_WORDS = 1024
#: Time for an answer, beyond that of its bytes on the line.
_ANSWER_SECONDS = 1.0
#: Time in which zeros have ended any command, and a silence after which no more bytes come.
_SYNCHRONISE_SECONDS, _SILENCE_SECONDS = 0.2, 0.05


class Port(Protocol):
    """What is used of `serial.Serial`."""

    #: Time limit of a read.
    timeout: float | None

    def write(self, data: bytes, /) -> int | None:
        """Send bytes."""
        ...

    def read(self, size: int = 1, /) -> bytes:
        """Take bytes, fewer where they do not come in time."""
        ...

    def close(self) -> None:
        """Close the line."""
        ...


class SerialLine:
    """The commands of `tilewright.isa.serial_commands` over a port.

    Parameters
    ----------
    name
        The port, for messages.
    port
        Open, with a time limit for reads.
    """

    def __init__(self, name: str, port: Port) -> None:
        self._name = name
        self._port = port

    @classmethod
    def open(cls, name: str) -> Self:
        """Open a port of this computer.

        Raises
        ------
        BoardError
            If pyserial is missing, or the port cannot be opened.
        """
        try:
            import serial
        except ImportError as error:
            raise BoardError(
                "a board at a serial port needs the package pyserial",
                hint="pip install 'tilewright[serial]'",
            ) from error
        try:
            seconds = _ANSWER_SECONDS + 10 * REGISTER_BYTES * _MOST_WORDS / BAUD
            return cls(name, serial.Serial(name, BAUD, timeout=seconds, write_timeout=seconds))
        except (OSError, ValueError) as error:
            raise BoardError(f"cannot open the serial port {name}: {error}") from error

    def synchronise(self) -> None:
        """End a command that an earlier user has left in its middle."""
        self._send(bytes(REGISTER_BYTES * _MOST_WORDS + 16))
        end, patience = time.monotonic() + _SYNCHRONISE_SECONDS, self._port.timeout
        self._port.timeout = _SILENCE_SECONDS
        while self._port.read(_MOST_WORDS) or time.monotonic() < end:
            pass  # an answer to the earlier user, or to what the zeros have ended
        self._port.timeout = patience

    def read(self, offset: int) -> int:
        """Return the register at a byte offset."""
        return int.from_bytes(self._read_words(offset, 1), "little")

    def write(self, offset: int, value: int) -> None:
        """Write the register at a byte offset."""
        self._write_words(offset, int(value).to_bytes(REGISTER_BYTES, "little"))

    def read_memory(self, address: int, size: int) -> Bytes:
        """Return bytes of the memory."""
        begin, end = _words(address, size)
        parts = [
            self._read_words(1 << MEMORY_BIT | place, count)
            for place, count in _commands(begin, end)
        ]
        data = np.frombuffer(b"".join(parts), dtype=np.uint8)
        wanted: Bytes = data[address - begin : address - begin + size].copy()
        return wanted

    def write_memory(self, address: int, data: Bytes) -> None:
        """Write bytes of the memory; those that share a word with them stay as they are."""
        begin, end = _words(address, data.size)
        whole = np.empty(end - begin, dtype=np.uint8)
        if begin != address:
            whole[:REGISTER_BYTES] = self.read_memory(begin, REGISTER_BYTES)
        if end != address + data.size:
            whole[-REGISTER_BYTES:] = self.read_memory(end - REGISTER_BYTES, REGISTER_BYTES)
        whole[address - begin : address - begin + data.size] = data
        for place, count in _commands(begin, end):
            part = whole[place - begin : place - begin + count * REGISTER_BYTES]
            self._write_words(1 << MEMORY_BIT | place, part.tobytes())

    def close(self) -> None:
        """Close the port."""
        self._port.close()

    def _read_words(self, address: int, count: int) -> bytes:
        self._send(_head(READ, address, count))
        return self._take(REGISTER_BYTES * count)

    def _write_words(self, address: int, data: bytes) -> None:
        self._send(_head(WRITE, address, len(data) // REGISTER_BYTES) + data)
        if (answer := self._take(1)) != bytes([ACKNOWLEDGE]):
            raise BoardError(
                f"the board at {self._name} acknowledges a write with {answer[0]:#04x}",
                hint="another program may use the port",
            )

    def _send(self, data: bytes) -> None:
        try:
            self._port.write(data)
        except OSError as error:
            raise BoardError(f"the board at {self._name} has gone: {error}") from error

    def _take(self, size: int) -> bytes:
        try:
            data = self._port.read(size)
        except OSError as error:
            raise BoardError(f"the board at {self._name} has gone: {error}") from error
        if len(data) != size:
            raise BoardError(
                f"the board at {self._name} does not answer: {len(data)} of {size} bytes came",
                hint="load its bitstream, such as with openFPGALoader --board=ulx3s tilewright.bit",
            )
        return data


def _head(letter: int, address: int, count: int) -> bytes:
    return (
        bytes([letter])
        + address.to_bytes(SERIAL_ADDRESS_BYTES, "little")
        + count.to_bytes(SERIAL_COUNT_BYTES, "little")
    )


def _words(address: int, size: int) -> tuple[int, int]:
    """Bounds of the whole words that hold some bytes."""
    return address & -REGISTER_BYTES, -(-(address + size) // REGISTER_BYTES) * REGISTER_BYTES


def _commands(begin: int, end: int) -> list[tuple[int, int]]:
    """Addresses and counts of the commands for a range of words."""
    step = REGISTER_BYTES * _MOST_WORDS
    return [(place, min(step, end - place) // REGISTER_BYTES) for place in range(begin, end, step)]
