"""The whole accelerator: core, counters and control registers, with AXI ports by their names."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib.wiring import In, Out

from tilewright.hw.axi import LENGTH_BITS, RESPONSE_BITS
from tilewright.hw.component import Unit
from tilewright.hw.control import ControlRegisters
from tilewright.hw.core import Core
from tilewright.hw.counters import COUNTS, EngineCounters
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import ADDRESS_BITS
from tilewright.isa.memories import Engine
from tilewright.isa.registers import REGISTER_ADDRESS_BITS, REGISTER_BITS, REGISTER_BYTES

#: AxBURST of an incrementing burst (AMBA AXI4, IHI 0022, A3.4.1).
_INCREMENTING = 1
_SIZE_BITS = 3
_BURST_BITS = 2


def _address_members(prefix: str, channel: str) -> dict[str, Any]:
    return {
        f"{prefix}_{channel}valid": Out(1),
        f"{prefix}_{channel}ready": In(1),
        f"{prefix}_{channel}addr": Out(ADDRESS_BITS),
        f"{prefix}_{channel}len": Out(LENGTH_BITS),
        f"{prefix}_{channel}size": Out(_SIZE_BITS),
        f"{prefix}_{channel}burst": Out(_BURST_BITS),
    }


def _read_members(prefix: str, port_bits: int) -> dict[str, Any]:
    return {
        **_address_members(prefix, "ar"),
        f"{prefix}_rvalid": In(1),
        f"{prefix}_rready": Out(1),
        f"{prefix}_rdata": In(port_bits),
        f"{prefix}_rresp": In(RESPONSE_BITS),
        f"{prefix}_rlast": In(1),
    }


def _write_members(prefix: str, port_bits: int) -> dict[str, Any]:
    return {
        **_address_members(prefix, "aw"),
        f"{prefix}_wvalid": Out(1),
        f"{prefix}_wready": In(1),
        f"{prefix}_wdata": Out(port_bits),
        f"{prefix}_wstrb": Out(port_bits // 8),
        f"{prefix}_wlast": Out(1),
        f"{prefix}_bvalid": In(1),
        f"{prefix}_bready": Out(1),
        f"{prefix}_bresp": In(RESPONSE_BITS),
    }


def _control_members(prefix: str) -> dict[str, Any]:
    return {
        f"{prefix}_awvalid": In(1),
        f"{prefix}_awready": Out(1),
        f"{prefix}_awaddr": In(REGISTER_ADDRESS_BITS),
        f"{prefix}_wvalid": In(1),
        f"{prefix}_wready": Out(1),
        f"{prefix}_wdata": In(REGISTER_BITS),
        f"{prefix}_wstrb": In(REGISTER_BYTES),
        f"{prefix}_bvalid": Out(1),
        f"{prefix}_bready": In(1),
        f"{prefix}_bresp": Out(RESPONSE_BITS),
        f"{prefix}_arvalid": In(1),
        f"{prefix}_arready": Out(1),
        f"{prefix}_araddr": In(REGISTER_ADDRESS_BITS),
        f"{prefix}_rvalid": Out(1),
        f"{prefix}_rready": In(1),
        f"{prefix}_rdata": Out(REGISTER_BITS),
        f"{prefix}_rresp": Out(RESPONSE_BITS),
    }


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
                **_control_members("s_axi_control"),
                **_read_members("m_axi_fetch", config.port_bits),
                **_read_members("m_axi_load", config.port_bits),
                **_write_members("m_axi_store", config.port_bits),
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
        self._connect_control(m, control)
        self._connect_read(m, "m_axi_fetch", core.fetch)
        self._connect_read(m, "m_axi_load", core.load)
        self._connect_write(m, "m_axi_store", core.store)
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

    def _connect_control(self, m: Module, control: ControlRegisters) -> None:
        port = control.port
        for channel, payload in (("aw", "awaddr"), ("ar", "araddr"), ("w", "wdata")):
            ours, theirs = f"s_axi_control_{channel}", getattr(port, channel)
            target = theirs.payload.data if channel == "w" else theirs.payload
            m.d.comb += [
                theirs.valid.eq(getattr(self, f"{ours}valid")),
                getattr(self, f"{ours}ready").eq(theirs.ready),
                target.eq(getattr(self, f"s_axi_control_{payload}")),
            ]
        for channel in ("b", "r"):
            ours, theirs = f"s_axi_control_{channel}", getattr(port, channel)
            m.d.comb += [
                getattr(self, f"{ours}valid").eq(theirs.valid),
                theirs.ready.eq(getattr(self, f"{ours}ready")),
            ]
        m.d.comb += [
            port.w.payload.strobe.eq(self.s_axi_control_wstrb),
            self.s_axi_control_rdata.eq(port.r.payload),
        ]

    def _connect_address(self, m: Module, prefix: str, channel: Any) -> None:
        size = (self.config.port_bytes - 1).bit_length()
        m.d.comb += [
            getattr(self, f"{prefix}valid").eq(channel.valid),
            channel.ready.eq(getattr(self, f"{prefix}ready")),
            getattr(self, f"{prefix}addr").eq(channel.payload.address),
            getattr(self, f"{prefix}len").eq(channel.payload.length),
            getattr(self, f"{prefix}size").eq(size),
            getattr(self, f"{prefix}burst").eq(_INCREMENTING),
        ]

    def _connect_read(self, m: Module, prefix: str, port: Any) -> None:
        self._connect_address(m, f"{prefix}_ar", port.ar)
        m.d.comb += [
            port.r.valid.eq(getattr(self, f"{prefix}_rvalid")),
            port.r.payload.data.eq(getattr(self, f"{prefix}_rdata")),
            port.r.payload.last.eq(getattr(self, f"{prefix}_rlast")),
            getattr(self, f"{prefix}_rready").eq(1),
        ]

    def _connect_write(self, m: Module, prefix: str, port: Any) -> None:
        self._connect_address(m, f"{prefix}_aw", port.aw)
        m.d.comb += [
            getattr(self, f"{prefix}_wvalid").eq(port.w.valid),
            port.w.ready.eq(getattr(self, f"{prefix}_wready")),
            getattr(self, f"{prefix}_wdata").eq(port.w.payload.data),
            getattr(self, f"{prefix}_wstrb").eq(port.w.payload.strobe),
            getattr(self, f"{prefix}_wlast").eq(port.w.payload.last),
            port.b.valid.eq(getattr(self, f"{prefix}_bvalid")),
            port.b.payload.eq(getattr(self, f"{prefix}_bresp")),
            getattr(self, f"{prefix}_bready").eq(1),
        ]


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
