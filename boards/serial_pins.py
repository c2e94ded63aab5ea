"""The accelerator behind four pins, to place it without the hundreds of pins of its bus ports."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib.wiring import In, Out

from tilewright.hw.accelerator import Accelerator
from tilewright.hw.component import Unit
from tilewright.isa.config import AcceleratorConfig


class SerialPins(Unit):
    """Shifts every input of the accelerator in and every output out, through registers only.

    Attributes
    ----------
    serial_in, serial_out
        A bit per cycle.
    sample
        Take the outputs over in this cycle, in place of a shift.
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self._config = config
        super().__init__({"serial_in": In(1), "serial_out": Out(1), "sample": In(1)})

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        m.submodules.accelerator = accelerator = Accelerator(self._config)
        ports = [
            (member.flow, Value.cast(value))
            for _, member, value in accelerator.signature.flatten(accelerator)
        ]
        driven = Cat(value for flow, value in ports if flow is In)
        seen = Cat(value for flow, value in ports if flow is Out)
        inputs, outputs = Signal(len(driven)), Signal(len(seen))
        m.d.comb += [driven.eq(inputs), self.serial_out.eq(outputs[0])]
        m.d.sync += [
            inputs.eq(Cat(self.serial_in, inputs)),
            outputs.eq(outputs[1:]),
        ]
        with m.If(self.sample):
            m.d.sync += outputs.eq(seen)
        return m
