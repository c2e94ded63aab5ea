"""The reference page of one configuration's instruction set, generated from the description."""

import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any

from tilewright.isa import timing
from tilewright.isa.config import AcceleratorConfig, DramModel
from tilewright.isa.config_record import config_digest
from tilewright.isa.encoding import FieldLayout, encoded_bits, instruction_bytes, layout
from tilewright.isa.instructions import (
    INSTRUCTION_CLASSES,
    TOKEN_CHANNELS,
    GemmUop,
    Opcode,
    VectorUop,
)
from tilewright.isa.memories import UOP_BYTES, Engine, Memory, memory_shape
from tilewright.isa.operands import parts

_NO_DEFAULT = "required"


def reference_page(config: AcceleratorConfig) -> str:
    """Write the reference page of a configuration as Markdown."""
    lines = [
        *_introduction(config),
        *_configuration(config),
        *_engines(),
        *_memories(config),
        *_instructions(config),
        *_micro_ops(config),
        *_enumerations(config),
        *_timing(config),
    ]
    return "\n".join(lines) + "\n"


def _introduction(config: AcceleratorConfig) -> Iterator[str]:
    yield f"# Instruction set of `{config.name}`"
    yield ""
    yield "Generated from `isa/` by `tilewright isa`. Widths depend on the configuration, whose"
    yield f"digest is `{config_digest(config)[:16]}`."
    yield ""
    yield f"An instruction has {instruction_bytes(config)} bytes, a micro-op has {UOP_BYTES}. Bit 0"
    yield "is the lowest bit of the first byte; unused bits are zero. An index is the sum of a"
    yield "base, the strides of the loops and the micro-op, modulo two to the width of the operand."
    yield ""


def _configuration(config: AcceleratorConfig) -> Iterator[str]:
    yield "## Configuration"
    yield ""
    yield from _table(("field", "value", "meaning"), _configuration_rows(config))


def _configuration_rows(config: AcceleratorConfig) -> Iterator[tuple[object, ...]]:
    holders: tuple[tuple[str, Any], ...] = (("", config), ("dram.", config.dram))
    for prefix, holder in holders:
        meanings = _comments(type(holder))
        for field in dataclasses.fields(holder):
            value = getattr(holder, field.name)
            if not isinstance(value, DramModel):
                yield f"`{prefix}{field.name}`", value, meanings[field.name]


def _engines() -> Iterator[str]:
    yield "## Engines and tokens"
    yield ""
    yield "Each engine executes its instructions in program order. Bit n of `wait` and `signal`"
    yield "stands for engine n. A counter of tokens exists where the table has a mark."
    yield ""
    header = ("bit", "engine", *(f"gives to {_name(taker)}" for taker in Engine))
    rows = (
        (
            giver.value,
            _name(giver),
            *("x" if (giver, taker) in TOKEN_CHANNELS else "" for taker in Engine),
        )
        for giver in Engine
    )
    yield from _table(header, rows)


def _memories(config: AcceleratorConfig) -> Iterator[str]:
    yield "## Scratchpads"
    yield ""
    meanings = _comments(Memory)
    header = (
        "code",
        "name",
        "entries",
        "bytes per entry",
        "banks",
        "written by",
        "read by",
        "holds",
    )
    rows = []
    for memory in Memory:
        shape = memory_shape(memory, config)
        rows.append(
            (
                memory.value,
                _name(memory),
                shape.entries,
                shape.entry_bytes,
                shape.banks,
                ", ".join(_name(engine) for engine in shape.writers),
                ", ".join(_name(engine) for engine in shape.readers),
                meanings[memory.name],
            )
        )
    yield from _table(header, rows)


def _instructions(config: AcceleratorConfig) -> Iterator[str]:
    yield "## Instructions"
    yield ""
    for opcode, cls in INSTRUCTION_CLASSES.items():
        engine = "the dispatcher" if cls.engine is None else f"engine {_name(cls.engine)}"
        yield f"### {_name(opcode)}"
        yield ""
        yield f"Opcode {opcode.value}, executed by {engine}, {encoded_bits(cls, config)} bits."
        yield ""
        yield inspect.getdoc(cls) or ""
        yield ""
        yield from _fields(cls, config)


