"""The accelerator with a memory of block RAM, reached over a stream of bytes."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.boards.axi_lite import WordPort
from tilewright.boards.serial_bridge import SerialBridge
from tilewright.hw.accelerator import Accelerator
from tilewright.hw.axi import ReadPort, WritePort
from tilewright.hw.component import Unit
from tilewright.hw.dram import DramReadPort, DramWritePort
from tilewright.hw.pipeline import delayed
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.registers import REGISTER_BITS, REGISTER_BYTES

#: Registers before and behind the block RAM, which lies all over the part.
_MOST_REGISTERS = 2
#: The latency of a read without them.
_LEAST_LATENCY = 2


class ChipMemory(Unit):
    """Block RAM with the timing of the configuration's memory model.

    There are two copies, as fetch and load each need a read port. The host uses the store's write
    port and the fetch's read port, and must not while a program runs. Of the latency of a read,
    cycles above the least one are spent on registers; the clock is the faster for them.

    Attributes
    ----------
    fetch, load, store
        The accelerator's ports.
    address, write, word, read
        The host's access, as `SerialBridge` has it.
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self._config = config
        self._registers = min(_MOST_REGISTERS, config.dram.read_latency_cycles - _LEAST_LATENCY)
        super().__init__(
            {
                "fetch": In(ReadPort(config.port_bits)),
                "load": In(ReadPort(config.port_bits)),
                "store": In(WritePort(config.port_bits)),
                "address": In(32),
                "write": In(1),
                "word": In(REGISTER_BITS),
                "read": Out(REGISTER_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        config = self._config
        store: Any = DramWritePort(config)
        m.submodules.store_port = store
        wiring.connect(m, wiring.flipped(self.store), store.port)
        words = config.port_bits // REGISTER_BITS
        lane = Signal(range(words))
        strobe = (2**REGISTER_BYTES - 1) << lane * REGISTER_BYTES
        # A write may be late: its response is later still.
        written = {
            "address": Mux(self.write, self.address, store.address),
            "data": Mux(self.write, self.word.replicate(words), store.data),
            "enable": Mux(self.write, strobe, store.enable),
        }
        late = {name: delayed(m, value, 1, name=f"late_{name}") for name, value in written.items()}
        m.d.comb += lane.eq(self.address >> REGISTER_BYTES.bit_length() - 1)
        for name, bursts in (("fetch", config.fetch_entries), ("load", config.load_bursts)):
            copy: Any = memory.Memory(
                shape=unsigned(config.port_bits),
                depth=config.dram.size_bytes // config.port_bytes,
                init=[],
            )
            m.submodules[f"{name}_copy"] = copy
            writer, reader = copy.write_port(granularity=8), copy.read_port()
            data = self._serve(m, name, bursts, reader)
            shift = config.port_bytes.bit_length() - 1
            m.d.comb += [
                writer.addr.eq(late["address"] >> shift),
                writer.data.eq(late["data"]),
                writer.en.eq(late["enable"]),
            ]
            if name == "fetch":
                m.d.comb += self.read.eq(data.word_select(lane, REGISTER_BITS))
        return m

    def _serve(self, m: Module, name: str, bursts: int, reader: Any) -> Value:
        """Answer a port from a copy; returns what was read, which the host sees as well."""
        latency = self._config.dram.read_latency_cycles - self._registers
        inner = self._config.replace(**{"dram.read_latency_cycles": latency})
        model: Any = DramReadPort(inner, bursts=bursts)
        m.submodules[f"{name}_port"] = model
        port = getattr(self, name)
        before, behind = min(1, self._registers), self._registers // 2
        address = Mux(model.enable, model.address, self.address)
        data: Value = delayed(m, reader.data, behind, name=f"{name}_data", is_data=True)
        flags = Cat(model.port.r.valid, model.port.r.payload.last)
        shift = self._config.port_bytes.bit_length() - 1
        m.d.comb += [
            model.port.ar.valid.eq(port.ar.valid),
            model.port.ar.payload.eq(port.ar.payload),
            port.ar.ready.eq(model.port.ar.ready),
            reader.en.eq(1),
            reader.addr.eq(delayed(m, address, before, name=f"{name}_address") >> shift),
            Cat(port.r.valid, port.r.payload.last).eq(
                delayed(m, flags, self._registers, name=f"{name}_flags")
            ),
            port.r.payload.data.eq(data),
        ]
        return data


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
        connect_read(m, accelerator, "m_axi_fetch_", chip.fetch)
        connect_read(m, accelerator, "m_axi_load_", chip.load)
        connect_write(m, accelerator, "m_axi_store_", chip.store)
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
