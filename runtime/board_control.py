"""The accelerator behind its registers: who it is, a program's start, and how it ended."""

import contextlib
from collections.abc import Callable

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_digest
from tilewright.isa.errors import DeadlockError
from tilewright.isa.program import Program
from tilewright.isa.registers import (
    IDENTIFICATION,
    ISA_VERSION,
    REGISTER_BITS,
    REGISTER_BYTES,
    Control,
    Register,
    Status,
)
from tilewright.runtime.board_access import BoardError, Interrupt, Window
from tilewright.runtime.board_machine import Counters
from tilewright.runtime.board_status import describe, read_counters, read_states
from tilewright.runtime.board_wait import Waiter
from tilewright.sim.simulator import Progress

#: Longer than any wait for a memory that still works.
WATCHDOG_CYCLES = 1 << 22
#: Time after which a program is given up that neither ends nor stalls.
RUN_SECONDS = 60.0
#: Time in which a program may end that nobody wants any more.
_SETTLE_SECONDS = 1.0
_DIGEST_WORDS = 4


class AcceleratorControl:
    """Starts programs through registers and waits for them.

    Parameters
    ----------
    registers
        The accelerator's.
    interrupt
        Its interrupt, where there is one.
    run_seconds, watchdog_cycles
        When a program is given up: by the host, and by the accelerator itself without progress.

    Attributes
    ----------
    lost
        Only a new bitstream brings the accelerator back into a known state.
    """

    def __init__(
        self,
        registers: Window,
        interrupt: Interrupt | None = None,
        *,
        run_seconds: float = RUN_SECONDS,
        watchdog_cycles: int = WATCHDOG_CYCLES,
    ) -> None:
        self.lost = False
        self._registers = registers
        self._run_seconds = run_seconds
        self._watchdog_cycles = watchdog_cycles
        self._waiter = Waiter(registers, interrupt)

    @property
    def registers(self) -> Window:
        """The accelerator's registers."""
        return self._registers

    @property
    def fault(self) -> str:
        """What is wrong with the interrupt, or nothing."""
        return self._waiter.fault

    def check_identity(self, config: AcceleratorConfig, place: str) -> None:
        """Refuse another bitstream than that of a configuration.

        Raises
        ------
        BoardError
            If something else is there.
        """
        found = self._read(Register.IDENTIFICATION)
        if found != IDENTIFICATION:
            raise BoardError(
                f"there is no accelerator at {place}: its identification reads {found:#010x}",
                hint="another bitstream may have been loaded since",
            )
        if (version := self._read(Register.ISA_VERSION)) != ISA_VERSION:
            raise BoardError(
                f"the accelerator has ISA version {version}, this is version {ISA_VERSION}"
            )
        words = [
            self._read(Register.CONFIG_DIGEST_0 + REGISTER_BYTES * word)
            for word in range(_DIGEST_WORDS)
        ]
        digest = "".join(f"{word:08x}" for word in words)
        expected = config_digest(config)[: len(digest)]
        if digest != expected:
            raise BoardError(
                f"the accelerator has the digest {digest[:16]}, its config.json says"
                f" {expected[:16]}",
                hint="copy bitstream and config.json from the same build",
            )

    def reset(self) -> None:
        """Bring the accelerator into its first state, while no program runs."""
        self._write(Register.CONTROL, Control.RESET)

    def run(
        self,
        program: Program,
        progress: Progress | None,
        check_memory: Callable[[], None] = lambda: None,
    ) -> Counters:
        """Run what lies in memory; returns what was counted.

        `check_memory` is called after the run, before its outcome is judged.

        Raises
        ------
        DeadlockError
            If it has stalled; the accelerator can be used again.
        BoardError
            If it does not end.
        """
        self._start(program)
        status = self._wait(len(program.instructions), progress)
        check_memory()
        if status & Status.DONE:
            cycles = self._read(Register.CYCLES_LOW)
            cycles |= self._read(Register.CYCLES_HIGH) << REGISTER_BITS
            return Counters(cycles=cycles, engines=read_counters(self._registers))
        said = describe(read_states(self._registers), program)
        if status & Status.STALLED:
            self.reset()
            raise DeadlockError(f"the accelerator stands still: {said}")
        self.lost = True
        raise BoardError(f"the accelerator has not finished in {self._run_seconds:g} s: {said}")

    def _start(self, program: Program) -> None:
        self._write(Register.CODE_ADDRESS, program.code_address)
        self._write(Register.INSTRUCTION_COUNT, len(program.instructions))
        self._write(Register.WATCHDOG_CYCLES, self._watchdog_cycles)
        self._waiter.enable()
        self._write(Register.CONTROL, Control.CLEAR)
        self._write(Register.CONTROL, Control.START)

    def _wait(self, total: int, progress: Progress | None) -> int:
        def look() -> None:
            if progress is not None:
                progress(0, total)

        try:
            status = self._waiter.wait(self._run_seconds, look)
        except BaseException:
            # The caller gives up while the program runs: where it does not end by itself, only a
            # new bitstream stops it for sure.
            self.lost = True
            with contextlib.suppress(OSError, BoardError):
                self.lost = not self._waiter.settle(_SETTLE_SECONDS)
            raise
        if progress is not None and status & Status.DONE:
            progress(total, total)
        return status

    def _read(self, offset: int) -> int:
        return self._registers.read(offset)

    def _write(self, offset: int, value: int) -> None:
        self._registers.write(offset, int(value))
