"""Files of tuned choices for any target: one line of JSON with a checksum for each finding.

A line belongs to a machine and to kernels, or to a whole network, all known by digests. What a
choice says is the target's own affair; here it is what it costs, and values.
"""

import json
import os
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tilewright.compiler.lowering.choices import CHOICES_VERSION
from tilewright.isa.cache_folder import cache_folder
from tilewright.isa.errors import InputError

#: First line of a file.
HEADER = f"tilewright tuning cache, version {CHOICES_VERSION}"
#: What comes with the package: the presets and the usual networks.
SHIPPED = Path(__file__).with_name("shipped.tuning")

#: Share of the usual choice's cost that another one must save to be used in a network that was not
#: tuned: what a kernel gains by itself, its neighbours may lose.
_WORTHWHILE = 0.02

#: What a choice says, as JSON has it.
Values: TypeAlias = tuple[Any, ...]


class TuningWarning(UserWarning):
    """Something of a cache is not used; choices only change time, so nothing fails."""


class DamagedRecord(ValueError):
    """A line that is not what was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChoice:
    """One choice: its cost, in cycles or nanoseconds, and what it says."""

    cost: int
    values: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRecord:
    """The choices that the search for some kernels has kept: the best first, and last the one that
    is taken where nothing is tuned.
    """

    #: Of what runs them.
    machine: str
    #: Of the kernels.
    kernels: str
    choices: tuple[StoredChoice, ...]
    #: Candidates that were allowed.
    budget: int

    @property
    def worthwhile(self) -> StoredChoice:
        """The best choice where it saves enough, else the usual one."""
        best, usual = self.choices[0], self.choices[-1]
        return best if best.cost <= (1 - _WORTHWHILE) * usual.cost else usual


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRecord:
    """What suits the kernels of a network in their context."""

    machine: str
    #: Of all kernels in order.
    network: str
    #: By the digest of kernels.
    choices: Mapping[str, StoredChoice]


Record: TypeAlias = KernelRecord | NetworkRecord


def user_cache_path() -> Path:
    """Return the file of the user's own choices, which need not exist."""
    return cache_folder() / "choices.tuning"


class TuningStore:
    """Records of some files, later ones in place of earlier ones; new ones go to the last file."""

    def __init__(self, *paths: Path) -> None:
        self._path = paths[-1]
        self._kernels: dict[tuple[str, str], KernelRecord] = {}
        self._networks: dict[tuple[str, str], NetworkRecord] = {}
        for path in paths:
            for record in _read(path):
                self._keep(record)

    def kernels(self, machine: str) -> Mapping[str, KernelRecord]:
        """Return what is known of kernels on a machine, by their digest."""
        found = self._kernels.items()
        return {kernels: record for (owner, kernels), record in found if owner == machine}

    def networks(self, machine: str) -> Mapping[str, NetworkRecord]:
        """Return what is known of networks on a machine, by their digest."""
        found = self._networks.items()
        return {network: record for (owner, network), record in found if owner == machine}

    def record(self, machine: str, kernels: str) -> KernelRecord | None:
        """Return what is known of some kernels."""
        return self._kernels.get((machine, kernels))

    def budget(self, machine: str, kernels: str) -> int:
        """Return how many candidates the search for some kernels was allowed; 0 without one."""
        record = self.record(machine, kernels)
        return 0 if record is None else record.budget

    def chosen(self, machine: str, network: str) -> Mapping[str, StoredChoice]:
        """Return the choices for a network: its own where it was tuned, else what is worthwhile
        for its kernels by themselves.
        """
        own = self._networks.get((machine, network))
        if own is not None:
            return own.choices
        return {digest: record.worthwhile for digest, record in self.kernels(machine).items()}

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


def record_to_line(record: Record) -> str:
    """Write a record; the inverse of `line_to_record`."""
    match record:
        case KernelRecord():
            body: dict[str, Any] = {
                "machine": record.machine,
                "kernels": record.kernels,
                "budget": record.budget,
                "choices": [[choice.cost, *choice.values] for choice in record.choices],
            }
        case NetworkRecord():
            body = {
                "machine": record.machine,
                "network": record.network,
                "choices": {
                    digest: [choice.cost, *choice.values]
                    for digest, choice in record.choices.items()
                },
            }
    text = json.dumps(body, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x} {text}"


def line_to_record(line: str) -> Record:
    """Read a record.

    Raises
    ------
    DamagedRecord
        If the line is not what `record_to_line` wrote.
    """
    checksum, _, text = line.partition(" ")
    if checksum != f"{zlib.crc32(text.encode()):08x}":
        raise DamagedRecord("the checksum does not match")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedRecord(str(error)) from error
    return _from_json(body)


def _from_json(body: Any) -> Record:
    match body:
        case {"machine": str(machine), "network": str(network), "choices": dict(choices)}:
            return NetworkRecord(
                machine=machine,
                network=network,
                choices={digest: _choice(values) for digest, values in choices.items()},
            )
        case {
            "machine": str(machine),
            "kernels": str(kernels),
            "budget": int(budget),
            "choices": [_, *_] as choices,
        }:
            return KernelRecord(
                machine=machine,
                kernels=kernels,
                budget=budget,
                choices=tuple(map(_choice, choices)),
            )
        case _:
            raise DamagedRecord(f"a record cannot be {body!r:.60}")


def _choice(stored: Any) -> StoredChoice:
    match stored:
        case [int(cost), *values]:
            return StoredChoice(cost=cost, values=tuple(map(_frozen, values)))
        case _:
            raise DamagedRecord(f"a choice cannot be {stored!r:.60}")


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


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
        if line == HEADER:  # of another process that began the file at the same time
            continue
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
