"""A program: instructions and constants for one configuration, and the file that holds them."""

import hashlib
import json
import os
import struct
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

from tilewright.isa.config import AcceleratorConfig, differing_fields
from tilewright.isa.config_record import config_from_record, config_to_record
from tilewright.isa.encoding import decode_program, encode_program, instruction_bytes
from tilewright.isa.errors import ConfigError, ProgramError
from tilewright.isa.instructions import AnyInstruction
from tilewright.isa.timing import fetch_burst_instructions

#: First bytes of a program file; the line end shows damage by text-mode transfers.
MAGIC = b"tlwrpg\r\n"
#: Version of the file format.
VERSION = 1

_PREFIX = struct.Struct("<8sII")
_T = TypeVar("_T")
_CHECKSUM_BYTES = hashlib.sha256().digest_size


class BufferRole(Enum):
    """What a DRAM buffer is to the host."""

    #: Written by the host before the program runs.
    INPUT = "input"
    #: Read by the host after the program has finished.
    OUTPUT = "output"
    #: Only used inside the program.
    SCRATCH = "scratch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Constant bytes that lie in DRAM before the program starts and are never written."""

    #: First byte in DRAM.
    address: int
    #: Weights, parameters, tables or micro-ops.
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A named region of DRAM; buffers may share bytes with other buffers at different times."""

    #: Name, unique within the program.
    name: str
    #: First byte in DRAM.
    address: int
    #: Length.
    size_bytes: int
    #: Who writes and reads it.
    role: BufferRole


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Everything that one run of the accelerator needs besides its input data.

    Construction raises `ProgramError` where regions of DRAM overlap that must not, or do not fit;
    whether the instructions keep the rules of the machine is what `tilewright.isa.validator` says.
    """

    #: The machine that the program was made for; every consumer refuses another one.
    config: AcceleratorConfig
    #: In the order of dispatch.
    instructions: tuple[AnyInstruction, ...]
    #: DRAM address of the first encoded instruction, a multiple of `code_alignment_bytes`.
    code_address: int
    #: Constants; they overlap neither the code nor each other.
    constants: tuple[Segment, ...] = ()
    #: Regions that the host or a profile has a name for; they overlap no constants and no code.
    buffers: tuple[Buffer, ...] = ()
    #: Bytes of DRAM, counted from address 0, below which everything lies.
    dram_bytes: int
    #: Names of the layers of the network, for profiles.
    layers: tuple[str, ...] = ()
    #: Per instruction the index into `layers`, or -1; empty where nothing is known.
    layer_of_instruction: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        limit = self.config.dram.size_bytes
        if not 0 < self.dram_bytes <= limit:
            raise ProgramError(f"dram_bytes must be from 1 to {limit}, not {self.dram_bytes}")
        alignment = code_alignment_bytes(self.config)
        if self.code_address % alignment:
            raise ProgramError(
                f"code_address must be a multiple of {alignment}, not {self.code_address}"
            )
        self._check_regions()
        self._check_layers()

    def _check_regions(self) -> None:
        fixed = [_Region("the code", self.code_address, self.code_bytes)]
        fixed += [
            _Region(f"constant segment {i}", item.address, len(item.data))
            for i, item in enumerate(self.constants)
        ]
        buffers = [
            _Region(f"buffer {item.name!r}", item.address, item.size_bytes) for item in self.buffers
        ]
        for region in fixed + buffers:
            if region.size_bytes < 0 or not 0 <= region.address <= region.end <= self.dram_bytes:
                raise ProgramError(
                    f"{region} does not lie within dram_bytes ({self.dram_bytes:#x})"
                )
        fixed = sorted((item for item in fixed if item.size_bytes), key=lambda item: item.address)
        for first, second in pairwise(fixed):
            if second.address < first.end:
                raise ProgramError(f"{second} overlaps {first}")
        starts = [item.address for item in fixed]
        for buffer in buffers:
            below = fixed[: bisect_right(starts, buffer.end - 1)][-1:]
            if buffer.size_bytes and below and below[0].end > buffer.address:
                raise ProgramError(f"{buffer} overlaps {below[0]}")
        names = [item.name for item in self.buffers]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ProgramError(f"buffer names must be unique, {twice!r} is not")

    def _check_layers(self) -> None:
        if len(self.layer_of_instruction) not in (0, len(self.instructions)):
            raise ProgramError(
                f"layer_of_instruction must have {len(self.instructions)} items or none,"
                f" not {len(self.layer_of_instruction)}"
            )
        for layer in self.layer_of_instruction:
            if not -1 <= layer < len(self.layers):
                raise ProgramError(
                    f"layer_of_instruction must hold numbers from -1 to {len(self.layers) - 1},"
                    f" not {layer}"
                )

    @property
    def code_bytes(self) -> int:
        """Bytes of the encoded instructions."""
        return len(self.instructions) * instruction_bytes(self.config)

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """Buffers that the host writes."""
        return tuple(item for item in self.buffers if item.role is BufferRole.INPUT)

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """Buffers that the host reads."""
        return tuple(item for item in self.buffers if item.role is BufferRole.OUTPUT)

    def initial_dram(self) -> npt.NDArray[np.uint8]:
        """Make DRAM as it is before the inputs are written: zeros, constants and code."""
        dram = np.zeros(self.dram_bytes, dtype=np.uint8)
        for segment in self.constants:
            data = np.frombuffer(segment.data, dtype=np.uint8)
            dram[segment.address : segment.address + data.size] = data
        code = encode_program(self.instructions, self.config)
        dram[self.code_address : self.code_address + code.size] = code
        return dram

    def to_bytes(self) -> bytes:
        """Write the file format: prefix, JSON header, code, constants, layers, SHA-256."""
        header = {
            "config": config_to_record(self.config),
            "instructions": len(self.instructions),
            "code_address": self.code_address,
            "constants": [[item.address, len(item.data)] for item in self.constants],
            "buffers": [
                [item.name, item.address, item.size_bytes, item.role.value] for item in self.buffers
            ],
            "dram_bytes": self.dram_bytes,
            "layers": list(self.layers),
            "layer_of_instruction": len(self.layer_of_instruction),
        }
        text = json.dumps(header, separators=(",", ":")).encode()
        body = b"".join(
            (
                _PREFIX.pack(MAGIC, VERSION, len(text)),
                text,
                encode_program(self.instructions, self.config).tobytes(),
                *(item.data for item in self.constants),
                np.array(self.layer_of_instruction, dtype="<i4").tobytes(),
            )
        )
        return body + hashlib.sha256(body).digest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the file format; the inverse of `to_bytes`.

        Raises `ProgramError` for anything that `to_bytes` did not write; needs no more memory than
        a small multiple of the data.
        """
        body = memoryview(data)[:-_CHECKSUM_BYTES]
        if len(body) < _PREFIX.size:
            raise ProgramError(f"not a program file: {len(data)} bytes are too few")
        magic, version, header_bytes = _PREFIX.unpack_from(body)
        if magic != MAGIC:
            raise ProgramError("not a program file: it does not begin with the program signature")
        if version != VERSION:
            raise ProgramError(f"program file has version {version}, this is version {VERSION}")
        if hashlib.sha256(body).digest() != data[len(body) :]:
            raise ProgramError("program file is damaged: its checksum does not match")
        reader = _Reader(body, _PREFIX.size)
        header = _Header(reader.take(header_bytes, "header"))
        return cls(**_program_arguments(header, reader))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a program file; an interrupted or failed write leaves the old file in place.

        Raises `ProgramError` where it cannot be written.
        """
        target = Path(path)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(self.to_bytes())
            temporary.replace(target)
        except OSError as error:
            raise ProgramError(f"cannot write program file {path}: {error.strerror}") from error
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a program file; raises `ProgramError` where it cannot be read or is damaged."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise ProgramError(f"cannot read program file {path}: {error.strerror}") from error
        return cls.from_bytes(data)


