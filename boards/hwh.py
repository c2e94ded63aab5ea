"""The hardware description (`.hwh`) from which PYNQ takes addresses, registers and clocks.

A block design of Vivado has one; this design has no block design, so the file is made here, with
the elements that PYNQ's parsers read (pynq 2.7 to 4.0 `pl_server/hwh_parser.py`, pynqmetadata 0.2
`frontends/hwh_frontend.py`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from tilewright.boards.board import Board, PlClock
from tilewright.boards.parts import Family
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.memories import Engine
from tilewright.isa.port_registers import (
    PORT_REGISTERS_OFFSET,
    REGISTER_SPACE_BYTES,
    PortRegister,
)
from tilewright.isa.registers import (
    REGISTER_BITS,
    EngineRegister,
    Register,
    engine_base,
)

#: Instance of the accelerator, its name in PYNQ's `ip_dict`.
INSTANCE = "accelerator"
_PORT = "s_axi_control"
#: Registers that the host writes.
_WRITABLE = frozenset(
    {
        "CONTROL",
        "CODE_ADDRESS",
        "INSTRUCTION_COUNT",
        "WATCHDOG_CYCLES",
        "INTERRUPT_ENABLE",
        *(f"PORT_{register.name}" for register in PortRegister),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Processor:
    """How a family's processor appears in a block design."""

    architecture: str
    module: str
    version: str
    port: str
    clock: str
    interrupt: str
    #: Parameters of a clock by its number: enable, divisors, source and frequency.
    clock_enable: str
    clock_divisors: tuple[str, str]
    clock_source: str
    clock_frequency: str
    #: Parameters that set the widths of the ports to registers and memory.
    register_width: str | None
    memory_widths: tuple[str, ...]


_PROCESSORS: Mapping[Family, _Processor] = MappingProxyType(
    {
        Family.ZYNQ_7000: _Processor(
            architecture="zynq",
            module="processing_system7",
            version="5.5",
            port="M_AXI_GP0",
            clock="FCLK_CLK0",
            interrupt="IRQ_F2P",
            clock_enable="PCW_FPGA_FCLK{}_ENABLE",
            clock_divisors=("PCW_FCLK{}_PERIPHERAL_DIVISOR0", "PCW_FCLK{}_PERIPHERAL_DIVISOR1"),
            clock_source="PCW_FCLK{}_PERIPHERAL_CLKSRC",
            clock_frequency="PCW_ACT_FPGA{}_PERIPHERAL_FREQMHZ",
            register_width=None,
            memory_widths=(),
        ),
        Family.ZYNQ_MP: _Processor(
            architecture="zynquplus",
            module="zynq_ultra_ps_e",
            version="3.4",
            port="M_AXI_HPM0_FPD",
            clock="pl_clk0",
            interrupt="pl_ps_irq0",
            clock_enable="PSU__FPGA_PL{}_ENABLE",
            clock_divisors=(
                "PSU__CRL_APB__PL{}_REF_CTRL__DIVISOR0",
                "PSU__CRL_APB__PL{}_REF_CTRL__DIVISOR1",
            ),
            clock_source="PSU__CRL_APB__PL{}_REF_CTRL__SRCSEL",
            clock_frequency="PSU__CRL_APB__PL{}_REF_CTRL__ACT_FREQMHZ",
            register_width="C_MAXIGP0_DATA_WIDTH",
            memory_widths=("C_SAXIGP2_DATA_WIDTH", "C_SAXIGP3_DATA_WIDTH"),
        ),
    }
)


def register_offsets() -> dict[str, int]:
    """Byte offset of every register by the name that the description gives it."""
    offsets = {register.name: int(register) for register in Register}
    for engine in Engine:
        for part in EngineRegister:
            offsets[f"{engine.name}_{part.name}"] = engine_base(engine) + part
    for port in PortRegister:
        offsets[f"PORT_{port.name}"] = PORT_REGISTERS_OFFSET + port
    return offsets


def hardware_description(config: AcceleratorConfig, board: Board) -> str:
    """Write the description of a board with a processor."""
    processor = _PROCESSORS[board.part.family]
    root = Element("EDKSYSTEM", EDWVERSION="1.2", VIVADOVERSION="")
    SubElement(
        root,
        "SYSTEMINFO",
        ARCH=processor.architecture,
        DEVICE=board.part.name,
        NAME="tilewright",
    )
    SubElement(root, "EXTERNALPORTS")
    SubElement(root, "EXTERNALINTERFACES")
    modules = SubElement(root, "MODULES")
    _add_processor(modules, processor, config, board)
    _add_accelerator(modules, processor)
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _add_processor(
    modules: Element, processor: _Processor, config: AcceleratorConfig, board: Board
) -> None:
    module = _module(
        modules, f"{processor.module}_0", processor.module, processor.version, "xilinx.com"
    )
    module.set("IS_PL", "FALSE")
    parameters = SubElement(module, "PARAMETERS")
    values = _clock_parameters(processor, board.clock(config.clock_mhz))
    if processor.register_width:
        values[processor.register_width] = REGISTER_BITS
    values |= dict.fromkeys(processor.memory_widths, config.port_bits)
    for name, value in values.items():
        SubElement(parameters, "PARAMETER", NAME=name, VALUE=str(value))
    ports = SubElement(module, "PORTS")
    _port(ports, processor.clock, "O", "clock", [(INSTANCE, "clk")], kind="clk")
    _port(ports, processor.interrupt, "I", "interrupt", [(INSTANCE, "interrupt")], kind="interrupt")
    _bus(module, ports, processor.port, "MASTER", "O", (INSTANCE, _PORT))
    memory_map = SubElement(module, "MEMORYMAP")
    SubElement(
        memory_map,
        "MEMRANGE",
        ADDRESSBLOCK="registers",
        BASENAME="C_BASEADDR",
        BASEVALUE=f"0x{board.control_address:08X}",
        HIGHNAME="C_HIGHADDR",
        HIGHVALUE=f"0x{board.control_address + REGISTER_SPACE_BYTES - 1:08X}",
        INSTANCE=INSTANCE,
        IS_DATA="TRUE",
        IS_INSTRUCTION="TRUE",
        MASTERBUSINTERFACE=processor.port,
        MEMTYPE="REGISTER",
        SLAVEBUSINTERFACE=_PORT,
    )


