"""The accelerator on an ULX3S: a memory of block RAM, reached over the USB serial port."""

from amaranth.back import rtlil  # type: ignore[attr-defined]
from amaranth.hdl import ClockDomain, ClockSignal, Const, Instance, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.boards.chip_memory import SerialAccelerator
from tilewright.boards.ecp5_clock import Ecp5Pll
from tilewright.boards.uart import UartReceiver, UartTransmitter
from tilewright.hw.component import Unit
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.serial_commands import BAUD

#: Cycles of reset after the PLL has locked.
_RESET_CYCLES = 255


class Ulx3sTop(Unit):
    """The whole design.

    Attributes
    ----------
    clk25
        Oscillator of 25 MHz.
    ftdi_txd, ftdi_rxd
        Serial port, named from its other side.
    """

    def __init__(self, config: AcceleratorConfig, pll: Ecp5Pll) -> None:
        self._config = config
        self._pll = pll
        super().__init__({"clk25": In(1), "ftdi_txd": In(1), "ftdi_rxd": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        self._make_clock(m)
        divisor = round(self._pll.mhz * 1e6 / BAUD)
        m.submodules.receiver = receiver = UartReceiver(divisor)
        m.submodules.transmitter = transmitter = UartTransmitter(divisor)
        m.submodules.accelerator = accelerator = SerialAccelerator(self._config)
        wiring.connect(m, receiver.bytes, accelerator.received)
        wiring.connect(m, accelerator.sent, transmitter.bytes)
        m.d.comb += [receiver.line.eq(self.ftdi_txd), self.ftdi_rxd.eq(transmitter.line)]
        return m

    def _make_clock(self, m: Module) -> None:
        pll = self._pll
        m.domains.sync = ClockDomain("sync")
        m.domains.start = ClockDomain("start", reset_less=True)
        output, locked = Signal(), Signal()
        m.submodules.pll = Instance(
            "EHXPLLL",
            p_CLKI_DIV=pll.input_divisor,
            p_CLKFB_DIV=pll.feedback_divisor,
            p_CLKOP_DIV=pll.output_divisor,
            p_CLKOP_CPHASE=pll.output_divisor - 1,
            p_CLKOP_FPHASE=0,
            p_CLKOP_ENABLE="ENABLED",
            p_FEEDBK_PATH="CLKOP",
            p_OUTDIVIDER_MUXA="DIVA",
            i_CLKI=self.clk25,
            i_CLKFB=output,
            i_RST=Const(0),
            i_STDBY=Const(0),
            i_ENCLKOP=Const(0),
            i_PHASESEL0=Const(0),
            i_PHASESEL1=Const(0),
            i_PHASEDIR=Const(0),
            i_PHASESTEP=Const(0),
            i_PHASELOADREG=Const(0),
            i_PLLWAKESYNC=Const(0),
            o_CLKOP=output,
            o_LOCK=locked,
        )
        waited = Signal(range(_RESET_CYCLES + 1))
        m.d.comb += [ClockSignal().eq(output), ClockSignal("start").eq(output)]
        with m.If(locked & (waited != _RESET_CYCLES)):
            m.d.start += waited.eq(waited + 1)
        m.d.start += ResetSignal().eq(waited != _RESET_CYCLES)


def ulx3s_rtlil(config: AcceleratorConfig, pll: Ecp5Pll, name: str) -> str:
    """Write the design in yosys's own language, which it reads sooner than Verilog."""
    text: str = rtlil.convert(Ulx3sTop(config, pll), name=name)
    return text
