"""Annotation of operands: the width and the meaning of each field of an instruction or micro-op."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, get_type_hints

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.memo import memoize


@dataclass(frozen=True, slots=True)
class Operand:
    """Width and meaning of one operand, attached to a field with `typing.Annotated`."""

    #: Width in bits, or the name of the property of `AcceleratorConfig` that holds it.
    bits: int | str
    #: One sentence for the reference page.
    meaning: str
    #: Two's complement instead of unsigned.
    signed: bool = False
    #: Smallest value of an unsigned operand.
    minimum: int = 0
    #: The value is a set, one bit for each member of this enumeration.
    members: type[IntEnum] | None = None

    def width(self, config: AcceleratorConfig) -> int:
        """Width in bits for a configuration."""
        return self.bits if isinstance(self.bits, int) else int(getattr(config, self.bits))

    def limits(self, config: AcceleratorConfig) -> tuple[int, int]:
        """Smallest and largest value for a configuration."""
        width = self.width(config)
        if self.signed:
            return -(1 << width - 1), (1 << width - 1) - 1
        return self.minimum, (1 << width) - 1


@dataclass(frozen=True, slots=True)
class Part:
    """One field of an annotated dataclass: an operand, or a tuple of annotated dataclasses."""

    name: str
    #: Type of the operand (int, bool or an `IntEnum`), or of the items of the tuple.
    kind: type[Any]
    #: The annotation of an operand; none for a tuple.
    operand: Operand | None
    #: Items of the tuple, 0 for an operand.
    count: int
    #: Value of a field that is left out, `dataclasses.MISSING` where it must not be.
    default: Any


@dataclass(frozen=True, slots=True)
class OperandField:
    """One scalar operand: a path such as ``loops.0.extent`` and its annotation."""

    path: str
    operand: Operand
    #: Type of the value: int, bool, or an `IntEnum`.
    kind: type[Any]


@memoize
def parts(cls: type[Any]) -> tuple[Part, ...]:
    """List the fields of an annotated dataclass.

    A field annotated with `Operand` is a scalar; a field annotated with an integer n is a tuple
    of n annotated dataclasses.
    """
    hints = get_type_hints(cls, include_extras=True)
    result = []
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        annotation = hint.__metadata__[0]
        if isinstance(annotation, Operand):
            part = Part(field.name, hint.__origin__, annotation, 0, field.default)
        else:
            kind = hint.__origin__.__args__[0]
            part = Part(field.name, kind, None, annotation, field.default)
        result.append(part)
    return tuple(result)


@memoize
def operand_fields(cls: type[Any]) -> tuple[OperandField, ...]:
    """List the operands of an annotated dataclass in encoding order, nested ones flattened."""
    return tuple(_walk(cls, ""))


def _walk(cls: type[Any], prefix: str) -> Iterator[OperandField]:
    for part in parts(cls):
        if part.operand is not None:
            yield OperandField(prefix + part.name, part.operand, part.kind)
        for position in range(part.count):
            yield from _walk(part.kind, f"{prefix}{part.name}.{position}.")
