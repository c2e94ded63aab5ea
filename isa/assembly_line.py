"""One instruction or micro-op as a line of text, derived from its description: both directions.

A line is a name followed by operands in any order: ``name=value``; a flag by its name alone; a set
of engines as names with commas; an item of a tuple in brackets, ``loop(extent=14, dst=16)``. What
has its default value is left out; tuples are filled from the end, so that one loop is the
innermost.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import FieldLayout, layout
from tilewright.isa.errors import ProgramError
from tilewright.isa.instructions import INSTRUCTION_CLASSES, AnyInstruction, AnyUop
from tilewright.isa.memo import memoize
from tilewright.isa.operands import Part, parts

#: Numbers from here on are written in hexadecimal; they are addresses.
_HEXADECIMAL_FROM = 1 << 12

_TOKEN = re.compile(
    r"""\s+ | ;.* | (?P<token>
        [^\s;"()]* "(?:[^"\\]|\\.)*"      # name="text"
      | [^\s;"()]* \( [^()]* \)           # name(operands)
      | [^\s;"()]+                        # name=value or name
    )""",
    re.VERBOSE,
)


def format_instruction(instruction: AnyInstruction) -> str:
    """Write an instruction as a line of assembly."""
    return " ".join([instruction.opcode.name.lower(), *format_operands(instruction)])


def parse_instruction(text: str, config: AcceleratorConfig) -> AnyInstruction:
    """Read an instruction from a line of assembly; the inverse of `format_instruction`.

    Raises `ProgramError` that names the token at fault.
    """
    return instruction_of(split_line(text), config)


def format_operands(holder: AnyInstruction | AnyUop | Any) -> Iterator[str]:
    """Write the operands of an annotated dataclass, sets last, defaults left out."""
    ordered = sorted(parts(type(holder)), key=_is_set)
    for part in ordered:
        value = getattr(holder, part.name)
        if part.count:
            yield from _format_items(part, value)
        elif value != part.default:
            yield _format_operand(part, value)


def split_line(line: str) -> list[str]:
    """Split a line into tokens; what follows a semicolon is a comment."""
    tokens = []
    position = 0
    while position < len(line):
        match = _TOKEN.match(line, position)
        if match is None:
            raise ProgramError(f"a bracket or quote is not closed or not opened: {line.strip()!r}")
        if match["token"]:
            tokens.append(match["token"])
        position = match.end()
    return tokens


def instruction_of(tokens: Sequence[str], config: AcceleratorConfig) -> AnyInstruction:
    """Make an instruction of the tokens of a line."""
    classes = {opcode.name.lower(): cls for opcode, cls in INSTRUCTION_CLASSES.items()}
    name = tokens[0] if tokens else ""
    if name not in classes:
        raise ProgramError(
            f"{name!r} is no instruction", hint=f"instructions: {', '.join(classes)}"
        )
    instruction: AnyInstruction = operands_of(classes[name], name, tokens[1:], config)
    return instruction


def operands_of(cls: type[Any], name: str, tokens: Sequence[str], config: AcceleratorConfig) -> Any:
    """Make an instance of an annotated dataclass of its operands, which must fit their fields."""
    return _Parser(cls, name, _limits(cls, config)).parse(cls, tokens, "")


@memoize
def _limits(cls: type[Any], config: AcceleratorConfig) -> Mapping[str, FieldLayout]:
    return {item.field.path: item for item in layout(cls, config)}


def _is_set(part: Part) -> bool:
    return part.operand is not None and part.operand.members is not None


def _format_items(part: Part, items: Sequence[Any]) -> Iterator[str]:
    defaults = part.default if part.default is not dataclasses.MISSING else ()
    begin = 0
    while begin < len(items) and tuple(items[begin:][:1]) == tuple(defaults[begin:][:1]):
        begin += 1
    for item in items[begin:]:
        yield f"{_item_name(part)}({', '.join(format_operands(item))})"


def _item_name(part: Part) -> str:
    return part.name.removesuffix("s")


def _format_operand(part: Part, value: Any) -> str:
    assert part.operand is not None, "a tuple is written item by item"
    if part.operand.members is not None:
        names = [item.name.lower() for item in part.operand.members if value >> item & 1]
        return f"{part.name}={','.join(names)}"
    if part.kind is bool:
        return part.name if value else f"{part.name}=false"
    if issubclass(part.kind, IntEnum):
        return f"{part.name}={value.name.lower()}"
    return f"{part.name}={value:#x}" if value >= _HEXADECIMAL_FROM else f"{part.name}={value}"


class _Parser:
    """Reads the operands of one line."""

    def __init__(self, cls: type[Any], name: str, limits: Mapping[str, FieldLayout]) -> None:
        self._name = name
        self._limits = limits

    def parse(self, cls: type[Any], tokens: Sequence[str], prefix: str) -> Any:
        known = {_item_name(part) if part.count else part.name: part for part in parts(cls)}
        values: dict[str, Any] = {}
        items: dict[str, list[str]] = {}
        for token in tokens:
            name = re.split(r"[=(]", token, maxsplit=1)[0]
            part = known.get(name)
            if part is None or bool(part.count) != token.endswith(")"):
                raise ProgramError(
                    f"{token!r}: {self._name} has no such operand",
                    hint=f"operands: {', '.join(known)}",
                )
            if part.count:
                items.setdefault(part.name, []).append(token)
            elif part.name in values:
                raise ProgramError(f"{token!r}: {part.name} is given twice")
            else:
                values[part.name] = self._operand(part, token, prefix)
        for part in parts(cls):
            if part.name in items:
                values[part.name] = self._items(part, items[part.name], prefix)
            elif part.name not in values and part.default is dataclasses.MISSING:
                raise ProgramError(f"{self._name} must have the operand {part.name}")
        return cls(**values)

    def _items(self, part: Part, tokens: Sequence[str], prefix: str) -> tuple[Any, ...]:
        if len(tokens) > part.count:
            raise ProgramError(
                f"{tokens[part.count]!r}: {self._name} has at most {part.count} {part.name}"
            )
        first = part.count - len(tokens)
        parsed = [
            self.parse(
                part.kind,
                re.split(r"[,\s]+", token[token.index("(") + 1 : -1].strip(", ")),
                f"{prefix}{part.name}.{position}.",
            )
            if token[token.index("(") + 1 : -1].strip()
            else part.default[position]
            for position, token in enumerate(tokens, first)
        ]
        return (*part.default[:first], *parsed)

    def _operand(self, part: Part, token: str, prefix: str) -> Any:
        assert part.operand is not None, "a tuple is read item by item"
        _, separator, text = token.partition("=")
        if part.operand.members is not None:
            return self._set(part.operand.members, token, text)
        if part.kind is bool:
            choices: dict[str, Any] = {"true": True, "false": False}
            return _choice(choices, token, text if separator else "true")
        if issubclass(part.kind, IntEnum):
            return _choice({item.name.lower(): item for item in part.kind}, token, text)
        limits = self._limits[prefix + part.name]
        try:
            value = int(text, 0)
        except ValueError:
            value = limits.high + 1
        if not limits.low <= value <= limits.high:
            raise ProgramError(
                f"{token!r}: {part.name} must be an integer from {limits.low} to {limits.high}"
            )
        return value

    @staticmethod
    def _set(members: type[IntEnum], token: str, text: str) -> int:
        choices = {item.name.lower(): 1 << item for item in members}
        mask = 0
        for name in text.split(","):
            mask |= _choice(choices, token, name)
        return mask


def _choice(choices: Mapping[str, Any], token: str, text: str) -> Any:
    if text not in choices:
        raise ProgramError(f"{token!r}: the value must be one of {', '.join(choices)}")
    return choices[text]
