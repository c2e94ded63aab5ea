"""Files that are written whole or not at all, and the check that they can be."""

import errno
import os
import tempfile
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
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name:.100}.")
    except OSError as error:
        raise InputError(f"cannot write {target}: {_reason(error)}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, 0o666 & ~_umask())
        Path(temporary).replace(target)
    except OSError as error:
        raise InputError(f"cannot write {target}: {_reason(error)}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


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


def _umask() -> int:
    # The only way to ask is to set; mkstemp makes files that nobody else may read.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
