"""Configurations as plain records of JSON values, and the digest that identifies a machine."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any, get_type_hints

from tilewright.isa.config import AcceleratorConfig, DramModel
from tilewright.isa.errors import ConfigError


def config_to_record(config: AcceleratorConfig) -> dict[str, Any]:
    """List every field of a configuration as JSON values, the memory model nested as ``dram``."""
    record = _plain(config)
    record["dram"] = _plain(config.dram)
    return record


def config_from_record(record: Mapping[str, Any]) -> AcceleratorConfig:
    """Make a configuration of a record; the inverse of `config_to_record`.

    Fields that have a default may be missing. Raises `ConfigError` where a field is unknown,
    missing, of the wrong type, or out of range.
    """
    arguments = _arguments(AcceleratorConfig, record, prefix="")
    arguments["dram"] = DramModel(**_arguments(DramModel, arguments["dram"], prefix="dram."))
    return AcceleratorConfig(**arguments)


def config_digest(config: AcceleratorConfig) -> str:
    """Hash everything that a machine is, its name excepted, as hexadecimal SHA-256."""
    record = config_to_record(config)
    del record["name"]
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _plain(holder: AcceleratorConfig | DramModel) -> dict[str, Any]:
    hints = get_type_hints(type(holder))
    values = {field.name: getattr(holder, field.name) for field in dataclasses.fields(holder)}
    return {name: float(value) if hints[name] is float else value for name, value in values.items()}


def _arguments(cls: type[Any], record: object, *, prefix: str) -> dict[str, Any]:
    if not isinstance(record, Mapping):
        raise ConfigError(f"{prefix or 'a configuration '}must be a table, not {record!r:.40}")
    hints = get_type_hints(cls)
    for name in record:
        if name not in hints:
            raise ConfigError(f"a configuration has no field {prefix + str(name)!r:.60}")
    for field in dataclasses.fields(cls):
        if field.name not in record and field.default is dataclasses.MISSING:
            raise ConfigError(f"a configuration must have the field {prefix}{field.name}")
    for name, value in record.items():
        allowed = _JSON_TYPES[hints[name]]
        if type(value) not in allowed:
            raise ConfigError(
                f"{prefix}{name} must be of type {allowed[0].__name__}, not {value!r:.40}"
            )
    return dict(record)


#: Types of a JSON value that a field of each type accepts.
_JSON_TYPES: dict[type[Any], tuple[type[Any], ...]] = {
    bool: (bool,),
    int: (int,),
    float: (float, int),
    str: (str,),
    DramModel: (dict,),
}
