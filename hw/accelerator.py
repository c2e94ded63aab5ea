"""The whole accelerator: core, counters and control registers, with AXI ports by their names."""

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib.wiring import Out

from tilewright.hw.axi_names import (
    connect_control,
    connect_read,
    connect_write,
    control_members,
    read_members,
    write_members,
)
from tilewright.hw.component import Unit
from tilewright.hw.control import ControlRegisters
from tilewright.hw.core import Core
from tilewright.hw.counters import COUNTS, EngineCounters
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.memories import Engine


class Accelerator(Unit):
    """What goes onto an FPGA.

    Attributes
    ----------
    s_axi_control_*
        AXI4-Lite port of the control registers.
    m_axi_fetch_*, m_axi_load_*, m_axi_store_*
        AXI4 ports to memory: instructions (read), data (read), results (write). Bursts of
        `burst_beats` beats at most, full width, incrementing, without identifiers.
    interrupt
        A program has ended or stalled; level.
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self.config = config
        super().__init__(
            {
                **control_members("s_axi_control"),
                **read_members("m_axi_fetch", config.port_bits),
                **read_members("m_axi_load", config.port_bits),
                **write_members("m_axi_store", config.port_bits),
                "interrupt": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        core = Core(self.config)
        m.submodules.control = control = ControlRegisters(self.config)
        m.submodules.core = ResetInserter(control.reset)(core)
        # Registers: the watchdog need not be exact, and a start reaches far.
        progress, start = Signal(), Signal()
        m.d.sync += start.eq(control.start)
        m.d.sync += progress.eq(
            Cat(core.dispatched, core.started, core.finished, core.active & core.busy).any()
        )
        connect_control(m, self, "s_axi_control", control.port)
        connect_read(m, self, "m_axi_fetch", core.fetch)
        connect_read(m, self, "m_axi_load", core.load)
        connect_write(m, self, "m_axi_store", core.store)
        m.d.comb += [
            core.start.eq(start),
            core.address.eq(control.code_address),
            core.count.eq(control.instruction_count),
            control.running.eq(core.running | start),
            control.done.eq(core.done),
            control.cycle.eq(core.cycle),
            control.progress.eq(progress),
            self.interrupt.eq(control.interrupt),
        ]
        for engine in Engine:
            counters = EngineCounters()
            m.submodules[f"{engine.name.lower()}_counters"] = counters
            connect_counters(m, counters, core, engine)
            state = Cat(
                Mux(core.queued[engine], core.waits[engine], 0),
                core.queued[engine],
                core.active[engine],
            )
            m.d.comb += control.states[engine].eq(state)
            for number, name in enumerate(COUNTS):
                m.d.comb += control.counts[engine][number].eq(getattr(counters, name))
        return m


def connect_counters(m: Module, counters: EngineCounters, core: Core, engine: Engine) -> None:
    """Let counters count, one cycle later, what an engine of a core does while a program runs.

    Registers lie between: starts and steps are known late in their cycle.
    """
    m.d.sync += [
        counters.clear.eq(core.start),
        counters.enable.eq(core.running & ~core.done),
        counters.dispatched.eq(core.dispatched[engine]),
        counters.started.eq(core.started[engine]),
        counters.finished.eq(core.finished[engine]),
        counters.active.eq(core.active[engine]),
        counters.busy.eq(core.busy[engine]),
        counters.queued.eq(core.queued[engine]),
        counters.lacks_token.eq(core.waits[engine].any()),
    ]
