"""What a board is: part, clocks, memory, addresses, and the configuration that suits it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tilewright.boards.parts import Family, Part
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPort:
    """How the accelerator reaches the memory of a family's processor."""

    #: ``AXI3`` or ``AXI4``.
    protocol: str
    #: Beats of the longest burst.
    burst_beats: int
    #: Widths that the port can take.
    port_bits: tuple[int, ...]
    #: Width of its addresses.
    address_bits: int
    source: str


#: The memory ports of each family that has a processor.
MEMORY_PORTS: Mapping[Family, MemoryPort] = MappingProxyType(
    {
        Family.ZYNQ_7000: MemoryPort(
            protocol="AXI3",
            burst_beats=16,
            port_bits=(32, 64),
            address_bits=32,
            source="UG585 section 5.3 (S_AXI_HP)",
        ),
        Family.ZYNQ_MP: MemoryPort(
            protocol="AXI4",
            burst_beats=256,
            port_bits=(32, 64, 128),
            address_bits=49,
            source="UG1085 table 35-4 (S_AXI_HP_FPD)",
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pll:
    """A clock from which the processor derives that of the programmable logic."""

    #: Name in the processor's reference manual.
    name: str
    mhz: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlClock:
    """A clock of the programmable logic: a PLL divided twice, each time by 1 to 63."""

    pll: Pll
    divisors: tuple[int, int]

    @property
    def mhz(self) -> float:
        """Frequency."""
        return self.pll.mhz / (self.divisors[0] * self.divisors[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalMemory:
    """The memory on the board."""

    kind: str
    size_bytes: int
    #: Transfers per second times width.
    peak_megabytes_per_second: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One board, as the flows and the documentation need it."""

    #: Name on the command line.
    name: str
    title: str
    part: Part
    #: Oscillator of the processor, or of the FPGA where there is none.
    reference_mhz: float
    #: Clock sources of the programmable logic as the board's boot loader leaves them.
    plls: tuple[Pll, ...]
    memory: ExternalMemory
    #: Where the control registers appear to the processor.
    control_address: int
    #: What suits the board.
    config: AcceleratorConfig
    #: Documents that the facts come from.
    sources: tuple[str, ...]
    #: What is assumed, not documented or measured.
    assumptions: tuple[str, ...]

    def clock(self, mhz: float) -> PlClock:
        """Return the fastest clock of the programmable logic that is not above `mhz`.

        Raises
        ------
        ConfigError
            If every clock is above it.
        """
        reachable = [clock for clock in self._clocks() if clock.mhz <= mhz * (1 + 1e-9)]
        if not reachable:
            raise ConfigError(f"{self.title} has no clock of {mhz:g} MHz or less")
        return max(reachable, key=lambda clock: (clock.mhz, -sum(clock.divisors)))

    def _clocks(self) -> Iterator[PlClock]:
        for pll in self.plls:
            for first in range(1, 64):
                for second in range(1, 64):
                    if first >= second:
                        yield PlClock(pll=pll, divisors=(first, second))


def check_ports(config: AcceleratorConfig, board: Board) -> None:
    """Refuse a configuration whose memory ports the board cannot serve.

    Raises
    ------
    ConfigError
        Names the field.
    """
    port = MEMORY_PORTS.get(board.part.family)
    if port is not None and config.port_bits not in port.port_bits:
        raise ConfigError(
            f"port_bits must be {' or '.join(map(str, port.port_bits))} on {board.title},"
            f" not {config.port_bits}"
        )
    if port is not None and config.burst_beats > port.burst_beats:
        raise ConfigError(
            f"burst_beats must be at most {port.burst_beats} on {board.title}"
            f" ({port.protocol}), not {config.burst_beats}"
        )
    if config.dram.size_bytes > board.memory.size_bytes:
        raise ConfigError(
            f"dram.size_bytes must be at most {board.memory.size_bytes} on {board.title},"
            f" not {config.dram.size_bytes}"
        )
