"""Programs as text: assembler and disassembler.

Besides instructions and micro-ops (`tilewright.isa.assembly_line`) a text holds directives:

``.preset NAME``, ``.config field=value ...``
    The machine; fields change those of the preset, the memory model's are ``dram.<field>``.
``.dram_bytes N``, ``.code ADDRESS``
    DRAM that the program needs, and where its encoded instructions lie.
``.buffer "NAME" address=N size_bytes=N role=input|output|scratch``
    A named region of DRAM.
``.constant ADDRESS``
    Begins a segment of constants, made of what follows: ``.bytes HEX``, ``.zeros COUNT``,
    ``.int32 N ...``, ``.gemm_uop ...``, ``.vector_uop ...``.
``.layers "NAME" ...``, ``.layer N|none``
    The layers of the network, and the one to which the following instructions belong.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.isa.accesses import accesses
from tilewright.isa.assembly_line import (
    format_instruction,
    format_operands,
    instruction_of,
    operands_of,
    split_line,
)
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_from_record, config_to_record
from tilewright.isa.data_rules import UOP_CLASSES
from tilewright.isa.encoding import decode_uops, encode_uop
from tilewright.isa.errors import ProgramError, TilewrightError
from tilewright.isa.instructions import AnyInstruction, AnyUop, GemmUop, Load, VectorUop
from tilewright.isa.memories import UOP_BYTES
from tilewright.isa.operands import parts
from tilewright.isa.presets import PRESETS
from tilewright.isa.program import Buffer, BufferRole, Program, Segment

_BYTES_PER_LINE = 32

_UOP_DIRECTIVES: dict[type[AnyUop], str] = {
    GemmUop: ".gemm_uop",
    VectorUop: ".vector_uop",
}


def disassemble(program: Program, *, data: bool = True) -> str:
    """Write a program as text that `assemble` turns into an equal program.

    Without `data` the constants are only named, micro-ops excepted, for a listing to read.
    """
    return "\n".join(_lines(program, data=data)) + "\n"


def assemble(text: str, config: AcceleratorConfig | None = None) -> Program:
    """Make a program of a text; the inverse of `disassemble`.

    Parameters
    ----------
    text
        Instructions and directives, one a line.
    config
        The machine, for a text that does not name one.

    Raises
    ------
    ProgramError
        Names line and token.
    """
    assembler = _Assembler(config)
    for number, line in enumerate(text.splitlines(), 1):
        try:
            assembler.take(split_line(line))
        except TilewrightError as error:
            raise ProgramError(f"line {number}: {error}", hint=error.hint) from None
    return assembler.program()


def _lines(program: Program, *, data: bool) -> Iterator[str]:
    record = config_to_record(program.config)
    memory = {f"dram.{name}": value for name, value in record.pop("dram").items()}
    settings = [f"{name}={json.dumps(value)}" for name, value in (record | memory).items()]
    for begin in range(0, len(settings), 4):
        yield " ".join([".config", *settings[begin : begin + 4]])
    yield f".dram_bytes {program.dram_bytes:#x}"
    yield f".code {program.code_address:#x}"
    for buffer in program.buffers:
        yield (
            f".buffer {json.dumps(buffer.name)} address={buffer.address:#x}"
            f" size_bytes={buffer.size_bytes} role={buffer.role.value}"
        )
    uops = _uop_addresses(program)
    for segment in program.constants:
        yield f".constant {segment.address:#x}  ; {len(segment.data)} bytes"
        yield from _segment_lines(segment, uops, program.config, data=data)
    if program.layers:
        yield " ".join([".layers", *(json.dumps(name) for name in program.layers)])
    layer = None
    for position, instruction in enumerate(program.instructions):
        if program.layer_of_instruction and program.layer_of_instruction[position] != layer:
            layer = program.layer_of_instruction[position]
            yield ".layer none" if layer < 0 else f".layer {layer}  ; {program.layers[layer]!a}"
        yield format_instruction(instruction)


def _uop_addresses(program: Program) -> dict[int, type[AnyUop]]:
    """Find where micro-ops lie in DRAM, in ascending order: where instructions load them from."""
    result: dict[int, type[AnyUop]] = {}
    for instruction in set(program.instructions):
        if isinstance(instruction, Load) and instruction.memory in UOP_CLASSES:
            try:
                ranges = accesses(instruction, program.config).dram_reads
            except ProgramError:  # a listing shows faulty programs too
                continue
            if ranges is not None:
                for start in ranges.starts.tolist():
                    for address in range(start, start + ranges.size_bytes, UOP_BYTES):
                        result.setdefault(address, UOP_CLASSES[instruction.memory])
    return dict(sorted(result.items()))


def _segment_lines(
    segment: Segment, uops: dict[int, type[AnyUop]], config: AcceleratorConfig, *, data: bool
) -> Iterator[str]:
    addresses = list(uops)
    position = segment.address
    end = segment.address + len(segment.data)
    within = addresses[bisect_left(addresses, position) : bisect_right(addresses, end - UOP_BYTES)]
    for address in within:
        offset = address - segment.address
        line = _uop_line(uops[address], segment.data[offset : offset + UOP_BYTES], config)
        if address >= position and line is not None:
            yield from _data_lines(segment.data[position - segment.address : offset], data=data)
            yield line
            position = address + UOP_BYTES
    yield from _data_lines(segment.data[position - segment.address :], data=data)


def _uop_line(cls: type[AnyUop], data: bytes, config: AcceleratorConfig) -> str | None:
    """Write eight bytes as a micro-op, if they are one."""
    try:
        ((*values,),) = decode_uops(cls, np.frombuffer(data, dtype=np.uint8), config).tolist()
    except ProgramError:
        return None
    names = (part.name for part in parts(cls))
    uop = cls(**dict(zip(names, values, strict=True)))
    return " ".join([_UOP_DIRECTIVES[cls], *format_operands(uop)])


def _data_lines(content: bytes, *, data: bool) -> Iterator[str]:
    """Write constant bytes; lines of zeros are only counted."""
    if not data:
        if content:
            yield f"; {len(content)} bytes of data"
        return
    zeros = 0
    for begin in range(0, len(content), _BYTES_PER_LINE):
        line = content[begin : begin + _BYTES_PER_LINE]
        if any(line):
            if zeros:
                yield f".zeros {zeros}"
            zeros = 0
            yield f".bytes {line.hex()}"
        else:
            zeros += len(line)
    if zeros:
        yield f".zeros {zeros}"


class _Assembler:
    """Collects the parts of a program line by line."""

    def __init__(self, config: AcceleratorConfig | None) -> None:
        self._given = config
        self._settings: dict[str, Any] = {}
        self._config: AcceleratorConfig | None = None
        self._numbers: dict[str, int] = {}
        self._buffers: list[Buffer] = []
        self._segments: list[tuple[int, bytearray]] = []
        self._layers: tuple[str, ...] = ()
        self._layer: int | None = None
        self._instructions: list[AnyInstruction] = []
        self._layer_of_instruction: list[int] = []
        self._directives: dict[str, Callable[[Sequence[str]], None]] = {
            ".preset": self._preset,
            ".config": self._set_config,
            ".dram_bytes": lambda tokens: self._number("dram_bytes", tokens),
            ".code": lambda tokens: self._number("code_address", tokens),
            ".buffer": self._buffer,
            ".constant": self._constant,
            ".bytes": self._bytes,
            ".zeros": self._zeros,
            ".int32": self._int32,
            ".gemm_uop": lambda tokens: self._uop(GemmUop, tokens),
            ".vector_uop": lambda tokens: self._uop(VectorUop, tokens),
            ".layers": self._set_layers,
            ".layer": self._set_layer,
        }

    def take(self, tokens: Sequence[str]) -> None:
        """Take the tokens of a line."""
        if not tokens:
            return
        name, *arguments = tokens
        if not name.startswith("."):
            self._instructions.append(instruction_of(tokens, self._machine()))
            self._layer_of_instruction.append(-1 if self._layer is None else self._layer)
        elif name in self._directives:
            self._directives[name](arguments)
        else:
            raise ProgramError(
                f"{name!r} is no directive", hint=f"directives: {', '.join(self._directives)}"
            )

    def program(self) -> Program:
        """Make the program."""
        for name, directive in (("dram_bytes", ".dram_bytes"), ("code_address", ".code")):
            if name not in self._numbers:
                raise ProgramError(f"a program must have the directive {directive}")
        return Program(
            config=self._machine(),
            instructions=tuple(self._instructions),
            code_address=self._numbers["code_address"],
            constants=tuple(
                Segment(address=address, data=bytes(data)) for address, data in self._segments
            ),
            buffers=tuple(self._buffers),
            dram_bytes=self._numbers["dram_bytes"],
            layers=self._layers,
            layer_of_instruction=() if self._layer is None else tuple(self._layer_of_instruction),
        )

    def _machine(self) -> AcceleratorConfig:
        """Return the configuration, which is complete once something depends on it."""
        if self._config is None:
            if self._settings:
                dram = {k[5:]: v for k, v in self._settings.items() if k.startswith("dram.")}
                own = {k: v for k, v in self._settings.items() if not k.startswith("dram.")}
                self._config = config_from_record({**own, "dram": dram})
            elif self._given is not None:
                self._config = self._given
            else:
                raise ProgramError("a program must name its machine first, .preset or .config")
        return self._config

    def _preset(self, tokens: Sequence[str]) -> None:
        (name,) = _arguments(tokens, 1)
        if name not in PRESETS:
            raise ProgramError(f"{name!r}: there is no such preset, only {', '.join(PRESETS)}")
        record = config_to_record(PRESETS[name])
        memory = record.pop("dram")
        self._change({**record, **{f"dram.{key}": value for key, value in memory.items()}})

    def _set_config(self, tokens: Sequence[str]) -> None:
        self._change({name: _json(text, name) for name, text in _pairs(tokens).items()})

    def _change(self, settings: dict[str, Any]) -> None:
        if self._config is not None:
            raise ProgramError("the machine must be named before what depends on it")
        self._settings |= settings

    def _number(self, name: str, tokens: Sequence[str]) -> None:
        (text,) = _arguments(tokens, 1)
        self._numbers[name] = _integer(text)

    def _buffer(self, tokens: Sequence[str]) -> None:
        name, *settings = tokens or [""]
        values = _pairs(settings)
        roles = {role.value: role for role in BufferRole}
        if sorted(values) != ["address", "role", "size_bytes"] or values["role"] not in roles:
            raise ProgramError(
                f"a buffer must have address, size_bytes and role ({', '.join(roles)})"
            )
        self._buffers.append(
            Buffer(
                name=_text(name),
                address=_integer(values["address"]),
                size_bytes=_integer(values["size_bytes"]),
                role=roles[values["role"]],
            )
        )

    def _constant(self, tokens: Sequence[str]) -> None:
        (text,) = _arguments(tokens, 1)
        self._segments.append((_integer(text), bytearray()))

    def _append(self, data: bytes) -> None:
        if not self._segments:
            raise ProgramError("data must follow the directive .constant")
        self._segments[-1][1].extend(data)

    def _bytes(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            try:
                self._append(bytes.fromhex(token))
            except ValueError:
                raise ProgramError(f"{token!r} must be hexadecimal digits, two a byte") from None

    def _zeros(self, tokens: Sequence[str]) -> None:
        (text,) = _arguments(tokens, 1)
        self._append(bytes(_integer(text, 0, self._machine().dram.size_bytes)))

    def _int32(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            value = _integer(token, -(1 << 31), (1 << 32) - 1)
            self._append((value % (1 << 32)).to_bytes(4, "little"))

    def _uop(self, cls: type[AnyUop], tokens: Sequence[str]) -> None:
        uop = operands_of(cls, _UOP_DIRECTIVES[cls], tokens, self._machine())
        self._append(encode_uop(uop, self._machine()))

    def _set_layers(self, tokens: Sequence[str]) -> None:
        self._layers = tuple(_text(token) for token in tokens)

    def _set_layer(self, tokens: Sequence[str]) -> None:
        (text,) = _arguments(tokens, 1)
        self._layer = -1 if text == "none" else _integer(text, 0, len(self._layers) - 1)


def _arguments(tokens: Sequence[str], count: int) -> Sequence[str]:
    if len(tokens) != count:
        raise ProgramError(f"the directive must have {count} argument, not {len(tokens)}")
    return tokens


def _pairs(tokens: Sequence[str]) -> dict[str, str]:
    result = {}
    for token in tokens:
        name, separator, text = token.partition("=")
        if not separator:
            raise ProgramError(f"{token!r} must be of the form name=value")
        result[name] = text
    return result


def _integer(text: str, low: int = 0, high: int = (1 << 32)) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise ProgramError(f"{text!r} must be an integer from {low} to {high}")
    return value


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ProgramError(f"{text!r} must be a JSON value, for {name}") from None


def _text(token: str) -> str:
    value = _json(token, "a name")
    if not isinstance(value, str):
        raise ProgramError(f"{token!r} must be a name in double quotes")
    return value
