"""The configuration that a user means: one itself, a preset by its name, or the default."""

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import ConfigError
from tilewright.isa.presets import PRESETS

#: What a model is compiled for where nothing else is asked for.
DEFAULT_PRESET = "pynq"


def preset(name: str) -> AcceleratorConfig:
    """Return the preset of that name.

    Raises
    ------
    ConfigError
        If there is none; the hint names all of them.
    """
    if name not in PRESETS:
        raise ConfigError(f"there is no preset {name!r}", hint=f"presets: {', '.join(PRESETS)}")
    return PRESETS[name]


def choose_config(config: AcceleratorConfig | str) -> AcceleratorConfig:
    """Return a configuration, which may be given by the name of its preset.

    Raises
    ------
    ConfigError
        If it is neither.
    """
    match config:
        case AcceleratorConfig():
            return config
        case str():
            return preset(config)
        case _:
            raise ConfigError(
                f"config must be an AcceleratorConfig or the name of a preset, not {config!r:.60}"
            )