def _micro_ops(config: AcceleratorConfig) -> Iterator[str]:
    yield "## Micro-ops"
    yield ""
    for name, cls in (("gemm", GemmUop), ("vector", VectorUop)):
        yield f"### micro-op of {name}"
        yield ""
        yield f"{encoded_bits(cls, config)} bits of {UOP_BYTES * 8}."
        yield ""
        yield inspect.getdoc(cls) or ""
        yield ""
        yield from _fields(cls, config)


def _fields(cls: type[Any], config: AcceleratorConfig) -> Iterator[str]:
    header = ("bits", "operand", "width", "values", "default", "meaning")
    rows = (
        (
            f"{item.position + item.width - 1}:{item.position}",
            f"`{item.field.path}`",
            item.width,
            _values(item),
            _default(cls, item.field.path),
            item.field.operand.meaning,
        )
        for item in layout(cls, config)
    )
    yield from _table(header, rows)


def _values(item: FieldLayout) -> str:
    if issubclass(item.field.kind, IntEnum):
        return f"{item.field.kind.__name__}"
    if item.field.operand.members is not None:
        return "set of engines"
    return f"{item.low} to {item.high}"


def _default(cls: type[Any], path: str) -> str:
    """Write the value that an operand has if it is left out."""
    name, *rest = path.split(".")
    defaults = {part.name: part.default for part in parts(cls)}
    value: Any = defaults[name] if name in defaults else getattr(cls, name)
    if value is dataclasses.MISSING:
        return _NO_DEFAULT
    for key in rest:
        value = value[int(key)] if key.isdigit() else getattr(value, key)
    return _name(value) if isinstance(value, IntEnum) else str(value).lower()


def _enumerations(config: AcceleratorConfig) -> Iterator[str]:
    yield "## Enumerations"
    yield ""
    kinds = {
        item.field.kind: None
        for cls in INSTRUCTION_CLASSES.values()
        for item in layout(cls, config)
        if issubclass(item.field.kind, IntEnum) and item.field.kind not in (Opcode, Memory)
    }
    for kind in kinds:
        meanings = _comments(kind)
        yield f"### {kind.__name__}"
        yield ""
        yield inspect.getdoc(kind) or ""
        yield ""
        yield from _table(
            ("value", "name", "meaning"),
            ((member.value, _name(member), meanings[member.name]) for member in kind),
        )


def _timing(config: AcceleratorConfig) -> Iterator[str]:
    yield "## Timing"
    yield ""
    yield "Clock cycles; the rules are in `docs/microarchitecture.md`."
    yield ""
    constants = [
        (f"`{name}`", getattr(timing, name), meaning)
        for name, meaning in _comments(timing).items()
        if name.isupper()
    ]
    constants += [
        ("`gemm_stages`", timing.gemm_stages(config), _first_line(timing.gemm_stages)),
        (
            "`fetch_burst_instructions`",
            timing.fetch_burst_instructions(config),
            _first_line(timing.fetch_burst_instructions),
        ),
    ]
    yield from _table(("name", "value", "meaning"), constants)


def _table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    names = list(header)
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(str(cell) for cell in row)} |"
    yield ""


def _name(member: IntEnum) -> str:
    return member.name.lower()


def _first_line(function: Any) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0]


def _comments(holder: Any) -> dict[str, str]:
    """Collect the ``#:`` comments before the names that a class or module defines."""
    result = {}
    comment: list[str] = []
    for line in inspect.getsource(holder).splitlines():
        text = line.strip()
        name = re.match(r"(\w+)\s*[:=]", text)
        if text.startswith("#:"):
            comment.append(text.removeprefix("#:").strip())
        elif name and comment:
            result[name[1]] = " ".join(comment)
            comment = []
    return result
