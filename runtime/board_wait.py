"""Waiting for the end of a program: by interrupt where there is one that works, else by looking."""

import logging
import time
from collections.abc import Callable

from tilewright.isa.registers import Control, Register, Status
from tilewright.runtime.board_access import Interrupt, Window

_LOG = logging.getLogger(__name__)
#: Time in which the host looks without a pause: most short programs end within it.
_SPIN_SECONDS = 0.002
#: Time between two looks without an interrupt, and with one, when the caller may give up as well.
_LOOK_SECONDS = 0.0005
_INTERRUPT_SECONDS = 0.1
#: Time in which the interrupt of a program that has ended must have come.
_LATE_SECONDS = 0.5
#: Interrupts of one program that come before its end until they are no longer believed.
_FALSE_ALARMS = 8

_ENDED = Status.DONE | Status.STALLED


class Waiter:
    """Waits for programs of one accelerator.

    Parameters
    ----------
    registers
        The accelerator's.
    interrupt
        Its interrupt, where the kernel offers it.
    """

    def __init__(self, registers: Window, interrupt: Interrupt | None) -> None:
        self._registers = registers
        self._interrupt = interrupt
        self._fault = ""

    @property
    def fault(self) -> str:
        """Why the interrupt is done without though there is one; empty while all is well."""
        return self._fault

    def enable(self) -> None:
        """Have the accelerator raise its interrupt at the end of a program if it is waited for."""
        self._registers.write(Register.INTERRUPT_ENABLE, int(self._interrupt is not None))

    def wait(self, seconds: float, look: Callable[[], None]) -> int:
        """Return the status at the end of the program, or when the time is over.

        `look` is called now and then; what it raises ends the wait.
        """
        begin = time.monotonic()
        alarms = 0
        missing = False
        while True:
            status = self._status()
            waited = time.monotonic() - begin
            if status & _ENDED:
                if missing and self._interrupt and not self._interrupt.wait(_LATE_SECONDS):
                    self._distrust("it does not come")
                return status
            if waited > seconds:
                return status
            if waited <= _SPIN_SECONDS:
                continue
            look()
            if self._interrupt is None:
                time.sleep(_LOOK_SECONDS)
                continue
            self._interrupt.arm()
            came = self._interrupt.wait(min(_INTERRUPT_SECONDS, seconds - waited))
            missing, alarms = not came, alarms + came
            if alarms > _FALSE_ALARMS:
                self._distrust("it comes while programs run")

    def settle(self, seconds: float) -> bool:
        """Wait for a program that nobody wants any more; says whether it has ended."""
        end = time.monotonic() + seconds
        while not self._status() & _ENDED:
            if time.monotonic() > end:
                return False
            time.sleep(_LOOK_SECONDS)
        self._registers.write(Register.CONTROL, Control.CLEAR)
        return True

    def _status(self) -> int:
        return self._registers.read(Register.STATUS)

    def _distrust(self, reason: str) -> None:
        self._fault = f"without its interrupt: {reason}"
        _LOG.warning("the accelerator's interrupt is done without: %s", reason)
        self._interrupt = None
        self._registers.write(Register.INTERRUPT_ENABLE, 0)