def code_alignment_bytes(config: AcceleratorConfig) -> int:
    """Alignment of a program's code: a full fetch burst, so that no burst crosses a page."""
    return fetch_burst_instructions(config) * instruction_bytes(config)


def check_config(program: Program, config: AcceleratorConfig) -> None:
    """Refuse a program on a machine that it was not made for; the names need not match.

    Raises
    ------
    ConfigError
        Names every field that differs, with both values.
    """
    names = [name for name in differing_fields(program.config, config) if name != "name"]
    if names:
        differences = ", ".join(
            f"{name} {_value(program.config, name)} instead of {_value(config, name)}"
            for name in names
        )
        raise ConfigError(
            f"the program was made for another configuration than {config.name!r}: {differences}",
            hint="compile the model for the configuration that it shall run on",
        )


def _value(config: AcceleratorConfig, path: str) -> object:
    holder: object = config
    for name in path.split("."):
        holder = getattr(holder, name)
    return holder


@dataclass(frozen=True, slots=True)
class _Region:
    name: str
    address: int
    size_bytes: int

    @property
    def end(self) -> int:
        return self.address + self.size_bytes

    def __str__(self) -> str:
        return f"{self.name} at {self.address:#x} to {self.end:#x}"


class _Reader:
    """Takes one section after the other from the body of a file."""

    def __init__(self, body: memoryview, position: int) -> None:
        self._body = body
        self._position = position

    def take(self, size: int, section: str) -> bytes:
        end = self._position + size
        if end > len(self._body):
            raise ProgramError(f"program file is damaged: its {section} is cut off")
        data = bytes(self._body[self._position : end])
        self._position = end
        return data

    def finish(self) -> None:
        if self._position != len(self._body):
            raise ProgramError(
                f"program file is damaged: {len(self._body) - self._position} bytes too many"
            )


