"""When each instruction was dispatched, started and finished, and what its engine waited for."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.isa.memories import Engine

Cycles: TypeAlias = npt.NDArray[np.int64]

#: In `Timeline.engine` and `Timeline.token_giver`: no engine.
NO_ENGINE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAccount:
    """What an engine did in each cycle of a program; the fields add up to its cycles.

    `docs/microarchitecture.md` says what each of them means.
    """

    busy: int
    memory_wait: int
    #: Cycles in which a token was missing, by the engine that gives it.
    token_wait: tuple[int, ...]
    fetch_wait: int
    drain: int
    done: int

    @property
    def cycles(self) -> int:
        """Cycles of the program."""
        named = self.busy + self.memory_wait + self.fetch_wait + self.drain + self.done
        return named + sum(self.token_wait)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """Timing of one run: arrays hold one value per instruction, in program order.

    An engine is idle from the last step of an instruction to the start of the next one: for
    `fetch_wait`, then `token_wait`, then `drain` cycles. From there it is `busy` or in
    `memory_wait` until its last step. `Finish` starts and finishes at the end of the program.
    """

    #: Cycles from the start of the program to its end.
    cycles: int
    #: Engine of each instruction, `NO_ENGINE` for `Finish`.
    engine: npt.NDArray[np.int8]
    #: Cycle in which it entered its queue.
    dispatch: Cycles
    start: Cycles
    #: Cycle of its last step: issue of a product or operand, write or read of an entry or beat.
    last_step: Cycles
    finish: Cycles
    fetch_wait: Cycles
    token_wait: Cycles
    #: Giver of the token that came last, `NO_ENGINE` where `token_wait` is 0.
    token_giver: npt.NDArray[np.int8]
    drain: Cycles
    busy: Cycles
    memory_wait: Cycles
    #: Bytes moved between DRAM and scratchpads.
    dram_bytes: Cycles
    #: Bytes of instructions fetched.
    fetch_bytes: int

    def account(self, engine: Engine) -> EngineAccount:
        """Add up what an engine did."""
        mine = self.engine == engine
        busy, memory_wait, fetch_wait, drain = (
            int(column[mine].sum())
            for column in (self.busy, self.memory_wait, self.fetch_wait, self.drain)
        )
        token_wait = tuple(
            int(self.token_wait[mine & (self.token_giver == giver)].sum()) for giver in Engine
        )
        used = busy + memory_wait + fetch_wait + drain + sum(token_wait)
        return EngineAccount(
            busy=busy,
            memory_wait=memory_wait,
            token_wait=token_wait,
            fetch_wait=fetch_wait,
            drain=drain,
            done=self.cycles - used,
        )

    @property
    def dram_read_bytes(self) -> int:
        """Bytes read from DRAM, instructions included."""
        return int(self.dram_bytes[self.engine == Engine.LOAD].sum()) + self.fetch_bytes

    @property
    def dram_write_bytes(self) -> int:
        """Bytes written to DRAM."""
        return int(self.dram_bytes[self.engine == Engine.STORE].sum())
