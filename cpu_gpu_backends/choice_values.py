"""Choices as the values that a file of tuned choices keeps."""

from collections.abc import Iterable
from dataclasses import fields
from enum import Enum
from typing import Any, TypeVar

from tilewright.compiler.tuning.store import Values

Choice = TypeVar("Choice")


def values_of(choice: Any) -> Values:
    """Return the kind of a choice, a flat dataclass, and its fields."""
    given = (getattr(choice, field.name) for field in fields(choice))
    return (
        type(choice).__name__,
        *(value.value if isinstance(value, Enum) else value for value in given),
    )


def find_choice(choices: Iterable[Choice], values: Values) -> Choice | None:
    """Return the one of some choices of which `values_of` made these values, if there is one."""
    return next((choice for choice in choices if values_of(choice) == values), None)
