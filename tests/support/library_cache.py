"""Verilog with a C++ file that drives it, as a shared library that is built once."""

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilewright.isa.cache_folder import cache_folder, find_kept, keep_file
from tilewright.sim.rtl_build import build_library, find_toolchain


def cached_library(
    name: str, text: str, *, top: str, harness: Path, defines: Sequence[str] = ()
) -> Path:
    """Build a library, or find the one that was built of the same text with the same tools."""
    tools = find_toolchain()
    parts = (text, harness.read_text(encoding="utf-8"), *defines, str(tools))
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    folder = cache_folder() / "boards"
    library = folder / f"{name}-{digest[:24]}.so"
    if not find_kept(library):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            source = Path(work) / "bench.v"
            source.write_text(text, encoding="utf-8")
            built = build_library(source, top=top, harness=harness, defines=defines, tools=tools)
            keep_file(built, library)
    return library
