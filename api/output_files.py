"""Outputs of a run as .npy files."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tilewright.compiler.graph import Array
from tilewright.input_files import ARRAY_SUFFIX
from tilewright.isa.errors import InputError
from tilewright.runtime.files import write_atomically


def output_path(argument: str) -> Path:
    """Return the file of an argument of ``--output``, ``FILE`` or ``NAME=FILE``."""
    head, equals, tail = argument.partition("=")
    path = Path(tail if equals else head)
    if path.suffix != ARRAY_SUFFIX:
        raise InputError(f"output file {path} must be a {ARRAY_SUFFIX} file")
    return path


def choose_outputs(names: Sequence[str], arguments: Sequence[str]) -> dict[str, Path]:
    """Return the file of each output named; a bare file is for the only output."""
    hint = f"outputs: {', '.join(names)}"
    chosen: dict[str, Path] = {}
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if not equals and len(names) != 1:
            raise InputError(
                f"there are {len(names)} outputs: say which one {argument} is for with NAME=FILE",
                hint=hint,
            )
        if not equals:
            (name,) = names
        if name not in names:
            raise InputError(f"there is no output {name!r}", hint=hint)
        if name in chosen:
            raise InputError(f"output {name!r} is given twice")
        chosen[name] = output_path(argument)
    return chosen


def save_outputs(outputs: Mapping[str, Array], files: Mapping[str, Path]) -> None:
    """Write the chosen outputs, each file whole or not at all."""
    for name, path in files.items():
        buffer = io.BytesIO()
        np.save(buffer, outputs[name], allow_pickle=False)
        write_atomically(path, buffer.getvalue())
