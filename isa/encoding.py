"""Bits of instructions and micro-ops, derived from their description: layout, encoder, decoder."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import ProgramError
from tilewright.isa.instructions import (
    INSTRUCTION_CLASSES,
    AnyInstruction,
    AnyUop,
    Instruction,
    Opcode,
    instruction_name,
)
from tilewright.isa.memo import memoize
from tilewright.isa.memories import UOP_BYTES
from tilewright.isa.operands import Operand, OperandField, operand_fields, parts

#: Width of the opcode, the lowest bits of every instruction.
OPCODE_BITS = max(Opcode).bit_length()
#: Encoded instructions and micro-ops are arrays of little-endian words of this size.
WORD_BYTES = 8

Bytes = npt.NDArray[np.uint8]
Values = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]
#: Names the n-th of some instructions or micro-ops in an error message.
_Naming = Callable[[int], str]

_WORD_BITS = WORD_BYTES * 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldLayout:
    """Where one scalar operand lies: bits ``position`` to ``position + width - 1``."""

    field: OperandField
    #: Lowest bit, counted from bit 0 of byte 0, little endian.
    position: int
    #: Number of bits.
    width: int
    #: Smallest value that fits.
    low: int
    #: Largest value that fits.
    high: int


@memoize
def layout(cls: type[Any], config: AcceleratorConfig) -> tuple[FieldLayout, ...]:
    """Lay out the operands of an instruction or micro-op class from bit 0 upwards.

    The first field of an instruction is its opcode; operands follow in the order of
    `operand_fields` without gaps.
    """
    result = []
    position = 0
    for field in _fields(cls):
        width = field.operand.width(config)
        low, high = field.operand.limits(config)
        result.append(FieldLayout(field=field, position=position, width=width, low=low, high=high))
        position += width
    return tuple(result)


@memoize
def encoded_bits(cls: type[Any], config: AcceleratorConfig) -> int:
    """Bits that an instruction or micro-op class uses."""
    last = layout(cls, config)[-1]
    return last.position + last.width


@memoize
def instruction_bytes(config: AcceleratorConfig) -> int:
    """Bytes of every encoded instruction: the power of two that holds the longest one."""
    longest = max(encoded_bits(cls, config) for cls in INSTRUCTION_CLASSES.values())
    return max(WORD_BYTES, 1 << ((longest + 7) // 8 - 1).bit_length())


def encode(instruction: AnyInstruction, config: AcceleratorConfig) -> bytes:
    """Encode one instruction; raises `ProgramError` where a value does not fit its field."""
    return encode_program((instruction,), config).tobytes()


def decode(data: bytes, config: AcceleratorConfig) -> AnyInstruction:
    """Decode one instruction; the inverse of `encode`."""
    size = instruction_bytes(config)
    if len(data) != size:
        raise ProgramError(f"an instruction must be {size} bytes, not {len(data)}")
    return decode_program(np.frombuffer(data, dtype=np.uint8), config)[0]


def encode_program(instructions: Sequence[AnyInstruction], config: AcceleratorConfig) -> Bytes:
    """Encode instructions into consecutive bytes.

    Raises
    ------
    ProgramError
        If a value does not fit its field; names instruction, field, range and value.
    """
    words = np.zeros((len(instructions), instruction_bytes(config) // WORD_BYTES), dtype="<u8")
    for opcode, cls in INSTRUCTION_CLASSES.items():
        where = [i for i, item in enumerate(instructions) if item.opcode is opcode]
        if where:
            flatten = _flattener(cls)
            rows = [flatten(instructions[i]) for i in where]
            fields_ = layout(cls, config)
            values = _checked(rows, fields_, _instruction_name(opcode, where))
            words[where] = _pack(values, fields_, words.shape[1])
    return words.reshape(-1).view(np.uint8)


def decode_program(data: Bytes, config: AcceleratorConfig) -> tuple[AnyInstruction, ...]:
    """Decode consecutive instructions; the inverse of `encode_program`.

    Raises
    ------
    ProgramError
        If the length is not a whole number of instructions, an opcode or an enumerated value is
        unknown, or unused bits are not zero.
    """
    size = instruction_bytes(config)
    if data.size % size:
        raise ProgramError(f"code must be a multiple of {size} bytes, not {data.size}")
    words = np.ascontiguousarray(data).view("<u8").reshape(-1, size // WORD_BYTES)
    opcodes = words[:, 0] & np.uint64((1 << OPCODE_BITS) - 1)
    result: list[AnyInstruction | None] = [None] * len(words)
    for opcode, cls in INSTRUCTION_CLASSES.items():
        where = np.flatnonzero(opcodes == opcode).tolist()
        if where:
            name = _instruction_name(opcode, where)
            rows = _unpack(words[where], layout(cls, config), name)[:, 1:].tolist()
            for position, row in enumerate(rows):
                result[where[position]] = _build(cls, iter(row), name(position))
    for i, item in enumerate(result):
        if item is None:
            raise ProgramError(f"instruction {i} has the unknown opcode {opcodes[i]}")
    return tuple(item for item in result if item is not None)


def encode_uop(uop: AnyUop, config: AcceleratorConfig) -> bytes:
    """Encode one micro-op."""
    values = np.array([_flattener(type(uop))(uop)])
    return encode_uops(type(uop), values, config).tobytes()


def encode_uops(cls: type[AnyUop], values: npt.ArrayLike, config: AcceleratorConfig) -> Bytes:
    """Encode micro-ops of one class.

    Parameters
    ----------
    values
        Integers of shape (micro-ops, fields), fields in the order of the class:
        ``dst, src, wgt`` of `GemmUop`, ``dst, src, coef`` of `VectorUop`.

    Returns
    -------
    uint8 array of shape (micro-ops, UOP_BYTES).
    """
    rows = np.asarray(values)
    fields_ = layout(cls, config)
    return _pack(_checked(rows, fields_, _uop_name(cls)), fields_, 1).view(np.uint8)


def decode_uops(cls: type[AnyUop], data: Bytes, config: AcceleratorConfig) -> Values:
    """Decode micro-ops of one class; the inverse of `encode_uops`.

    `data` is a uint8 array of any shape that holds whole micro-ops; raises `ProgramError` where
    unused bits are not zero.
    """
    if data.size % UOP_BYTES:
        raise ProgramError(f"micro-ops must be a multiple of {UOP_BYTES} bytes, not {data.size}")
    words = np.ascontiguousarray(data).reshape(-1).view("<u8").reshape(-1, 1)
    return _unpack(words, layout(cls, config), _uop_name(cls))


def _instruction_name(opcode: Opcode, where: Sequence[int]) -> _Naming:
    return lambda position: instruction_name(opcode, where[position], position)


def _uop_name(cls: type[AnyUop]) -> _Naming:
    return lambda index: f"micro-op {index} ({cls.__name__})"


def _fields(cls: type[Any]) -> tuple[OperandField, ...]:
    if issubclass(cls, Instruction):
        opcode = OperandField("opcode", Operand(OPCODE_BITS, "what the instruction does"), Opcode)
        return (opcode, *operand_fields(cls))
    return operand_fields(cls)


@memoize
def _flattener(cls: type[Any]) -> Callable[[Any], list[Any]]:
    """Make a function that lists the scalar values of an instance in layout order."""
    names = [part.name for part in parts(cls)]
    opcode = ["opcode"] if issubclass(cls, Instruction) else []
    get = attrgetter(*opcode, *names)
    nested = [
        (position, part, _flattener(part.kind))
        for position, part in enumerate(parts(cls), len(opcode))
        if part.count
    ]

    def flatten(instance: Any) -> list[Any]:
        values = list(get(instance))
        for position, part, flatten_inner in reversed(nested):
            items = values[position]
            if len(items) != part.count:
                raise ProgramError(
                    f"{cls.__name__}.{part.name} must have {part.count} items, not {len(items)}"
                )
            values[position : position + 1] = [v for item in items for v in flatten_inner(item)]
        return values

    return flatten


def _build(cls: type[Any], values: Iterator[int], name: str) -> Any:
    arguments: dict[str, Any] = {}
    for part in parts(cls):
        if part.count:
            items = (_build(part.kind, values, name) for _ in range(part.count))
            arguments[part.name] = tuple(items)
        else:
            value = next(values)
            try:
                arguments[part.name] = value if part.kind is int else part.kind(value)
            except ValueError:
                raise ProgramError(
                    f"{name}: {part.name} must be one of {_members(part.kind)}, not {value}"
                ) from None
    return cls(**arguments)


def _members(kind: type[Any]) -> str:
    return ", ".join(f"{member.value} ({member.name})" for member in kind)


def _checked(rows: Any, fields_: Sequence[FieldLayout], name: _Naming) -> Values:
    """Turn rows of values into a matrix, raising on the first value that does not fit."""
    values = np.asarray(rows).reshape(len(rows), -1)
    if values.shape[1] != len(fields_) and len(rows):
        raise ProgramError(f"{name(0)} must have {len(fields_)} fields, not {values.shape[1]}")
    if values.dtype.kind in "iub" and values.dtype != np.uint64:
        matrix: Values = values.astype(np.int64)
        low = np.array([item.low for item in fields_])
        high = np.array([item.high for item in fields_])
        if np.all((matrix >= low) & (matrix <= high)):
            return matrix
    for index, row in enumerate(rows):
        for item, value in zip(fields_, row, strict=True):
            if not isinstance(value, (int, np.integer)) or not item.low <= value <= item.high:
                shown = int(value) if isinstance(value, np.integer) else value
                raise ProgramError(_does_not_fit(name(index), item, shown))
    return np.array([[int(value) for value in row] for row in rows], dtype=np.int64)


def _does_not_fit(name: str, item: FieldLayout, value: object) -> str:
    return (
        f"{name}: {item.field.path} must be an integer from {item.low} to {item.high},"
        f" not {value!r:.40}"
    )


def _pack(values: Values, fields_: Sequence[FieldLayout], word_count: int) -> _Words:
    words = np.zeros((len(values), word_count), dtype="<u8")
    for column, item in enumerate(fields_):
        mask = np.uint64((1 << item.width) - 1)
        bits = values[:, column].astype(np.uint64) & mask
        word, offset = divmod(item.position, _WORD_BITS)
        words[:, word] |= bits << np.uint64(offset)
        if offset + item.width > _WORD_BITS:
            words[:, word + 1] |= bits >> np.uint64(_WORD_BITS - offset)
    return words


def _unpack(words: _Words, fields_: Sequence[FieldLayout], name: _Naming) -> Values:
    values = np.empty((len(words), len(fields_)), dtype=np.int64)
    for column, item in enumerate(fields_):
        word, offset = divmod(item.position, _WORD_BITS)
        bits = words[:, word] >> np.uint64(offset)
        if offset + item.width > _WORD_BITS:
            bits = bits | words[:, word + 1] << np.uint64(_WORD_BITS - offset)
        bits = (bits & np.uint64((1 << item.width) - 1)).astype(np.int64)
        if item.field.operand.signed:
            bits = bits - ((bits > item.high).astype(np.int64) << item.width)
        values[:, column] = bits
        below = np.flatnonzero(bits < item.low)
        if below.size:
            value = int(bits[below[0]])
            raise ProgramError(_does_not_fit(name(int(below[0])), item, value))
    used = fields_[-1].position + fields_[-1].width
    for word in range(words.shape[1]):
        free = ~np.uint64((1 << min(max(used - word * _WORD_BITS, 0), _WORD_BITS)) - 1)
        stray = np.flatnonzero(words[:, word] & free)
        if stray.size:
            raise ProgramError(f"{name(int(stray[0]))}: bits from {used} on must be zero")
    return values
