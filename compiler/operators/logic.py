"""Operators on truth values and element types, as attention masks need them; the host has them."""

from dataclasses import dataclass
from enum import Enum

from tilewright.compiler.operators.datatype import DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """The values as `dtype`, between int32, int64, float32 and bool.

    From float32 towards zero; to bool, whatever is not 0 is true.
    """

    dtype: DataType


class Relation(Enum):
    """A relation of two numbers."""

    EQUAL = "equal"
    LESS = "less"
    LESS_OR_EQUAL = "less_or_equal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """Whether `relation` holds, bool; two tensors of one type whose shapes broadcast."""

    relation: Relation


class Connective(Enum):
    """A function of truth values; `NOT` has one operand."""

    AND = "and"
    OR = "or"
    XOR = "xor"
    NOT = "not"


@dataclass(frozen=True, slots=True, kw_only=True)
class Logical:
    """`connective` of truth values whose shapes broadcast."""

    connective: Connective


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """``a`` where the condition is true, else ``b``.

    Inputs: condition bool; a and b of one type; the shapes of all three broadcast.
    """
