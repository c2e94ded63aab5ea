"""Files that are written whole or not at all, and the check that they can be."""

import errno
import os
import secrets
from pathlib import Path
from typing import TypeAlias

from tilewright.isa.errors import InputError

PathLike: TypeAlias = str | os.PathLike[str]


def check_writable(path: PathLike) -> Path:
    """Return `path` if a file can be written there; meant to be called before long work.

    Raises
    ------
    InputError
        If the folder does not exist or may not be written to, or if `path` is a folder.
    """
    target = Path(path)
    if target.is_dir():
        raise InputError(f"cannot write {target}: it is a folder")
    if not target.parent.is_dir():
        raise InputError(f"cannot write {target}: there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {target}: no permission to write to its folder")
    return target


def write_atomically(path: PathLike, data: bytes) -> None:
    """Write a file in one step: an interrupted or failed write leaves what was there.

    Raises
    ------
    InputError
        If the file cannot be written; the message holds the system's reason.
    """
    target = check_writable(path)
    try:
        if target.exists() and not target.is_file():
            # A pipe or a device is written to, never replaced.
            target.write_bytes(data)
        else:
            _replace(target.resolve(), data)
    except OSError as error:
        raise InputError(f"cannot write {target}: {_reason(error)}") from error


def read_file(path: PathLike, what: str) -> bytes:
    """Return the bytes of a file; `what` names its role in the message of an `InputError`."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {what} {path}: {_reason(error)}") from error
    except ValueError as error:
        raise InputError(f"cannot read {what} {str(path)!r}: {error}") from error


def _reason(error: OSError) -> str:
    text = os.strerror(error.errno) if error.errno else str(error)
    if error.errno == errno.EISDIR:
        text = "it is a folder"
    return text[:1].lower() + text[1:]


def _replace(target: Path, data: bytes) -> None:
    temporary = target.with_name(f".{target.name[:64]}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
