"""One lane of the requantisation: scale with a 24-bit multiplier, round half to even, clip."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from tilewright.hw.booth import booth_rows, sum_staged
from tilewright.hw.component import Unit
from tilewright.hw.pipeline import delayed, staged
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

    Of its two multipliers, the first `multipliers` are left to DSP blocks, the others are made of
    look-up tables.
    """

    def __init__(self, multipliers: int = 2) -> None:
        self._multipliers = multipliers
        super().__init__(
            {
                #: Per stage, whether what enters it is of use; its registers rest at 0 if not.
                "valid": In(REQUANTISE_STAGES),
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
        valid = list(self.valid)
        total = staged(m, valid[0], self.run + self.parameters.bias, name="total")
        multiplier = staged(m, valid[0], self.parameters.multiplier, name="multiplier")
        product = _multiply(m, valid[1:4], total, multiplier, self._multipliers)
        shift = delayed(m, self.parameters.shift, 4, name="shift", is_data=True)
        whole, half, sticky = _shift(m, valid[4:6], product, shift)
        top = whole[_NARROW_BITS - 1 :]
        fits = (top == 0) | top.all()
        limit = (1 << _NARROW_BITS - 1) - 1
        saturated = Mux(fits, whole, Mux(whole[-1], -limit - 1, limit))[:_NARROW_BITS]
        narrow = staged(m, valid[6], saturated.as_signed(), name="narrow")
        ties_to_even = fits & half & (sticky | whole[0])
        round_up = staged(m, valid[6], ties_to_even, name="round_up")
        shifted = staged(m, valid[7], narrow + self.zero_point + round_up, name="shifted")
        clipped = Mux(shifted > self.high, self.high, Mux(shifted < self.low, self.low, shifted))
        m.d.comb += self.result.eq(staged(m, valid[8], clipped[:8], name="clipped"))
        m.d.comb += self.raw.eq(delayed(m, whole[:_RUN_BITS], 3, name="raw", is_data=True))
        return m


def _multiply(
    m: Module, valid: list[Value], total: Value, multiplier: Value, multipliers: int
) -> Value:
    """Multiply in two parts, each of which fits a DSP48, in three stages."""
    factor = Cat(multiplier, 0).as_signed()
    parts = (Cat(total[:_LOW_BITS], 0).as_signed(), total[_LOW_BITS:].as_signed())
    products = []
    for number, (part, name) in enumerate(zip(parts, ("low_product", "high_product"), strict=True)):
        first: Value
        if number < multipliers:
            first = staged(m, valid[0], part * factor, name=f"{name}_1")
        else:
            rows = sum_staged(m, valid[0], booth_rows(factor, part), name=name)
            first = rows[: len(part) + len(factor)].as_signed()
        products.append(staged(m, valid[1], first, name=f"{name}_2"))
    total_product = products[1].shift_left(_LOW_BITS) + products[0]
    return staged(m, valid[2], total_product[:_PRODUCT_BITS].as_signed(), name="product")


def _shift(
    m: Module, valid: list[Value], product: Value, shift: Value
) -> tuple[Value, Value, Value]:
    """Shift right in two stages.

    Returns the whole part, the bit below it, and whether any bit below that one is set.
    """
    wide = Cat(0, product).as_signed()
    coarse = Signal(signed(len(wide)), reset_less=True)
    coarse_sticky = Signal(reset_less=True)
    with m.If(~valid[0]):
        m.d.sync += [coarse.eq(0), coarse_sticky.eq(0)]
    with m.Else(), m.Switch(shift[_FINE.bit_length() - 1 :]):
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
    with m.If(~valid[1]):
        m.d.sync += [fine.eq(0), sticky.eq(0)]
    with m.Else(), m.Switch(distance):
        for number in range(_FINE):
            with m.Case(number):
                m.d.sync += [
                    fine.eq(coarse >> number),
                    sticky.eq(coarse_sticky | coarse[:number].any()),
                ]
    return fine[1:].as_signed(), fine[0], sticky
