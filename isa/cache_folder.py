"""Where the package keeps what it can make again: builds, syntheses, kernels, tuned choices."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the user's cache folder of the package, which need not exist; removing it is safe.

    ``$XDG_CACHE_HOME/tilewright``, by default ``~/.cache/tilewright`` (XDG Base Directory
    Specification 0.8).
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tilewright"
