"""An object file that holds bytes under a name, written without a toolchain.

Layouts of System V ABI, chapter 4 (ELF header, section headers, symbol table); machine numbers of
the processor supplements. Constants of a network are too long to be text for an assembler.
"""

import struct
from dataclasses import dataclass

_RELOCATABLE, _VERSION = 1, 1
_PROGRAM_BITS, _SYMBOL_TABLE, _STRING_TABLE = 1, 2, 3
_ALLOCATED = 2
_GLOBAL_OBJECT = 0x11
_ALIGNMENT = 64
_ARM_EABI5_HARD_FLOAT = 0x05000400


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """What the object files of a family of processors differ in."""

    number: int
    wide: bool
    flags: int = 0


_MACHINES = {
    "x86_64": _Machine(number=62, wide=True),
    "aarch64": _Machine(number=183, wide=True),
    "armv7": _Machine(number=40, wide=False, flags=_ARM_EABI5_HARD_FLOAT),
}
_NAMES = ("", ".rodata", ".symtab", ".strtab", ".shstrtab", ".note.GNU-stack")


def data_object(data: bytes, symbol: str, triple: str) -> bytes:
    """Return an object file for a target triple with `data` in read-only memory at `symbol`."""
    machine = _MACHINES[triple.split("-")[0]]
    header_size = 64 if machine.wide else 52
    names = b"\0".join(name.encode() for name in _NAMES) + b"\0"
    strings = b"\0" + symbol.encode() + b"\0"
    symbols = _symbol(machine, 0, 0, 0, 0) + _symbol(machine, 1, len(data), _GLOBAL_OBJECT, 1)
    start = -(-header_size // _ALIGNMENT) * _ALIGNMENT
    body = bytearray(b"\0" * (start - header_size))
    places = []
    for part in (data, symbols, strings, names):
        places.append(header_size + len(body))
        body += part + b"\0" * (-len(part) % 8)
    table = header_size + len(body)
    sections = (
        (0, 0, 0, 0, 0, 0, 0, 0),
        (_PROGRAM_BITS, _ALLOCATED, places[0], len(data), 0, 0, _ALIGNMENT, 0),
        (_SYMBOL_TABLE, 0, places[1], len(symbols), 3, 1, 8, len(symbols) // 2),
        (_STRING_TABLE, 0, places[2], len(strings), 0, 0, 1, 0),
        (_STRING_TABLE, 0, places[3], len(names), 0, 0, 1, 0),
        (_PROGRAM_BITS, 0, table, 0, 0, 0, 1, 0),
    )
    headers = b"".join(
        _section(machine, names.index(name.encode() + b"\0"), fields)
        for name, fields in zip(_NAMES, sections, strict=True)
    )
    return _header(machine, table) + bytes(body) + headers


def _header(machine: _Machine, table: int) -> bytes:
    identity = b"\x7fELF" + bytes((2 if machine.wide else 1, 1, 1)) + b"\0" * 9
    word = "QQQ" if machine.wide else "III"
    size, section = (64, 64) if machine.wide else (52, 40)
    numbers = (0, 0, table, machine.flags, size, 0, 0, section, len(_NAMES), 4)
    fields = struct.pack(f"<HHI{word}IHHHHHH", _RELOCATABLE, machine.number, _VERSION, *numbers)
    return identity + fields


def _section(machine: _Machine, name: int, fields: tuple[int, ...]) -> bytes:
    kind, flags, place, size, link, info, alignment, entry = fields
    word = "Q" if machine.wide else "I"
    return struct.pack(
        f"<II{word}{word}{word}{word}II{word}{word}",
        name,
        kind,
        flags,
        0,
        place,
        size,
        link,
        info,
        alignment,
        entry,
    )


def _symbol(machine: _Machine, name: int, size: int, info: int, section: int) -> bytes:
    if machine.wide:
        return struct.pack("<IBBHQQ", name, info, 0, section, 0, size)
    return struct.pack("<IIIBBH", name, 0, size, info, 0, section)
