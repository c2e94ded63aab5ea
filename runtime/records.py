"""Dataclasses as JSON records and binary sections, and back, driven by their type hints.

Both directions follow the declared types, so a record cannot name a class that its place does not
allow. A place that allows several classes holds ``{"ClassName": fields}``; an array or a program is
the number of a binary section.
"""

import dataclasses
import math
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from tilewright.compiler.operators import DataType
from tilewright.isa.errors import ModelError, TilewrightError
from tilewright.isa.memo import memoize
from tilewright.isa.program import Program


class RecordError(ModelError):
    """A record does not have the form that its type asks for; the text says where."""


def to_record(hint: Any, value: Any, sections: list[bytes]) -> Any:
    """Return `value`, declared as `hint`, as JSON values; binary data is appended to `sections`."""
    members = _union_members(hint)
    if members:
        return _union_to_record(members, value, sections)
    origin = get_origin(hint) or hint
    if origin is tuple:
        hints = _item_hints(hint, len(value))
        return [to_record(h, item, sections) for h, item in zip(hints, value, strict=True)]
    if origin is Mapping:
        item = get_args(hint)[1]
        return {key: to_record(item, entry, sections) for key, entry in value.items()}
    if origin is np.ndarray:
        sections.append(value.astype(value.dtype.newbyteorder("<")).tobytes())
        return {"section": len(sections) - 1, "dtype": value.dtype.name, "shape": list(value.shape)}
    if origin is Program:
        sections.append(value.to_bytes())
        return {"section": len(sections) - 1}
    if issubclass(origin, Enum):
        return value.value
    if origin in _SCALARS:
        return float(value) if origin is float else value
    return {
        name: to_record(field_hint, getattr(value, name), sections)
        for name, field_hint in field_hints(origin).items()
    }


def from_record(hint: Any, record: Any, sections: Sequence[memoryview], where: str) -> Any:
    """Return the value that `record` stands for; the inverse of `to_record`.

    Raises
    ------
    TilewrightError
        If the record has another form than `hint` asks for, or if the value does not validate.
        `where` begins the message.
    """
    members = _union_members(hint)
    if members:
        return _union_from_record(members, record, sections, where)
    origin = get_origin(hint) or hint
    if origin is tuple:
        return _tuple_from_record(hint, record, sections, where)
    if origin is Mapping:
        item = get_args(hint)[1]
        entries = _require(record, dict, where).items()
        return {key: from_record(item, entry, sections, where) for key, entry in entries}
    if origin is np.ndarray:
        return _array_from_record(record, sections, where)
    if origin is Program:
        fields = _fields(record, {"section"}, where)
        return Program.from_bytes(bytes(_section(fields["section"], sections, where)))
    if issubclass(origin, Enum):
        return _enum_from_record(origin, record, where)
    if origin in _SCALARS:
        return _require(record, origin, where)
    return _dataclass_from_record(origin, record, sections, where)


@memoize
def field_hints(cls: Any) -> dict[str, Any]:
    """Return the type hint of each field of a dataclass, in their order."""
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


_SCALARS = (bool, int, float, str)


def _union_members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else ()


def _item_hints(hint: Any, length: int) -> tuple[Any, ...]:
    items = get_args(hint)
    return (items[0],) * length if len(items) == 2 and items[1] is Ellipsis else items


def _union_to_record(members: tuple[Any, ...], value: Any, sections: list[bytes]) -> Any:
    if value is None:
        return None
    classes = [member for member in members if member is not types.NoneType]
    if len(classes) == 1:
        return to_record(classes[0], value, sections)
    return {type(value).__name__: to_record(type(value), value, sections)}


def _union_from_record(
    members: tuple[Any, ...], record: Any, sections: Sequence[memoryview], where: str
) -> Any:
    if record is None and types.NoneType in members:
        return None
    classes = {member.__name__: member for member in members if member is not types.NoneType}
    if len(classes) == 1:
        (member,) = classes.values()
        return from_record(member, record, sections, where)
    if len(_require(record, dict, where)) != 1:
        raise RecordError(f"{where} must name one class, not {len(record)}")
    ((name, fields),) = record.items()
    if name not in classes:
        raise RecordError(f"{where} cannot be a {name!r:.60}")
    return from_record(classes[name], fields, sections, where)


def _tuple_from_record(
    hint: Any, record: Any, sections: Sequence[memoryview], where: str
) -> tuple[Any, ...]:
    items = _require(record, list, where)
    hints = _item_hints(hint, len(items))
    if len(hints) != len(items):
        raise RecordError(f"{where} must have {len(hints)} items, not {len(items)}")
    return tuple(
        from_record(h, item, sections, f"{where}[{index}]")
        for index, (h, item) in enumerate(zip(hints, items, strict=True))
    )


def _array_from_record(record: Any, sections: Sequence[memoryview], where: str) -> Any:
    fields = _fields(record, {"section", "dtype", "shape"}, where)
    dtype = np.dtype(_enum_from_record(DataType, fields["dtype"], where).numpy)
    shape = _tuple_from_record(tuple[int, ...], fields["shape"], sections, where)
    data = _section(fields["section"], sections, where)
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize != len(data):
        raise RecordError(f"{where} of {len(data)} bytes does not hold {dtype}{list(shape)}"[:300])
    return np.frombuffer(data, dtype=dtype.newbyteorder("<")).astype(dtype).reshape(shape)


def _dataclass_from_record(
    cls: type[Any], record: Any, sections: Sequence[memoryview], where: str
) -> Any:
    hints = field_hints(cls)
    fields = _fields(record, hints.keys(), where)
    arguments = {
        name: from_record(hint, fields[name], sections, f"{where}.{name}")
        for name, hint in hints.items()
    }
    try:
        return cls(**arguments)
    except TilewrightError as error:
        raise RecordError(f"{where} is not valid: {error}") from error


def _enum_from_record(cls: type[Enum], record: Any, where: str) -> Any:
    members = {member.value: member for member in cls}
    if type(record) not in (str, int) or record not in members:
        raise RecordError(f"{where} cannot be {record!r:.60}")
    return members[record]


def _section(number: Any, sections: Sequence[memoryview], where: str) -> memoryview:
    index: int = _require(number, int, where)
    if not 0 <= index < len(sections):
        raise RecordError(f"{where} names section {number!r:.40} of {len(sections)}")
    return sections[index]


def _fields(record: Any, names: Any, where: str) -> dict[str, Any]:
    fields: dict[str, Any] = _require(record, dict, where)
    if fields.keys() != set(names):
        odd = sorted(fields.keys() ^ set(names))[0]
        raise RecordError(f"{where} has or lacks the field {odd!r:.60}")
    return fields


def _require(value: Any, kind: type[Any], where: str) -> Any:
    if type(value) is not kind:
        raise RecordError(f"{where} must be of type {kind.__name__}, not {value!r:.60}")
    return value
