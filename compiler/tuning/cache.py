"""Files of tuned choices: lines are appended as they are found, and read before compiling."""

import os
import warnings
from pathlib import Path

from tilewright.compiler.lowering.choices import CHOICES_VERSION, Choice, Choices
from tilewright.compiler.tuning.records import (
    DamagedRecord,
    KernelRecord,
    NetworkRecord,
    Record,
    line_to_record,
    machine_digest,
    record_to_line,
)
from tilewright.isa.cache_folder import cache_folder
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import InputError

#: First line of a file.
HEADER = f"tilewright tuning cache, version {CHOICES_VERSION}"
#: What comes with the package: the presets and the usual networks.
SHIPPED = Path(__file__).with_name("shipped.tuning")


#: Share of the estimate's cycles that a choice must save to be used in a network that was not
#: tuned: what a kernel gains by itself, its neighbours may lose.
_WORTHWHILE = 0.02


class TuningWarning(UserWarning):
    """Something of a cache is not used; choices only change cycles, so nothing fails."""


def user_cache_path() -> Path:
    """Return the file of the user's own choices, which need not exist."""
    return cache_folder() / "choices.tuning"


class TuningCache:
    """Records of some files, later ones in place of earlier ones; new ones go to the last file."""

    def __init__(self, *paths: Path) -> None:
        self._path = paths[-1]
        self._kernels: dict[tuple[str, str], KernelRecord] = {}
        self._networks: dict[tuple[str, str], NetworkRecord] = {}
        for path in paths:
            for record in _read(path):
                self._keep(record)

    def choices(self, config: AcceleratorConfig) -> Choices:
        """Return all choices for a machine: those of networks that were tuned, and others."""
        machine = machine_digest(config)
        return Choices(
            by_digest={
                kernels: _choose(record)
                for (owner, kernels), record in self._kernels.items()
                if owner == machine
            },
            networks={
                network: record.choices
                for (owner, network), record in self._networks.items()
                if owner == machine
            },
        )

    def alternatives(self, config: AcceleratorConfig, kernels: str) -> tuple[Choice, ...]:
        """Return all choices that were kept for some kernels, the best first."""
        record = self._kernels.get((machine_digest(config), kernels))
        return () if record is None else record.choices

    def budget(self, config: AcceleratorConfig, kernels: str) -> int:
        """Return how many candidates the search for some kernels was allowed; 0 without one."""
        record = self._kernels.get((machine_digest(config), kernels))
        return 0 if record is None else record.budget

    def add(self, record: Record) -> None:
        """Keep a record and append it to the file at once.

        Raises
        ------
        InputError
            If the file cannot be written.
        """
        self._keep(record)
        try:
            _append(self._path, record_to_line(record))
        except OSError as error:
            raise InputError(f"cannot write {self._path}: {error.strerror}") from error

    def _keep(self, record: Record) -> None:
        match record:
            case KernelRecord():
                self._kernels[record.machine, record.kernels] = record
            case NetworkRecord():
                self._networks[record.machine, record.network] = record


def _choose(record: KernelRecord) -> Choice:
    """Return the best choice where it is worthwhile, else that of the estimate."""
    best, estimate = record.choices[0], record.choices[-1]
    return best if best.cycles <= (1 - _WORTHWHILE) * estimate.cycles else estimate


def _read(path: Path) -> list[Record]:
    """Read what can be used of a file, and warn in one line of what cannot."""
    if not path.is_file():
        return []
    try:
        header, *lines = path.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
    except OSError as error:
        warnings.warn(f"{path}: {error.strerror}, not used", TuningWarning, stacklevel=3)
        return []
    if header != HEADER:
        warnings.warn(
            f"{path} is not a {HEADER}: it is not used; delete it to tune anew",
            TuningWarning,
            stacklevel=3,
        )
        return []
    records: list[Record] = []
    damaged: list[int] = []
    for number, line in enumerate(lines, 2):
        try:
            records.append(line_to_record(line))
        except DamagedRecord:
            damaged.append(number)
    if damaged:
        others = f" and {len(damaged) - 1} others are" if len(damaged) > 1 else " is"
        warnings.warn(
            f"{path}: line {damaged[0]}{others} damaged and not used", TuningWarning, stacklevel=3
        )
    return records


def _append(path: Path, line: str) -> None:
    """Append a line in one write, after what an interrupted write may have left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        start = f"{HEADER}\n" if not size else ""
        if size:
            file.seek(size - 1)
            start = "" if file.read(1) == b"\n" else "\n"
        file.write(f"{start}{line}\n".encode())
