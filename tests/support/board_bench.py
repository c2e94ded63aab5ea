"""The whole design of a board as a test bench: a host at its register port, memory at the others.

What stands in the place of PS7 or PS8 has the timing that the configuration's `DramModel` states,
seen from the accelerator: the registers between accelerator and memory are part of its latencies.
"""

from typing import Any

from amaranth.back import verilog
from amaranth.hdl import ClockSignal, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from tilewright.boards.axi_lite import SPACE_BITS
from tilewright.boards.parts import Family
from tilewright.boards.zynq import BoardTop
from tilewright.hw.dram import DramReadPort, DramWritePort
from tilewright.hw.queue import Queue
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import ADDRESS_BITS
from tilewright.isa.registers import REGISTER_BITS, REGISTER_BYTES

BENCH_NAME = "tilewright_board_bench"
#: Registers that an access passes twice: an address or a beat on its way there, an answer back.
_STAGE_CYCLES = 2
#: Where accesses beyond the memory go: a page that none has.
_NOWHERE = (1 << ADDRESS_BITS) - 4096
#: AXI response DECERR.
_REFUSED = 3


class BoardBench(BoardTop):
    """The design without its processor.

    Attributes
    ----------
    host_valid, host_write, host_address, host_data
        An access to a register, held until it is done.
    host_done, host_answer
        The access has ended, with what was read.
    interrupt_raised
        The first interrupt input of the processor.
    fetch_*, load_*, store_*
        Memory as the bench of the core has it; addresses count from the first byte of memory, and
        none lies beyond its last.
    """

    def __init__(
        self,
        config: AcceleratorConfig,
        family: Family,
        *,
        control_address: int,
        memory_address: int,
        memory_bytes: int,
    ) -> None:
        self._control_address = control_address
        self._memory_address = memory_address
        self._memory_bytes = memory_bytes
        super().__init__(config, family)
        latencies = {
            f"dram.{name}": getattr(config.dram, name) - _STAGE_CYCLES
            for name in ("read_latency_cycles", "write_latency_cycles")
        }
        self._memory_config = config.replace(**latencies)

    def members(self) -> dict[str, Any]:
        config = self._config
        members: dict[str, Any] = {
            "host_valid": In(1),
            "host_write": In(1),
            "host_address": In(SPACE_BITS),
            "host_data": In(REGISTER_BITS),
            "host_done": Out(1),
            "host_answer": Out(REGISTER_BITS),
            "interrupt_raised": Out(1),
            "store_enable": Out(config.port_bytes),
            "store_address": Out(ADDRESS_BITS),
            "store_data": Out(config.port_bits),
        }
        for port in ("fetch", "load"):
            members[f"{port}_enable"] = Out(1)
            members[f"{port}_address"] = Out(ADDRESS_BITS)
            members[f"{port}_data"] = In(config.port_bits)
        return members

    def make_clock(self, m: Module, source: Value) -> dict[str, Any]:
        return {}

    def place_processor(self, m: Module, connections: dict[str, Any]) -> None:
        pins: dict[str, Signal] = {}
        for key, value in connections.items():
            direction, name = key.split("_", 1)
            if isinstance(value, ClockSignal):
                continue
            pins[name] = pin = Signal(len(Value.cast(value)), name=name)
            m.d.comb += pin.eq(value) if direction == "i" else value.eq(pin)
        first, second = self._block.memory_ports
        bursts = self._config.load_bursts, self._config.fetch_entries
        self._place_reads(m, pins, first, "load", bursts[0])
        self._place_reads(m, pins, second, "fetch", bursts[1])
        self._place_writes(m, pins, first)
        self._place_host(m, pins)
        m.d.comb += self.interrupt_raised.eq(pins[self._block.interrupt][0])

    def _offset(self, address: Value) -> Value:
        """Address within the memory, or nowhere."""
        end = self._memory_address + self._memory_bytes
        inside = (address >= self._memory_address) & (address < end)
        return Mux(inside, (address - self._memory_address)[:ADDRESS_BITS], _NOWHERE)

    def _place_reads(
        self, m: Module, pins: dict[str, Signal], port: str, name: str, bursts: int
    ) -> None:
        memory: Any = DramReadPort(self._memory_config, bursts=bursts)
        m.submodules[f"{name}_memory"] = memory
        outside = Signal(name=f"{name}_outside")
        m.d.sync += outside.eq(memory.address >= self._memory_bytes)
        m.d.comb += [
            memory.port.ar.valid.eq(pins[f"{port}ARVALID"]),
            pins[f"{port}ARREADY"].eq(memory.port.ar.ready),
            memory.port.ar.payload.address.eq(self._offset(pins[f"{port}ARADDR"])),
            memory.port.ar.payload.length.eq(pins[f"{port}ARLEN"]),
            pins[f"{port}RVALID"].eq(memory.port.r.valid),
            pins[f"{port}RDATA"].eq(memory.port.r.payload.data),
            pins[f"{port}RLAST"].eq(memory.port.r.payload.last),
            pins[f"{port}RRESP"].eq(Mux(outside, _REFUSED, 0)),
            getattr(self, f"{name}_enable").eq(
                memory.enable & (memory.address < self._memory_bytes)
            ),
            getattr(self, f"{name}_address").eq(memory.address),
            memory.data.eq(Mux(outside, 0, getattr(self, f"{name}_data"))),
        ]

    def _place_writes(self, m: Module, pins: dict[str, Signal], port: str) -> None:
        """Beats wait in a queue for their address, as in the processor's own."""
        config = self._config
        m.submodules.store_memory = memory = DramWritePort(self._memory_config)
        beat = data.StructLayout({"data": config.port_bits, "strobe": config.port_bytes, "last": 1})
        m.submodules.beats = beats = Queue(beat, 2)
        m.submodules.refusals = refusals = Queue(1, config.store_bursts + 1)
        inside = memory.address < self._memory_bytes
        m.d.comb += [
            memory.port.aw.valid.eq(pins[f"{port}AWVALID"]),
            pins[f"{port}AWREADY"].eq(memory.port.aw.ready),
            memory.port.aw.payload.address.eq(self._offset(pins[f"{port}AWADDR"])),
            memory.port.aw.payload.length.eq(pins[f"{port}AWLEN"]),
            beats.write.valid.eq(pins[f"{port}WVALID"]),
            pins[f"{port}WREADY"].eq(beats.write.ready),
            beats.write.payload.data.eq(pins[f"{port}WDATA"]),
            beats.write.payload.strobe.eq(pins[f"{port}WSTRB"]),
            beats.write.payload.last.eq(pins[f"{port}WLAST"]),
            memory.port.w.valid.eq(beats.read.valid),
            beats.read.ready.eq(memory.port.w.ready),
            memory.port.w.payload.data.eq(beats.read.payload.data),
            memory.port.w.payload.strobe.eq(beats.read.payload.strobe),
            memory.port.w.payload.last.eq(beats.read.payload.last),
            refusals.write.valid.eq(beats.read.valid & beats.read.ready & beats.read.payload.last),
            refusals.write.payload.eq(~inside),
            refusals.read.ready.eq(memory.port.b.valid),
            pins[f"{port}BVALID"].eq(memory.port.b.valid),
            pins[f"{port}BRESP"].eq(Mux(refusals.read.payload, _REFUSED, 0)),
            self.store_enable.eq(Mux(inside, memory.enable, 0)),
            self.store_address.eq(memory.address),
            self.store_data.eq(memory.data),
        ]

    def _place_host(self, m: Module, pins: dict[str, Signal]) -> None:
        """One access at a time, address and data together, a single beat each."""
        lanes = len(pins["MAXIGP0WDATA"]) // REGISTER_BITS
        lane = (self.host_address // REGISTER_BYTES) % lanes
        address_taken, data_taken = Signal(), Signal()
        pin = {name.removeprefix("MAXIGP0"): pins[name] for name in pins if "GP0" in name}
        m.d.comb += [
            pin["AWADDR"].eq(self._control_address + self.host_address),
            pin["ARADDR"].eq(self._control_address + self.host_address),
            pin["WDATA"].eq(self.host_data << (lane * REGISTER_BITS)),
            pin["WSTRB"].eq(Const(0b1111, 4) << (lane * REGISTER_BYTES)),
            pin["WLAST"].eq(1),
            pin["BREADY"].eq(1),
            pin["RREADY"].eq(1),
            self.host_answer.eq(pin["RDATA"] >> (lane * REGISTER_BITS)),
            self.host_done.eq(Mux(self.host_write, pin["BVALID"], pin["RVALID"])),
        ]
        writes, reads = self.host_valid & self.host_write, self.host_valid & ~self.host_write
        m.d.comb += [
            pin["AWVALID"].eq(writes & ~address_taken),
            pin["WVALID"].eq(writes & ~data_taken),
            pin["ARVALID"].eq(reads & ~address_taken),
        ]
        address_goes = (pin["AWVALID"] & pin["AWREADY"]) | (pin["ARVALID"] & pin["ARREADY"])
        with m.If(self.host_done):
            m.d.sync += [address_taken.eq(0), data_taken.eq(0)]
        with m.Else():
            m.d.sync += [
                address_taken.eq(address_taken | address_goes),
                data_taken.eq(data_taken | (pin["WVALID"] & pin["WREADY"])),
            ]


def bench_verilog(bench: BoardBench) -> str:
    """Write the bench; ports are those of `BoardBench`, and clk and rst."""
    text: str = verilog.convert(bench, name=BENCH_NAME, strip_internal_attrs=True)
    return text
