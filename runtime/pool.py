"""Several machines as one: jobs go to whichever is free, and away from what drops out."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from typing_extensions import Self

from tilewright.isa.config import differing_fields, with_memory_speed
from tilewright.isa.errors import TilewrightError
from tilewright.isa.program import Program, check_config
from tilewright.runtime.board_access import BoardError
from tilewright.runtime.board_machine import Machine, MachineRun, Patch, Region
from tilewright.runtime.remote_client import RemoteError
from tilewright.runtime.remote_protocol import ProtocolError
from tilewright.runtime.server_queue import BusyError
from tilewright.sim.simulator import Progress

_LOG = logging.getLogger(__name__)
#: Errors that are the machine's and not the job's.
_DROPPED = (RemoteError, ProtocolError, BoardError, BusyError)
#: Time after which a machine that has dropped out is tried again.
_RETRY_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A machine that a pool may open, by name."""

    name: str
    open: Callable[[], Machine]


@dataclass(slots=True, kw_only=True, eq=False)
class _Member:
    """One machine of a pool; a pool that is not open has none."""

    source: Source
    machine: Machine | None = None
    busy: bool = False
    #: When it may be tried again, once it has dropped out.
    retry_at: float = 0.0
    #: Why it has dropped out.
    fault: str = ""


class PoolMachine:
    """Runs programs on several machines, as many at a time; a context manager.

    `run` may be called from several threads. A job is repeated elsewhere when its machine drops
    out, which is logged; errors of the job itself are not repeated.

    Parameters
    ----------
    sources
        The machines, the preferred ones first.
    retry_seconds
        Time after which a machine that has dropped out is tried again.

    Raises
    ------
    RemoteError
        If none can be opened.
    """

    def __init__(self, sources: Sequence[Source], *, retry_seconds: float = _RETRY_SECONDS) -> None:
        self._members = tuple(_Member(source=source) for source in sources)
        self._retry_seconds = retry_seconds
        self._changed = threading.Condition()
        with ThreadPoolExecutor(len(self._members)) as workers:
            list(workers.map(self._open, self._members))
        if all(member.machine is None for member in self._members):
            raise self._nobody()

    @property
    def description(self) -> str:
        """What it is, in one line."""
        open_ones = [m.machine.description for m in self._members if m.machine is not None]
        return f"{len(open_ones)} of {len(self._members)} machines: {'; '.join(open_ones)}"

    @property
    def config(self) -> None:
        """Its machines may be of several configurations."""

    def check_registers(self) -> None:
        """Those of its machines are tried one machine at a time, without a pool."""

    def run(
        self,
        program: Program,
        patches: Sequence[Patch],
        regions: Sequence[Region],
        progress: Progress | None = None,
    ) -> MachineRun:
        """Run a legal program once; see `Machine.run`."""
        while True:
            with self._turn(program) as member:
                machine = member.machine
                if machine is None:
                    continue
                try:
                    return machine.run(program, patches, regions, progress)
                except _DROPPED as error:
                    self._drop(member, error)

    def close(self) -> None:
        """Leave all machines."""
        for member in self._members:
            if member.machine is not None:
                member.machine.close()
                member.machine = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _turn(self, program: Program) -> Iterator[_Member]:
        """Keep a machine that suits a program; its machine is None where it cannot be opened."""
        with self._changed:
            while (member := self._choose(program)) is None:
                self._changed.wait()
            member.busy = True
        try:
            if member.machine is None:
                self._open(member)
            yield member
        finally:
            with self._changed:
                member.busy = False
                self._changed.notify_all()

    def _choose(self, program: Program) -> _Member | None:
        """Find a free machine that suits; None while those that suit are busy.

        Raises
        ------
        ConfigError
            If no machine that is left runs such programs.
        RemoteError
            If no machine is left.
        """
        now = time.monotonic()
        left = [m for m in self._members if m.machine is not None or m.retry_at <= now]
        if not left:
            raise self._nobody()
        suited = [member for member in left if _suits(member, program)]
        if not suited:
            others = [m.machine.config for m in left if m.machine and m.machine.config]
            check_config(program, with_memory_speed(others[0], program.config))
        return next((member for member in suited if not member.busy), None)

    def _open(self, member: _Member) -> None:
        try:
            machine = member.source.open()
        except TilewrightError as error:
            self._drop(member, error)
            return
        with self._changed:
            member.machine = machine

    def _drop(self, member: _Member, error: Exception) -> None:
        with self._changed:
            machine, member.machine = member.machine, None
            member.fault = str(error)
            member.retry_at = time.monotonic() + self._retry_seconds
        if machine is not None:
            machine.close()
        _LOG.warning("%s has dropped out of the pool: %s", member.source.name, error)

    def _nobody(self) -> RemoteError:
        faults = "; ".join(f"{member.source.name}: {member.fault}" for member in self._members)
        return RemoteError(f"no machine of the pool is left: {faults}")


def _suits(member: _Member, program: Program) -> bool:
    """Whether a machine runs a program, as far as one knows before it is open."""
    own = None if member.machine is None else member.machine.config
    if own is None:
        return True
    names = differing_fields(program.config, with_memory_speed(own, program.config))
    return set(names) <= {"name"}
