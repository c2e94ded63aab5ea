"""The jobs of a server: so many at a time, in the order in which they came."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

from tilewright.isa.errors import TilewrightError

#: Seconds between two looks at a client that waits.
_LOOK_SECONDS = 0.2


class BusyError(TilewrightError):
    """Too many jobs wait already."""


class JobQueue:
    """Lets some jobs run; others wait in order, and leave when their client has gone.

    Parameters
    ----------
    limit
        Jobs that may run or wait.
    parallel
        Jobs that may run.
    """

    def __init__(self, limit: int, *, parallel: int = 1) -> None:
        self._limit = limit
        self._parallel = parallel
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    @property
    def length(self) -> int:
        """Jobs that run or wait."""
        with self._changed:
            return len(self._waiting)

    @contextmanager
    def turn(self, still_wanted: Callable[[], bool]) -> Iterator[bool]:
        """Wait for one's turn and keep it; yields whether the job is still wanted.

        Raises
        ------
        BusyError
            If too many wait.
        """
        ticket = object()
        with self._changed:
            if len(self._waiting) >= self._limit:
                raise BusyError(f"{len(self._waiting)} jobs wait already", hint="try again later")
            self._waiting.append(ticket)
        try:
            yield self._wait(ticket, still_wanted)
        finally:
            with self._changed:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def _wait(self, ticket: object, still_wanted: Callable[[], bool]) -> bool:
        while True:
            with self._changed:
                if ticket in islice(self._waiting, self._parallel):
                    break
                self._changed.wait(_LOOK_SECONDS)
            if not still_wanted():
                return False
        return still_wanted()


class Deadline:
    """A progress function that ends a job after some seconds, or when nobody wants it any more."""

    def __init__(self, seconds: float, still_wanted: Callable[[], bool]) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._still_wanted = still_wanted

    def __call__(self, done: int, total: int) -> None:
        """Raise `TilewrightError` if the job must end."""
        if time.monotonic() > self._end:
            raise TilewrightError(f"the job takes longer than {self._seconds:g} s")
        if not self._still_wanted():
            raise TilewrightError("the client has gone")
