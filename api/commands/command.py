"""What a command is to the command line."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.terminal import Terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command leaves besides its printed result."""

    #: The full result as JSON values, for ``--json``.
    record: dict[str, Any]
    #: Exit status.
    status: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command by name; `execute` does its work and prints its result."""

    name: str
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace, Terminal], Outcome]
