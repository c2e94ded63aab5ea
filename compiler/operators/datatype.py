"""The element types that tensors of a graph can have."""

from enum import Enum

import numpy as np
import numpy.typing as npt


class DataType(Enum):
    """Element type of a tensor; the value is numpy's name for it.

    Half-precision numbers of a file are float32 in the graph; int64 are indices and masks as
    language models take them.
    """

    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"
    FLOAT32 = "float32"

    @property
    def numpy(self) -> npt.DTypeLike:
        """The numpy element type."""
        return np.dtype(self.value)

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        info = np.iinfo(self.value)
        return int(info.min), int(info.max)

    def __str__(self) -> str:
        return self.value


#: Smallest and largest int8 value: what an operator without an activation clips to.
INT8_MIN, INT8_MAX = DataType.INT8.limits
