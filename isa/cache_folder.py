"""Where the package keeps what it can make again, such as builds, and how much of it."""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

#: What a folder that `keep_file` fills may hold. A build of the hardware takes 1 MB, a netlist
#: up to 30 MB.
KEPT_BYTES = 512 << 20
#: Age from which an unfinished folder counts as left behind by a process that was killed.
_LEFT_BEHIND_SECONDS = 24 * 60 * 60
_LOCK_NAME = "lock"


def cache_folder() -> Path:
    """Return the user's cache folder of the package, which need not exist; removing it is safe.

    ``$XDG_CACHE_HOME/tilewright``, by default ``~/.cache/tilewright`` (XDG Base Directory
    Specification 0.8).
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tilewright"


def find_kept(path: Path) -> bool:
    """Say whether a file is in its folder, and note that it is used.

    So it is the last one to go when `keep_file` has to remove some.
    """
    if not path.exists():
        return False
    try:
        with _locked(path.parent):
            os.utime(path)
    except OSError:  # it has gone, or the folder cannot be written and so loses nothing
        return path.exists()
    return True


def keep_file(made: Path, path: Path, *, most_bytes: int = KEPT_BYTES) -> None:
    """Move a file to its place in a folder, from which those that fit no longer are removed.

    They are the ones whose last use is longest ago: all files together then take no more than
    `most_bytes`, unless the new one alone does. Who has opened one keeps it. Folders that a killed
    process has left behind go as well.
    """
    with _locked(path.parent):
        made.replace(path)
        os.utime(path)
        _remove_oldest(path, most_bytes)


def _remove_oldest(newest: Path, most_bytes: int) -> None:
    files = []
    for entry in newest.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):  # folders come and go meanwhile
            state = entry.stat()
            if entry.is_file():
                files.append((state.st_mtime_ns, state.st_size, entry))
            elif time.time() - state.st_mtime > _LEFT_BEHIND_SECONDS:
                shutil.rmtree(entry, ignore_errors=True)
    room = most_bytes
    for _, size, file in sorted(files, reverse=True):
        room -= size
        if room < 0 and file.name not in (newest.name, _LOCK_NAME):
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time note uses, add and remove."""
    try:
        import fcntl
    except ImportError:  # Windows: of two processes that remove a file one finds it gone
        yield
        return
    with (folder / _LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
