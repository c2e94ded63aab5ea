"""The clock and the memory ports of the programmable logic, set in the processor's registers.

Addresses and fields are those of UG585 (Zynq-7000, appendix B.28 and B.30) and UG1087 (Zynq
UltraScale+, modules CRL_APB, CRF_APB and AFIFM).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from typing_extensions import assert_never

from tilewright.runtime.board_access import BoardAccess, BoardError, Window
from tilewright.runtime.board_record import BoardRecord, ProcessorFamily

#: Relative difference of two clocks that are taken to be the same.
_TOLERANCE = 1e-3
#: Divisors that a clock can have.
_DIVISORS = range(1, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pll:
    """A PLL: the address of its control register, and its number as a source of clocks."""

    address: int
    source: int


_PLLS: Mapping[ProcessorFamily, Mapping[str, _Pll]] = MappingProxyType(
    {
        ProcessorFamily.ZYNQ_7000: {
            "IO_PLL": _Pll(address=0xF800_0108, source=0),
            "ARM_PLL": _Pll(address=0xF800_0100, source=2),
            "DDR_PLL": _Pll(address=0xF800_0104, source=3),
        },
        ProcessorFamily.ZYNQ_MP: {
            "IOPLL": _Pll(address=0xFF5E_0020, source=0),
            "RPLL": _Pll(address=0xFF5E_0030, source=2),
        },
    }
)
#: Registers of clock 0 and of what unlocks them.
_ZYNQ_7000_CLOCK = 0xF800_0170
_ZYNQ_7000_UNLOCK, _UNLOCK_KEY = 0xF800_0008, 0xDF0D
_ZYNQ_MP_CLOCK, _ZYNQ_MP_CLOCK_ACTIVE = 0xFF5E_00C0, 1 << 24
#: Read and write control of the ports HP0 and HP1.
_ZYNQ_7000_PORTS = (0xF800_8000, 0xF800_8014, 0xF800_9000, 0xF800_9014)
_ZYNQ_MP_PORTS = (0xFD38_0000, 0xFD38_0014, 0xFD39_0000, 0xFD39_0014)
_ZYNQ_MP_WIDTHS = MappingProxyType({32: 2, 64: 1, 128: 0})


class ProcessorRegisters:
    """The processor's registers that concern the programmable logic."""

    def __init__(self, access: BoardAccess, record: BoardRecord) -> None:
        self._access = access
        self._record = record
        self._pages: dict[int, Window] = {}

    def set_clock(self) -> float:
        """Give the programmable logic the clock of its bitstream; returns what it has then.

        Raises
        ------
        BoardError
            If no divisors of the PLL, as the board's boot loader has set it, make that clock.
        """
        record = self._record
        wanted = record.config.clock_mhz
        pll = _PLLS[record.family].get(record.pll)
        if pll is None:
            raise BoardError(f"the driver knows no PLL {record.pll!r:.30} of {record.family.value}")
        source_mhz = self._pll_mhz(pll)
        first, second = _nearest_divisors(source_mhz, wanted)
        reached = source_mhz / (first * second)
        if abs(reached / wanted - 1) > _TOLERANCE:
            raise BoardError(
                f"the board cannot make the bitstream's clock of {wanted:g} MHz: its {record.pll}"
                f" runs at {source_mhz:g} MHz",
                hint=f"build the bitstream with --set clock_mhz={reached:.3f}",
            )
        self._write_clock(pll.source, first, second)
        return reached

    def clock_mhz(self) -> float:
        """Read the clock of the programmable logic."""
        match self._record.family:
            case ProcessorFamily.ZYNQ_7000:
                value = self._read(_ZYNQ_7000_CLOCK)
                source, first, second = value >> 4 & 3, value >> 8 & 63, value >> 20 & 63
                source = 0 if source == 1 else source
            case ProcessorFamily.ZYNQ_MP:
                value = self._read(_ZYNQ_MP_CLOCK)
                source, first, second = value & 7, value >> 8 & 63, value >> 16 & 63
            case family:
                assert_never(family)
        for pll in _PLLS[self._record.family].values():
            if pll.source == source and first and second:
                return self._pll_mhz(pll) / (first * second)
        raise BoardError(f"the clock of the programmable logic has the unknown source {source}")

    def set_port_widths(self) -> None:
        """Give the memory ports the width that the bitstream was built for."""
        bits = self._record.config.port_bits
        match self._record.family:
            case ProcessorFamily.ZYNQ_7000:
                for address in _ZYNQ_7000_PORTS:
                    self._write(address, self._read(address) & ~1 | int(bits == 32))
            case ProcessorFamily.ZYNQ_MP:
                for address in _ZYNQ_MP_PORTS:
                    self._write(address, self._read(address) & ~3 | _ZYNQ_MP_WIDTHS[bits])
            case family:
                assert_never(family)

    def _pll_mhz(self, pll: _Pll) -> float:
        value = self._read(pll.address)
        match self._record.family:
            case ProcessorFamily.ZYNQ_7000:
                return self._record.reference_mhz * (value >> 12 & 0x7F)
            case ProcessorFamily.ZYNQ_MP:
                halved = 2 if value >> 16 & 1 else 1
                return self._record.reference_mhz * (value >> 8 & 0x7F) / halved
            case family:
                assert_never(family)

    def _write_clock(self, source: int, first: int, second: int) -> None:
        match self._record.family:
            case ProcessorFamily.ZYNQ_7000:
                self._write(_ZYNQ_7000_UNLOCK, _UNLOCK_KEY)
                self._write(_ZYNQ_7000_CLOCK, source << 4 | first << 8 | second << 20)
            case ProcessorFamily.ZYNQ_MP:
                value = source | first << 8 | second << 16 | _ZYNQ_MP_CLOCK_ACTIVE
                self._write(_ZYNQ_MP_CLOCK, value)
            case family:
                assert_never(family)

    def _read(self, address: int) -> int:
        return self._page(address).read(address & 0xFFF)

    def _write(self, address: int, value: int) -> None:
        self._page(address).write(address & 0xFFF, value)

    def _page(self, address: int) -> Window:
        base = address & ~0xFFF
        if base not in self._pages:
            self._pages[base] = self._access.window(base, 0x1000)
        return self._pages[base]


def _nearest_divisors(source_mhz: float, wanted_mhz: float) -> tuple[int, int]:
    """Divisors whose clock is nearest to the wanted one, and not above it by more than rounding."""
    pairs = [(first, second) for first in _DIVISORS for second in _DIVISORS if first >= second]
    limit = wanted_mhz * (1 + _TOLERANCE / 2)
    reachable = [pair for pair in pairs if source_mhz / (pair[0] * pair[1]) <= limit]
    return min(reachable, key=lambda pair: (pair[0] * pair[1], pair[1]), default=(63, 63))