def _clock_parameters(processor: _Processor, clock: PlClock) -> dict[str, object]:
    """Parameters of all four clocks, which PYNQ asks for; only the first one is used."""
    values: dict[str, object] = {}
    for number in range(4):
        used = number == 0
        divisors = clock.divisors if used else (1, 1)
        values[processor.clock_enable.format(number)] = int(used)
        for name, divisor in zip(processor.clock_divisors, divisors, strict=True):
            values[name.format(number)] = divisor
        values[processor.clock_source.format(number)] = clock.pll.name.replace("_", " ")
        values[processor.clock_frequency.format(number)] = f"{clock.mhz:.6f}"
    return values


def _add_accelerator(modules: Element, processor: _Processor) -> None:
    module = _module(modules, INSTANCE, "tilewright_accelerator", "1.0", "tilewright")
    block = SubElement(
        SubElement(module, "ADDRESSBLOCKS"),
        "ADDRESSBLOCK",
        ACCESS="read-write",
        INTERFACE=_PORT,
        NAME="registers",
        RANGE=str(REGISTER_SPACE_BYTES),
        USAGE="register",
    )
    registers = SubElement(block, "REGISTERS")
    for name, offset in register_offsets().items():
        _register(registers, name, offset)
    SubElement(module, "PARAMETERS")
    ports = SubElement(module, "PORTS")
    owner = f"{processor.module}_0"
    _port(ports, "clk", "I", "clock", [(owner, processor.clock)], kind="clk")
    _port(ports, "interrupt", "O", "interrupt", [(owner, processor.interrupt)], kind="interrupt")
    _bus(module, ports, _PORT, "SLAVE", "I", (owner, processor.port))


def _module(modules: Element, name: str, kind: str, version: str, vendor: str) -> Element:
    return SubElement(
        modules,
        "MODULE",
        FULLNAME=f"/{name}",
        HWVERSION=version,
        INSTANCE=name,
        IPTYPE="PERIPHERAL",
        IS_ENABLE="1",
        MODCLASS="PERIPHERAL",
        MODTYPE=kind,
        VLNV=f"{vendor}:ip:{kind}:{version}",
    )


def _register(registers: Element, name: str, offset: int) -> None:
    register = SubElement(registers, "REGISTER", NAME=name)
    for key, value in (
        ("DESCRIPTION", name.replace("_", " ").lower()),
        ("ADDRESS_OFFSET", f"0x{offset:X}"),
        ("SIZE", str(REGISTER_BITS)),
        ("ACCESS", "read-write" if name in _WRITABLE else "read-only"),
        ("IS_ENABLED", "true"),
    ):
        SubElement(register, "PROPERTY", NAME=key, VALUE=value)


def _port(
    ports: Element,
    name: str,
    direction: str,
    net: str,
    connected: list[tuple[str, str]],
    *,
    kind: str,
) -> None:
    port = SubElement(ports, "PORT", DIR=direction, NAME=name, SIGIS=kind, SIGNAME=net)
    connections = SubElement(port, "CONNECTIONS")
    for instance, other in connected:
        SubElement(connections, "CONNECTION", INSTANCE=instance, PORT=other)


def _bus(
    module: Element, ports: Element, name: str, role: str, direction: str, peer: tuple[str, str]
) -> None:
    """Add a bus with one channel: its other signals tell PYNQ nothing."""
    instance, other = peer
    buses = SubElement(module, "BUSINTERFACES")
    bus = SubElement(
        buses,
        "BUSINTERFACE",
        BUSNAME="control",
        DATAWIDTH=str(REGISTER_BITS),
        NAME=name,
        TYPE=role,
        VLNV="xilinx.com:interface:aximm:1.0",
    )
    maps = SubElement(bus, "PORTMAPS")
    for signal, forward in _bus_signals():
        own = direction if forward else {"O": "I", "I": "O"}[direction]
        physical = f"{name}_{signal.lower()}"
        SubElement(maps, "PORTMAP", LOGICAL=signal, PHYSICAL=physical)
        connected = [(instance, f"{other}_{signal.lower()}")]
        _port(ports, physical, own, f"control_{signal.lower()}", connected, kind="undef")


def _bus_signals() -> Iterator[tuple[str, bool]]:
    """Signals of the bus, and whether the manager drives them."""
    yield from (("AWADDR", True), ("WDATA", True), ("ARADDR", True), ("RDATA", False))
