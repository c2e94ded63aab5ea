"""The accelerator beside the processors PS7 and PS8: clock, reset, ports and interrupt."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from amaranth.back import verilog
from amaranth.hdl import (
    ClockDomain,
    ClockSignal,
    Const,
    Instance,
    Module,
    Mux,
    ResetSignal,
    Signal,
)

from tilewright.boards.axi_lite import ManagerPort, WordBridge
from tilewright.boards.board import MEMORY_PORTS
from tilewright.boards.memory_ports import AddressStage, PortRegisters
from tilewright.boards.parts import Family
from tilewright.hw.accelerator import Accelerator
from tilewright.hw.component import Unit
from tilewright.isa.config import AcceleratorConfig

#: Names of the module, and of the processor in it.
TOP_NAME = "tilewright_top"
PROCESSOR_NAME = "processor"
#: Cycles of reset after configuration.
_RESET_CYCLES = 255
#: AxCACHE "normal, non-cacheable, bufferable" (IHI 0022, A4.4).
_CACHE = 0b0011


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorBlock:
    """How the block of a family names its ports, from yosys's and the vendor's cell library."""

    #: Type of the cell.
    cell: str
    #: Ports into the memory: load and store on the first, fetch on the second.
    memory_ports: tuple[str, str]
    #: Clock inputs of a memory port.
    memory_clocks: tuple[str, ...]
    memory_bits: int
    memory_address_bits: int
    memory_id_bits: int
    memory_length_bits: int
    #: Widths of AxSIZE and AxLOCK.
    size_bits: int
    lock_bits: int
    #: Inputs of a memory port that carry nothing here, with their widths.
    idle_inputs: Mapping[str, int]
    #: The port to the registers, always MAXIGP0.
    manager: ManagerPort
    #: Output that is the clock, and the buffer that takes it to the clock net.
    clock: str
    clock_buffer: str
    #: Output that is low while the processor asks for a reset, where there is one.
    reset: str | None
    #: Input for interrupts, and its width.
    interrupt: str
    interrupt_bits: int


BLOCKS: Mapping[Family, ProcessorBlock] = MappingProxyType(
    {
        Family.ZYNQ_7000: ProcessorBlock(
            cell="PS7",
            memory_ports=("SAXIHP0", "SAXIHP1"),
            memory_clocks=("ACLK",),
            memory_bits=64,
            memory_address_bits=32,
            memory_id_bits=6,
            memory_length_bits=4,
            size_bits=2,
            lock_bits=2,
            idle_inputs=MappingProxyType({"WID": 6, "RDISSUECAP1EN": 1, "WRISSUECAP1EN": 1}),
            manager=ManagerPort(address_bits=32, data_bits=32, id_bits=12, length_bits=4),
            clock="FCLKCLK",
            clock_buffer="BUFG",
            reset="FCLKRESETN",
            interrupt="IRQF2P",
            interrupt_bits=20,
        ),
        Family.ZYNQ_MP: ProcessorBlock(
            cell="PS8",
            memory_ports=("SAXIGP2", "SAXIGP3"),
            memory_clocks=("RCLK", "WCLK"),
            memory_bits=128,
            memory_address_bits=49,
            memory_id_bits=6,
            memory_length_bits=8,
            size_bits=3,
            lock_bits=1,
            idle_inputs=MappingProxyType({"ARUSER": 1, "AWUSER": 1}),
            manager=ManagerPort(address_bits=40, data_bits=128, id_bits=16, length_bits=8),
            clock="PLCLK",
            clock_buffer="BUFG_PS",
            reset=None,
            interrupt="PLPSIRQ0",
            interrupt_bits=8,
        ),
    }
)

assert BLOCKS.keys() == MEMORY_PORTS.keys(), "every family with a processor is described"


class BoardTop(Unit):
    """The accelerator beside a processor; it has no ports, as everything is on the processor.

    Load and store share the first memory port, which has separate channels for reads and writes;
    fetch has the second.
    """

    def __init__(self, config: AcceleratorConfig, family: Family) -> None:
        self._config = config
        self._block = BLOCKS[family]
        super().__init__(self.members())

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        block = self._block
        first, second = block.memory_ports
        m.submodules.accelerator = accelerator = Accelerator(self._config)
        m.submodules.port_registers = registers = PortRegisters(sources=3)
        clocks = Signal(4)
        cell = {
            f"o_{block.clock}": clocks,
            **self.make_clock(m, clocks[0]),
            **self._read_channels(m, first, accelerator, "load", registers, 0),
            **self._write_channels(m, first, accelerator, registers, 1),
            **self._read_channels(m, second, accelerator, "fetch", registers, 2),
            **self._idle_write_channels(second),
            **self._control(m, accelerator, registers),
            f"i_{block.interrupt}": accelerator.interrupt | Const(0, block.interrupt_bits),
        }
        for port in (first, second):
            cell |= {f"i_{port}{clock}": ClockSignal() for clock in block.memory_clocks}
            cell |= {f"i_{port}{name}": Const(0, bits) for name, bits in block.idle_inputs.items()}
        self.place_processor(m, cell)
        return m

    def members(self) -> dict[str, Any]:
        """Ports of the design: none, where the processor is there."""
        return {}

    def place_processor(self, m: Module, connections: dict[str, Any]) -> None:
        """Make the processor; a simulation puts something else in its place."""
        m.submodules[PROCESSOR_NAME] = Instance(self._block.cell, **connections)

    def make_clock(self, m: Module, source: Any) -> dict[str, Any]:
        """Make the clock domain: in reset after configuration and while the processor asks."""
        block = self._block
        m.domains.sync = ClockDomain("sync")
        m.domains.start = ClockDomain("start", reset_less=True)
        # A register that is set at once and cleared with the clock: a reset synchroniser.
        m.domains.held = ClockDomain("held", async_reset=True)
        held_first, held_second = Signal(init=1), Signal(init=1)
        waited = Signal(range(_RESET_CYCLES + 1))
        resets = Signal(4, init=0b1111)
        m.submodules.clock_buffer = Instance(block.clock_buffer, i_I=source, o_O=ClockSignal())
        m.d.comb += [
            ClockSignal("start").eq(ClockSignal()),
            ClockSignal("held").eq(ClockSignal()),
            ResetSignal("held").eq(~resets[0]),
        ]
        m.d.held += [held_first.eq(0), held_second.eq(held_first)]
        with m.If(waited != _RESET_CYCLES):
            m.d.start += waited.eq(waited + 1)
        m.d.start += ResetSignal().eq((waited != _RESET_CYCLES) | held_second)
        return {f"o_{block.reset}": resets} if block.reset else {}

    def _address_channel(
        self, m: Module, port: str, channel: str, accelerator: Any, prefix: str, base: Any
    ) -> dict[str, Any]:
        """Connect an address channel of the accelerator through an `AddressStage`."""
        block = self._block
        stage = AddressStage(block.memory_address_bits)
        m.submodules[f"{prefix}_addresses"] = stage
        m.d.comb += [
            stage.base.eq(base),
            stage.valid.eq(getattr(accelerator, f"{prefix}valid")),
            getattr(accelerator, f"{prefix}ready").eq(stage.ready),
            stage.address.eq(getattr(accelerator, f"{prefix}addr")),
            stage.length.eq(getattr(accelerator, f"{prefix}len")),
        ]
        inputs = {
            "ADDR": stage.physical_address,
            "LEN": stage.physical_length[: block.memory_length_bits],
            "SIZE": getattr(accelerator, f"{prefix}size")[: block.size_bits],
            "BURST": getattr(accelerator, f"{prefix}burst"),
            "CACHE": Const(_CACHE, 4),
            "LOCK": Const(0, block.lock_bits),
            "PROT": Const(0, 3),
            "QOS": Const(0, 4),
            "ID": Const(0, block.memory_id_bits),
            "VALID": stage.physical_valid,
        }
        return {
            **{f"i_{port}{channel}{name}": value for name, value in inputs.items()},
            f"o_{port}{channel}READY": stage.physical_ready,
        }

    def _read_channels(
        self, m: Module, port: str, accelerator: Any, name: str, registers: Any, source: int
    ) -> dict[str, Any]:
        """Connect a read port; data passes a register on its way."""
        prefix = f"m_axi_{name}_"
        valid, last = Signal(name=f"{name}_valid"), Signal(name=f"{name}_last")
        response = Signal(2, name=f"{name}_response")
        words = Signal(self._block.memory_bits, name=f"{name}_data")
        m.d.sync += [
            getattr(accelerator, f"{prefix}rvalid").eq(valid),
            getattr(accelerator, f"{prefix}rlast").eq(last),
            getattr(accelerator, f"{prefix}rdata").eq(words),
            getattr(accelerator, f"{prefix}rresp").eq(response),
        ]
        m.d.comb += registers.refused[source].eq(valid & response[1])
        return {
            **self._address_channel(m, port, "AR", accelerator, f"{prefix}ar", registers.base),
            f"o_{port}RDATA": words,
            f"o_{port}RLAST": last,
            f"o_{port}RRESP": response,
            f"o_{port}RVALID": valid,
            f"i_{port}RREADY": Const(1),
        }

    def _write_channels(
        self, m: Module, port: str, accelerator: Any, registers: Any, source: int
    ) -> dict[str, Any]:
        """Connect the write port; a response passes a register on its way."""
        prefix = "m_axi_store_"
        valid, response = Signal(name="store_answered"), Signal(2, name="store_response")
        bits = self._block.memory_bits
        m.d.sync += [
            accelerator.m_axi_store_bvalid.eq(valid),
            accelerator.m_axi_store_bresp.eq(response),
        ]
        m.d.comb += registers.refused[source].eq(valid & response[1])
        return {
            **self._address_channel(m, port, "AW", accelerator, f"{prefix}aw", registers.base),
            f"i_{port}WDATA": accelerator.m_axi_store_wdata | Const(0, bits),
            f"i_{port}WSTRB": accelerator.m_axi_store_wstrb | Const(0, bits // 8),
            f"i_{port}WLAST": accelerator.m_axi_store_wlast,
            f"i_{port}WVALID": accelerator.m_axi_store_wvalid,
            f"o_{port}WREADY": accelerator.m_axi_store_wready,
            f"o_{port}BRESP": response,
            f"o_{port}BVALID": valid,
            f"i_{port}BREADY": Const(1),
        }

    def _idle_write_channels(self, port: str) -> dict[str, Any]:
        return {
            f"i_{port}AWVALID": Const(0),
            f"i_{port}WVALID": Const(0),
            f"i_{port}BREADY": Const(0),
        }

    def _control(self, m: Module, accelerator: Any, registers: Any) -> dict[str, Any]:
        """Connect the processor's port to both pages of registers."""
        m.submodules.bridge = bridge = WordBridge(self._block.manager)
        words, other = bridge.words, registers.words
        prefix = "s_axi_control_"
        m.d.comb += [
            other.aw.payload.eq(words.aw.payload),
            other.w.payload.eq(words.w.payload),
            other.ar.payload.eq(words.ar.payload),
            accelerator.s_axi_control_awaddr.eq(words.aw.payload),
            accelerator.s_axi_control_wdata.eq(words.w.payload),
            accelerator.s_axi_control_wstrb.eq(~0),
            accelerator.s_axi_control_araddr.eq(words.ar.payload),
            words.r.payload.eq(
                Mux(words.ar.payload[-1], other.r.payload, accelerator.s_axi_control_rdata)
            ),
        ]
        for channel, ours in (
            ("aw", words.aw.payload[-1]),
            ("w", words.aw.payload[-1]),
            ("ar", words.ar.payload[-1]),
        ):
            sender, receiver = getattr(words, channel), getattr(other, channel)
            ready = getattr(accelerator, f"{prefix}{channel}ready")
            m.d.comb += [
                receiver.valid.eq(sender.valid & ours),
                getattr(accelerator, f"{prefix}{channel}valid").eq(sender.valid & ~ours),
                sender.ready.eq(Mux(ours, receiver.ready, ready)),
            ]
        for channel in ("b", "r"):
            receiver, sender = getattr(words, channel), getattr(other, channel)
            m.d.comb += [
                receiver.valid.eq(sender.valid | getattr(accelerator, f"{prefix}{channel}valid")),
                sender.ready.eq(receiver.ready),
                getattr(accelerator, f"{prefix}{channel}ready").eq(receiver.ready),
            ]
        return self._manager(bridge.full)

    def _manager(self, full: Any) -> dict[str, Any]:
        """Ports of the processor's port to the registers."""
        connections: dict[str, Any] = {"i_MAXIGP0ACLK": ClockSignal()}
        for channel, names in _FROM_PROCESSOR.items():
            port = getattr(full, channel)
            for name, field in names.items():
                key = f"MAXIGP0{channel.upper()}{name}"
                connections[f"o_{key}"] = getattr(port.payload, field)
            connections[f"o_MAXIGP0{channel.upper()}VALID"] = port.valid
            connections[f"i_MAXIGP0{channel.upper()}READY"] = port.ready
        for channel, names in _TO_PROCESSOR.items():
            port = getattr(full, channel)
            for name, field in names.items():
                key = f"MAXIGP0{channel.upper()}{name}"
                connections[f"i_{key}"] = getattr(port.payload, field)
            connections[f"i_MAXIGP0{channel.upper()}RESP"] = Const(0, 2)
            connections[f"i_MAXIGP0{channel.upper()}VALID"] = port.valid
            connections[f"o_MAXIGP0{channel.upper()}READY"] = port.ready
        return connections


def board_verilog(config: AcceleratorConfig, family: Family) -> str:
    """Write the design of a board with a processor as one file."""
    top = BoardTop(config, family)
    text: str = verilog.convert(top, name=TOP_NAME, ports=[], strip_internal_attrs=True)
    return text


#: Channels of the port to the registers: fields of the payload by the name of the signal.
_FROM_PROCESSOR = {
    "aw": {"ADDR": "address", "ID": "id", "LEN": "length"},
    "w": {"DATA": "data", "STRB": "strobe", "LAST": "last"},
    "ar": {"ADDR": "address", "ID": "id", "LEN": "length"},
}
_TO_PROCESSOR = {"b": {"ID": "id"}, "r": {"DATA": "data", "ID": "id", "LAST": "last"}}