class _Header:
    """The JSON header with checked access."""

    def __init__(self, text: bytes) -> None:
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            raise ProgramError("program file is damaged: its header is not JSON") from None
        self._record: dict[str, Any] = record if isinstance(record, dict) else {}

    def record(self, key: str) -> dict[str, Any]:
        return _typed(self._record.get(key), dict, key)

    def natural(self, key: str) -> int:
        return _natural(self._record.get(key), key)

    def rows(self, key: str, width: int) -> Iterable[list[Any]]:
        for row in _typed(self._record.get(key), list, key):
            if len(_typed(row, list, key)) != width:
                raise ProgramError(f"program file is damaged: {key} has a row of wrong length")
            yield row

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(_typed(item, str, key) for item in _typed(self._record.get(key), list, key))


def _typed(value: Any, kind: type[_T], key: str) -> _T:
    if type(value) is not kind:
        raise ProgramError(
            f"program file is damaged: {key} must be of type {kind.__name__}, not {value!r:.40}"
        )
    checked: _T = value
    return checked


def _natural(value: Any, key: str) -> int:
    number: int = _typed(value, int, key)
    if not 0 <= number < 1 << 48:
        raise ProgramError(f"program file is damaged: {key} must not be {number!r:.40}")
    return number


def _program_arguments(header: _Header, reader: _Reader) -> dict[str, Any]:
    try:
        config = config_from_record(header.record("config"))
    except ConfigError as error:
        raise ProgramError(f"program file holds a configuration that cannot be: {error}") from None
    code = reader.take(header.natural("instructions") * instruction_bytes(config), "code")
    constants = tuple(
        Segment(
            address=_natural(address, "constants"),
            data=reader.take(_natural(size, "constants"), "constants"),
        )
        for address, size in header.rows("constants", 2)
    )
    layers = reader.take(4 * header.natural("layer_of_instruction"), "layer table")
    reader.finish()
    return {
        "config": config,
        "instructions": decode_program(np.frombuffer(code, dtype=np.uint8), config),
        "code_address": header.natural("code_address"),
        "constants": constants,
        "buffers": tuple(_buffer(row) for row in header.rows("buffers", 4)),
        "dram_bytes": header.natural("dram_bytes"),
        "layers": header.texts("layers"),
        "layer_of_instruction": tuple(np.frombuffer(layers, dtype="<i4").tolist()),
    }


def _buffer(row: list[Any]) -> Buffer:
    name, address, size_bytes, role = row
    roles = {item.value: item for item in BufferRole}
    if _typed(role, str, "role") not in roles:
        raise ProgramError(f"program file is damaged: no buffer has the role {role!r:.40}")
    return Buffer(
        name=_typed(name, str, "buffer name"),
        address=_natural(address, "buffer address"),
        size_bytes=_natural(size_bytes, "buffer size"),
        role=roles[role],
    )
