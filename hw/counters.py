"""Counters of what an engine does, cycle by cycle."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib.wiring import In, Out

from tilewright.hw.component import Unit
from tilewright.isa.registers import REGISTER_BITS

#: What is counted, by the name of the port.
COUNTS = (
    "started_count",
    "finished_count",
    "busy_count",
    "memory_wait_count",
    "token_wait_count",
    "fetch_wait_count",
    "drain_count",
)


class EngineCounters(Unit):
    """Counts starts and finishes, and names every cycle of an engine from start to last step.

    A cycle in which the engine has nothing to do counts as fetch-wait only once another instruction
    has come, so that the time after the last one counts as nothing.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                #: Set all counters to 0.
                "clear": In(1),
                #: Count this cycle.
                "enable": In(1),
                #: An instruction enters the queue, starts, or finishes.
                "dispatched": In(1),
                "started": In(1),
                "finished": In(1),
                #: An instruction has started and its last step has not been made.
                "active": In(1),
                #: A step is made, or the fixed start-up of an instruction passes.
                "busy": In(1),
                #: The queue holds an instruction.
                "queued": In(1),
                #: A token that it waits for is missing.
                "lacks_token": In(1),
                **{name: Out(REGISTER_BITS) for name in COUNTS},
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        idle = ~self.active
        empty = idle & ~self.queued
        conditions: dict[str, Value] = {
            "started_count": self.started,
            "finished_count": self.finished,
            "busy_count": self.active & self.busy,
            "memory_wait_count": self.active & ~self.busy,
            "token_wait_count": idle & self.queued & self.lacks_token,
            "drain_count": idle & self.queued & ~self.lacks_token,
        }
        empty_cycles = Signal(REGISTER_BITS)
        with m.If(self.enable):
            for name, condition in conditions.items():
                count = getattr(self, name)
                m.d.sync += count.eq(count + condition)
            with m.If(self.dispatched):
                m.d.sync += [
                    self.fetch_wait_count.eq(self.fetch_wait_count + empty_cycles + empty),
                    empty_cycles.eq(0),
                ]
            with m.Else():
                m.d.sync += empty_cycles.eq(empty_cycles + empty)
        with m.If(self.clear):
            m.d.sync += [getattr(self, name).eq(0) for name in COUNTS]
            m.d.sync += empty_cycles.eq(0)
        return m
