"""Compiled kernels on disk, each under the digest of everything that it depends on."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCache:
    """A folder of compiled kernels; without one, nothing is kept."""

    folder: Path | None

    def get(self, parts: tuple[str, ...], build: Callable[[], bytes]) -> bytes:
        """Return what `build` yields for these `parts`, from the folder if it is there.

        A folder that cannot be written to is no error: the kernels are then built each time.
        """
        if self.folder is None:
            return build()
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        path = self.folder / digest[:2] / digest[2:]
        try:
            return path.read_bytes()
        except OSError:
            data = build()
        _write(path, data)
        return data

    def forget(self, parts: tuple[str, ...]) -> None:
        """Remove what is kept for `parts`, if it is."""
        if self.folder is not None:
            digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
            (self.folder / digest[:2] / digest[2:]).unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, whoever else writes it at the same time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
