"""The types of scalars that tensor expressions compute with."""

from enum import Enum
from typing import Any

import numpy as np


class ScalarType(Enum):
    """Type of a scalar; the value is numpy's name for it, except for `BFLOAT16` and `INDEX`.

    Integers wrap around modulo two to the power of their width. `INDEX` is the type of loop
    variables and of everything computed from them alone: whole numbers without bounds, so index
    arithmetic obeys the laws of algebra. A backend picks a machine type that holds the interval
    which `tilewright.compiler.tensor.intervals.bounds` proves.
    """

    BOOL = "bool"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    INDEX = "index"

    @property
    def is_float(self) -> bool:
        """Whether this is a floating-point type: of IEEE 754, or the upper half of its float32."""
        return self in _FLOATS

    @property
    def is_integer(self) -> bool:
        """Whether this is an integer of fixed width, which wraps around."""
        return not (self.is_float or self in (ScalarType.BOOL, ScalarType.INDEX))

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value of an integer of fixed width."""
        assert self.is_integer, f"{self} has no limits"
        info = np.iinfo(self.value)
        return int(info.min), int(info.max)

    @property
    def numpy(self) -> "np.dtype[Any]":
        """The numpy element type; indices are kept as int64, bfloat16 numbers as their bits."""
        return np.dtype(_KEPT_AS.get(self, self.value))

    def __str__(self) -> str:
        return self.value


_FLOATS = frozenset(
    {ScalarType.FLOAT16, ScalarType.BFLOAT16, ScalarType.FLOAT32, ScalarType.FLOAT64}
)
_KEPT_AS = {ScalarType.INDEX: "int64", ScalarType.BFLOAT16: "uint16"}
