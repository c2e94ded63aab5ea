"""The accelerator with a memory of block RAM, reached over a stream of bytes."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.boards.axi_lite import WordPort
from tilewright.boards.serial_bridge import SerialBridge
from tilewright.hw.accelerator import Accelerator
from tilewright.hw.component import Unit
from tilewright.hw.dram import DramReadPort, DramWritePort
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.registers import REGISTER_BITS, REGISTER_BYTES


class ChipMemory(Unit):
    """Block RAM with the timing of the configuration's memory model.

    There are two copies, as fetch and load each need a read port. The host uses the store's write
    port and the fetch's read port, and must not while a program runs.

    Attributes
    ----------
    accelerator
        Signals of the accelerator's ports are connected by `connect`.
    address, write, word, read
        The host's access, as `SerialBridge` has it.
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self.config = config
        self.fetch: Any = DramReadPort(config, bursts=config.fetch_entries)
        self.load: Any = DramReadPort(config, bursts=config.load_bursts)
        self.store: Any = DramWritePort(config)
        super().__init__(
            {
                "address": In(32),
                "write": In(1),
                "word": In(REGISTER_BITS),
                "read": Out(REGISTER_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        config = self.config
        m.submodules.fetch, m.submodules.load = self.fetch, self.load
        m.submodules.store = self.store
        shift = config.port_bytes.bit_length() - 1
        words = config.port_bits // REGISTER_BITS
        lane = Signal(range(words))
        lane_before = Signal(range(words))
        m.d.comb += lane.eq(self.address >> REGISTER_BYTES.bit_length() - 1)
        m.d.sync += lane_before.eq(lane)
        for name, port in (("fetch", self.fetch), ("load", self.load)):
            copy: Any = memory.Memory(
                shape=unsigned(config.port_bits),
                depth=config.dram.size_bytes // config.port_bytes,
                init=[],
            )
            m.submodules[f"{name}_copy"] = copy
            writer, reader = copy.write_port(granularity=8), copy.read_port()
            host_strobe = (2**REGISTER_BYTES - 1) << lane * REGISTER_BYTES
            m.d.comb += [
                writer.addr.eq(Mux(self.write, self.address, self.store.address) >> shift),
                writer.data.eq(Mux(self.write, self.word.replicate(words), self.store.data)),
                writer.en.eq(Mux(self.write, host_strobe, self.store.enable)),
                reader.addr.eq(port.address >> shift),
                reader.en.eq(1),
                port.data.eq(reader.data),
            ]
            if port is self.fetch:
                with m.If(~port.enable):
                    m.d.comb += reader.addr.eq(self.address >> shift)
                m.d.comb += self.read.eq(reader.data.word_select(lane_before, REGISTER_BITS))
        return m


class SerialAccelerator(Unit):
    """The accelerator, its memory and the bridge to a host.

    Attributes
    ----------
    received, sent
        Bytes from and to the host.
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self._config = config
        super().__init__(
            {
                "received": In(stream.Signature(unsigned(8))),
                "sent": Out(stream.Signature(unsigned(8))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        m.submodules.accelerator = accelerator = Accelerator(self._config)
        m.submodules.memory = chip = ChipMemory(self._config)
        m.submodules.bridge = bridge = SerialBridge()
        wiring.connect(m, wiring.flipped(self.received), bridge.received)
        wiring.connect(m, bridge.sent, wiring.flipped(self.sent))
        m.d.comb += [
            chip.address.eq(bridge.memory_address),
            chip.write.eq(bridge.memory_write),
            chip.word.eq(bridge.memory_word),
            bridge.memory_read.eq(chip.read),
        ]
        connect_words(m, bridge.registers, accelerator)
        connect_read(m, accelerator, "m_axi_fetch_", chip.fetch.port)
        connect_read(m, accelerator, "m_axi_load_", chip.load.port)
        connect_write(m, accelerator, "m_axi_store_", chip.store.port)
        return m


def connect_words(m: Module, words: WordPort, accelerator: Any) -> None:
    """Connect a port of words to the accelerator's registers alone."""
    port: Any = words
    prefix = "s_axi_control_"
    m.d.comb += [
        accelerator.s_axi_control_awaddr.eq(port.aw.payload),
        accelerator.s_axi_control_araddr.eq(port.ar.payload),
        accelerator.s_axi_control_wdata.eq(port.w.payload),
        accelerator.s_axi_control_wstrb.eq(~0),
        port.r.payload.eq(accelerator.s_axi_control_rdata),
    ]
    for channel in ("aw", "w", "ar"):
        m.d.comb += [
            getattr(accelerator, f"{prefix}{channel}valid").eq(getattr(port, channel).valid),
            getattr(port, channel).ready.eq(getattr(accelerator, f"{prefix}{channel}ready")),
        ]
    for channel in ("b", "r"):
        m.d.comb += [
            getattr(port, channel).valid.eq(getattr(accelerator, f"{prefix}{channel}valid")),
            getattr(accelerator, f"{prefix}{channel}ready").eq(getattr(port, channel).ready),
        ]


def _connect_address(m: Module, accelerator: Any, prefix: str, channel: Any) -> None:
    m.d.comb += [
        channel.valid.eq(getattr(accelerator, f"{prefix}valid")),
        channel.payload.address.eq(getattr(accelerator, f"{prefix}addr")),
        channel.payload.length.eq(getattr(accelerator, f"{prefix}len")),
        getattr(accelerator, f"{prefix}ready").eq(channel.ready),
    ]


def connect_read(m: Module, accelerator: Any, prefix: str, port: Any) -> None:
    """Connect a read port of the accelerator to a `ReadPort` of a memory."""
    _connect_address(m, accelerator, f"{prefix}ar", port.ar)
    m.d.comb += [
        getattr(accelerator, f"{prefix}rvalid").eq(port.r.valid),
        getattr(accelerator, f"{prefix}rdata").eq(port.r.payload.data),
        getattr(accelerator, f"{prefix}rlast").eq(port.r.payload.last),
    ]


def connect_write(m: Module, accelerator: Any, prefix: str, port: Any) -> None:
    """Connect the write port of the accelerator to a `WritePort` of a memory."""
    _connect_address(m, accelerator, f"{prefix}aw", port.aw)
    m.d.comb += [
        port.w.valid.eq(getattr(accelerator, f"{prefix}wvalid")),
        port.w.payload.data.eq(getattr(accelerator, f"{prefix}wdata")),
        port.w.payload.strobe.eq(getattr(accelerator, f"{prefix}wstrb")),
        port.w.payload.last.eq(getattr(accelerator, f"{prefix}wlast")),
        getattr(accelerator, f"{prefix}wready").eq(port.w.ready),
        getattr(accelerator, f"{prefix}bvalid").eq(port.b.valid),
    ]
