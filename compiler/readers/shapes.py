"""Shapes that the caller gives to inputs whose sizes a model file leaves open."""

from collections.abc import Mapping
from typing import TypeAlias

from tilewright.isa.errors import ModelError

#: Shapes by the name of the input.
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]


def check_shape_names(shapes: Shapes | None, inputs: tuple[str, ...]) -> None:
    """Refuse shapes of inputs that there are not, and impossible ones."""
    for name, shape in (shapes or {}).items():
        if name not in inputs:
            raise ModelError(
                f"there is no input {name!r} to give a shape to",
                hint=f"its inputs are {', '.join(inputs)}",
            )
        if any(size < 1 for size in shape):
            raise ModelError(f"input {name!r} cannot have the shape {list(shape)}")
