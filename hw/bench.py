"""The core with its external memory, as a test bench that runs whole programs."""

from typing import Any

from amaranth.hdl import ClockDomain, ClockSignal, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.accelerator import connect_counters
from tilewright.hw.component import Unit
from tilewright.hw.core import CYCLE_BITS, Core, block_name
from tilewright.hw.counters import COUNTS, EngineCounters
from tilewright.hw.dram import DramReadPort, DramWritePort
from tilewright.hw.fetch import COUNT_BITS
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import ADDRESS_BITS
from tilewright.isa.memories import Engine, Memory
from tilewright.isa.registers import REGISTER_BITS

#: Name of its Verilog module.
BENCH_NAME = "tilewright_bench"


class Bench(Unit):
    """`Core` beside one `DramModel` port each for fetch, load and store.

    The bytes of DRAM lie outside, behind three synchronous memory ports: a read port gives
    `address` in one cycle and takes `data` in the next; a write takes effect at the end of its
    cycle. Nothing is ever reset: a run begins with what registers hold when they are made.

    Attributes
    ----------
    clk
        The clock.
    fetch_*, load_*, store_*
        Memory ports.
    start, address, count, done, cycle, dispatched, started, finished, active
        Those of `Core`.
    load_*_count, gemm_*_count, vector_*_count, store_*_count
        Those of `EngineCounters`.
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self.config = config
        engines = len(Engine)
        members: dict[str, Any] = {
            "clk": In(1),
            "start": In(1),
            "address": In(ADDRESS_BITS),
            "count": In(COUNT_BITS),
            "done": Out(1),
            "cycle": Out(CYCLE_BITS),
            "dispatched": Out(engines),
            "started": Out(engines),
            "finished": Out(engines),
            "active": Out(engines),
            "store_enable": Out(config.port_bytes),
            "store_address": Out(ADDRESS_BITS),
            "store_data": Out(config.port_bits),
            **{
                count_name(engine, name): Out(REGISTER_BITS) for engine in Engine for name in COUNTS
            },
        }
        for port in ("fetch", "load"):
            members[f"{port}_enable"] = Out(1)
            members[f"{port}_address"] = Out(ADDRESS_BITS)
            members[f"{port}_data"] = In(config.port_bits)
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        config = self.config
        m.domains.sync = ClockDomain(reset_less=True)
        m.d.comb += ClockSignal().eq(self.clk)
        m.submodules.core = core = Core(config)
        m.submodules.fetch_port = fetch = DramReadPort(config, bursts=config.fetch_entries)
        m.submodules.load_port = load = DramReadPort(config, bursts=config.load_bursts)
        m.submodules.store_port = store = DramWritePort(config)
        wiring.connect(m, core.fetch, fetch.port)
        wiring.connect(m, core.load, load.port)
        wiring.connect(m, core.store, store.port)
        for name, port in (("fetch", fetch), ("load", load)):
            m.d.comb += [
                getattr(self, f"{name}_enable").eq(port.enable),
                getattr(self, f"{name}_address").eq(port.address),
                port.data.eq(getattr(self, f"{name}_data")),
            ]
        m.d.comb += [
            self.store_enable.eq(store.enable),
            self.store_address.eq(store.address),
            self.store_data.eq(store.data),
            core.start.eq(self.start),
            core.address.eq(self.address),
            core.count.eq(self.count),
            self.done.eq(core.done),
            self.cycle.eq(core.cycle),
            self.dispatched.eq(core.dispatched),
            self.started.eq(core.started),
            self.finished.eq(core.finished),
            self.active.eq(core.active),
        ]
        for engine in Engine:
            counters = EngineCounters()
            m.submodules[f"{engine.name.lower()}_counters"] = counters
            connect_counters(m, counters, core, engine)
            for name in COUNTS:
                m.d.comb += getattr(self, count_name(engine, name)).eq(getattr(counters, name))
        return m


def block_module(memory: Memory, number: int) -> str:
    """Name of the Verilog module that is a block memory of a scratchpad; its array is `storage`."""
    return f"{BENCH_NAME}.core.{block_name(memory, number)}"


def count_name(engine: Engine, count: str) -> str:
    """Name of the port that shows a counter of an engine."""
    return f"{engine.name.lower()}_{count}"
