"""Compiled kernels on disk, each under the digest of everything that it depends on."""

import contextlib
import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tilewright.isa.cache_folder import KEPT_BYTES, find_kept, keep_file


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCache:
    """A folder of compiled kernels; without one, nothing is kept."""

    folder: Path | None
    #: Of all kept kernels; those whose use is longest ago go first.
    most_bytes: int = KEPT_BYTES

    def get(self, parts: tuple[str, ...], build: Callable[[], bytes]) -> bytes:
        """Return what `build` yields for these `parts`, from the folder if it is there.

        A folder that cannot be written to is no error: the kernels are then built each time.
        """
        if self.folder is None:
            return build()
        path = self.folder / _digest(parts)
        if find_kept(path):
            with contextlib.suppress(OSError):
                return path.read_bytes()
        data = build()
        with contextlib.suppress(OSError):
            self._keep(path, data)
        return data

    def forget(self, parts: tuple[str, ...]) -> None:
        """Remove what is kept for `parts`, if it is."""
        if self.folder is not None:
            (self.folder / _digest(parts)).unlink(missing_ok=True)

    def _keep(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / path.name
            made.write_bytes(data)
            keep_file(made, path, most_bytes=self.most_bytes)


def _digest(parts: tuple[str, ...]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
