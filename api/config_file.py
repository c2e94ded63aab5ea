"""Configurations as users write them: preset names, TOML files, and ``field=value`` changes."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

from tilewright.isa.config import AcceleratorConfig, DramModel
from tilewright.isa.config_record import config_from_record, config_to_record
from tilewright.isa.errors import ConfigError
from tilewright.isa.presets import PRESETS
from tilewright.runtime.board_record import load_config
from tilewright.runtime.files import read_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def parse_config(text: str) -> AcceleratorConfig:
    """Return the preset of that name, or the configuration in the file of that path.

    A file ``.json`` is the description that lies beside a bitstream, any other one TOML.

    Raises
    ------
    TilewrightError
        If there is neither, or if the file does not hold a configuration.
    """
    if text in PRESETS:
        return PRESETS[text]
    path = Path(text)
    if path.suffix == ".json":
        return load_config(path)
    if path.suffix != ".toml" and not path.exists():
        raise ConfigError(
            f"there is no preset {text!r}",
            hint=f"presets: {', '.join(PRESETS)}; or give a .toml file, or a build's config.json",
        )
    try:
        return config_from_toml(read_file(path, "configuration"))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", hint=error.hint) from error


def config_from_toml(data: bytes) -> AcceleratorConfig:
    """Read a configuration: all its fields, or ``preset`` and the fields that differ from it.

    The memory model's fields stand in a table ``[dram]``.
    """
    try:
        table: dict[str, Any] = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"is not a TOML file: {error}") from error
    preset = table.pop("preset", None)
    if preset is None:
        return _from_record(table)
    if not isinstance(preset, str) or preset not in PRESETS:
        raise ConfigError(
            f"there is no preset {preset!r:.60}", hint=f"presets: {', '.join(PRESETS)}"
        )
    record = config_to_record(PRESETS[preset])
    dram = table.pop("dram", {})
    if not isinstance(dram, Mapping):
        raise ConfigError(f"dram must be a table, not {dram!r:.60}")
    record["dram"] |= dram
    return _from_record(record | table)


def change_config(config: AcceleratorConfig, changes: Sequence[str]) -> AcceleratorConfig:
    """Apply ``field=value`` texts, memory fields as ``dram.field=value``.

    The name of the result says what was changed.
    """
    if not changes:
        return config
    values = dict(_parse_change(change) for change in changes)
    changed = config.replace(**values)
    if "name" in values:
        return changed
    return replace(changed, name=", ".join((config.name, *changes)))


def _from_record(record: Mapping[str, Any]) -> AcceleratorConfig:
    try:
        return config_from_record(record)
    except ConfigError as error:
        raise ConfigError(str(error), hint=error.hint or _field_list()) from error


def check_field(name: str) -> type[Any]:
    """Return the type of a field, memory fields being ``dram.field``.

    Raises
    ------
    ConfigError
        If there is no such field.
    """
    prefix, dot, inner = name.partition(".")
    hints = get_type_hints(DramModel if dot and prefix == "dram" else AcceleratorConfig)
    field = inner if dot and prefix == "dram" else name
    if field not in hints or hints[field] is DramModel:
        raise ConfigError(f"a configuration has no field {name!r}", hint=_field_list())
    kind: type[Any] = hints[field]
    return kind


def _parse_change(change: str) -> tuple[str, object]:
    name, equals, text = change.partition("=")
    if not equals:
        raise ConfigError(f"a change must be field=value, not {change!r}")
    return name, _parse_value(name, text, check_field(name))


def _parse_value(name: str, text: str, kind: type[Any]) -> object:
    if kind is bool:
        if text not in ("true", "false"):
            raise ConfigError(f"{name} must be true or false, not {text!r}")
        return text == "true"
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(f"{name} must be of type {kind.__name__}, not {text!r}") from None


def _field_list() -> str:
    own = [name for name in get_type_hints(AcceleratorConfig) if name != "dram"]
    return f"fields: {', '.join((*own, *(f'dram.{name}' for name in get_type_hints(DramModel))))}"
