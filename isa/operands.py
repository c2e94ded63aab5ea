"""Annotation of operands: the width and the meaning of each field of an instruction or micro-op."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
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
class OperandField:
    """One scalar operand: a path such as ``loops.0.extent`` and its annotation."""

    path: str
    operand: Operand
    #: Type of the value: int, bool, or an `IntEnum`.
    kind: type[Any]


@memoize
def operand_fields(cls: type[Any]) -> tuple[OperandField, ...]:
    """List the scalar operands of an annotated dataclass in encoding order, nested ones flattened.

    A field annotated with `Operand` is a scalar; a field annotated with an integer n is a tuple
    of n annotated dataclasses.
    """
    return tuple(_walk(cls, ""))


def _walk(cls: type[Any], prefix: str) -> Iterator[OperandField]:
    hints = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        annotation = hint.__metadata__[0]
        if isinstance(annotation, Operand):
            yield OperandField(prefix + field.name, annotation, hint.__origin__)
        else:
            (inner, _) = hint.__origin__.__args__
            for position in range(annotation):
                yield from _walk(inner, f"{prefix}{field.name}.{position}.")
