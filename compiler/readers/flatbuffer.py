"""FlatBuffers tables read with every offset and length checked against the file.

The format is https://flatbuffers.dev/internals: a table starts with the signed distance back to its
vtable, which holds its size, the table's size and the position of each field, 0 for an absent one.
"""

import struct
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.graph import Array
from tilewright.isa.errors import ModelError


@dataclass(frozen=True, slots=True)
class FlatTable:
    """A table at `position` of `data`; fields are numbered as in the schema, from 0."""

    data: bytes
    position: int

    @classmethod
    def root(cls, data: bytes) -> "FlatTable":
        """Return the root table of a file."""
        return cls(data, _unpack("<I", data, 0))

    def integer(self, field: int, layout: str = "<i", default: int = 0) -> int:
        """Return an integer field; `layout` is its `struct` format."""
        position = self._field(field)
        return default if position is None else int(_unpack(layout, self.data, position))

    def real(self, field: int, default: float = 0.0) -> float:
        """Return a float32 field."""
        position = self._field(field)
        return default if position is None else float(_unpack("<f", self.data, position))

    def table(self, field: int) -> "FlatTable | None":
        """Return a field that is a table, None where it is absent."""
        position = self._field(field)
        return None if position is None else FlatTable(self.data, self._follow(position))

    def tables(self, field: int) -> tuple["FlatTable", ...]:
        """Return a field that is a vector of tables."""
        start, count = self._vector(field, 4)
        positions = range(start, start + 4 * count, 4)
        return tuple(FlatTable(self.data, self._follow(position)) for position in positions)

    def array(self, field: int, dtype: str) -> Array:
        """Return a field that is a vector of numbers, as a read-only array; `dtype` is numpy's."""
        start, count = self._vector(field, np.dtype(dtype).itemsize)
        little = np.dtype(dtype).newbyteorder("<")
        values: Array = np.frombuffer(self.data, little, count, start)
        return values

    def integers(self, field: int) -> tuple[int, ...]:
        """Return a field that is a vector of int32."""
        return tuple(int(value) for value in self.array(field, "int32"))

    def text(self, field: int) -> str:
        """Return a field that is a string, empty where it is absent."""
        start, count = self._vector(field, 1)
        try:
            return self.data[start : start + count].decode()
        except UnicodeDecodeError as error:
            raise ModelError("the TFLite model is damaged: a name is not valid UTF-8") from error

    def _field(self, field: int) -> int | None:
        vtable = self.position - _unpack("<i", self.data, self.position)
        size = _unpack("<H", self.data, vtable)
        entry = 4 + 2 * field
        if entry + 2 > size:
            return None
        offset = _unpack("<H", self.data, vtable + entry)
        return self.position + offset if offset else None

    def _follow(self, position: int) -> int:
        return position + int(_unpack("<I", self.data, position))

    def _vector(self, field: int, item_bytes: int) -> tuple[int, int]:
        """Return start and length of a vector that lies within the file."""
        position = self._field(field)
        if position is None:
            return 0, 0
        start = self._follow(position)
        count = _unpack("<I", self.data, start)
        if start + 4 + count * item_bytes > len(self.data):
            raise ModelError("the TFLite model is damaged: a vector runs past the end of the file")
        return start + 4, count


def _unpack(layout: str, data: bytes, position: int) -> int:
    if position < 0 or position + struct.calcsize(layout) > len(data):
        raise ModelError("the TFLite model is damaged: an offset points outside the file")
    value: int = struct.unpack_from(layout, data, position)[0]
    return value
