"""One lane of the requantisation: scale with a 24-bit multiplier, round half to even, clip."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from tilewright.hw.component import Unit
from tilewright.hw.pipeline import delayed
from tilewright.isa.integers import MAX_SHIFT, MULTIPLIER_BITS, SHIFT_BITS

#: Width of the result of a run and of the bias.
_RUN_BITS = 32
#: Bits of the total that the lower of two multipliers takes (port B of a DSP48, unsigned).
_LOW_BITS = 17
#: Width of total and product.
_TOTAL_BITS = _RUN_BITS + 1
_PRODUCT_BITS = _TOTAL_BITS + MULTIPLIER_BITS
#: Shift distances of the second shifter; the first one shifts by multiples of their number.
_FINE = 8
#: Width of a saturated number: int8, and room for a zero point to bring it back into range.
_NARROW_BITS = 10
#: Cycles from a run and its parameters to the clipped result.
REQUANTISE_STAGES = 9


def parameters_layout() -> data.StructLayout:
    """What one lane takes from an entry of `prm`, as `MemoryShape` lays it out."""
    return data.StructLayout(
        {
            "bias": signed(_RUN_BITS),
            "multiplier": unsigned(MULTIPLIER_BITS),
            "shift": unsigned(SHIFT_BITS),
            "unused": unsigned(64 - _RUN_BITS - MULTIPLIER_BITS - SHIFT_BITS),
        }
    )


class RequantiseLane(Unit):
    """``clip(round_half_even((run + bias) * multiplier * 2**-shift) + zero_point, low, high)``.

    Exact for every int32 run and bias. Registers: total, product (two) and its sum, shift (two),
    saturate, round, clip. Bias 0, multiplier 1 and shift 0 pass the run on.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                #: Result of a run.
                "run": In(signed(_RUN_BITS)),
                #: Parameters of the lane, in the same cycle.
                "parameters": In(parameters_layout()),
                #: Added after rounding, seven cycles later.
                "zero_point": In(signed(8)),
                #: Limits, eight cycles later.
                "low": In(signed(8)),
                "high": In(signed(8)),
                #: Clipped result.
                "result": Out(signed(8)),
                #: Low bits of the shifted product, neither rounded nor clipped, in the same cycle.
                "raw": Out(signed(_RUN_BITS)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        total = Signal(signed(_TOTAL_BITS), reset_less=True)
        m.d.sync += total.eq(self.run + self.parameters.bias)
        multiplier = delayed(m, self.parameters.multiplier, 1, name="multiplier", is_data=True)
        product = _multiply(m, total, multiplier)
        shift = delayed(m, self.parameters.shift, 4, name="shift", is_data=True)
        whole, half, sticky = _shift(m, product, shift)
        narrow = Signal(signed(_NARROW_BITS), reset_less=True)
        round_up = Signal(reset_less=True)
        top = whole[_NARROW_BITS - 1 :]
        fits = (top == 0) | top.all()
        limit = (1 << _NARROW_BITS - 1) - 1
        m.d.sync += [
            narrow.eq(Mux(fits, whole, Mux(whole[-1], -limit - 1, limit))),
            round_up.eq(fits & half & (sticky | whole[0])),
        ]
        shifted = Signal(signed(_NARROW_BITS + 2), reset_less=True)
        m.d.sync += shifted.eq(narrow + self.zero_point + round_up)
        m.d.sync += self.result.eq(
            Mux(shifted > self.high, self.high, Mux(shifted < self.low, self.low, shifted))
        )
        m.d.comb += self.raw.eq(delayed(m, whole[:_RUN_BITS], 3, name="raw", is_data=True))
        return m


def _multiply(m: Module, total: Value, multiplier: Value) -> Value:
    """Multiply in two parts, each of which fits a DSP48, in three stages."""
    parts = (Cat(total[:_LOW_BITS], 0).as_signed(), total[_LOW_BITS:].as_signed())
    products = []
    for part, name in zip(parts, ("low_product", "high_product"), strict=True):
        width = len(part) + MULTIPLIER_BITS + 1
        first = Signal(signed(width), name=f"{name}_1", reset_less=True)
        second = Signal(signed(width), name=f"{name}_2", reset_less=True)
        m.d.sync += [first.eq(part * Cat(multiplier, 0).as_signed()), second.eq(first)]
        products.append(second)
    product = Signal(signed(_PRODUCT_BITS), reset_less=True)
    m.d.sync += product.eq((products[1] << _LOW_BITS) + products[0])
    return product


def _shift(m: Module, product: Value, shift: Value) -> tuple[Value, Value, Value]:
    """Shift right in two stages.

    Returns the whole part, the bit below it, and whether any bit below that one is set.
    """
    wide = Cat(0, product).as_signed()
    coarse = Signal(signed(len(wide)), reset_less=True)
    coarse_sticky = Signal(reset_less=True)
    with m.Switch(shift[_FINE.bit_length() - 1 :]):
        for number in range((MAX_SHIFT + 1) // _FINE):
            with m.Case(number):
                distance = number * _FINE
                m.d.sync += [
                    coarse.eq(wide >> distance),
                    coarse_sticky.eq(wide[:distance].any()),
                ]
    fine = Signal(signed(len(wide)), reset_less=True)
    sticky = Signal(reset_less=True)
    distance = delayed(m, shift[: _FINE.bit_length() - 1], 1, name="fine_shift", is_data=True)
    with m.Switch(distance):
        for number in range(_FINE):
            with m.Case(number):
                m.d.sync += [
                    fine.eq(coarse >> number),
                    sticky.eq(coarse_sticky | coarse[:number].any()),
                ]
    return fine[1:].as_signed(), fine[0], sticky
