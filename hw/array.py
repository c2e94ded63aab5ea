"""The multiplier array: products, their sums over the input channels, and the sum of a run."""

from collections.abc import Iterable

from amaranth.hdl import Cat, Module, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from tilewright.hw.component import Unit
from tilewright.isa.config import AcceleratorConfig

#: Width of operands.
_BITS = 8
#: Distance of the two operands that share a multiplier.
_PACKING_SHIFT = 16


class MultiplierArray(Unit):
    """Products of every row of `operands` with every row of `weights`, summed over the columns.

    Two register stages multiply and one more per level of the tree adds, so a sum comes
    ``2 + ceil(log2(block_in))`` cycles after its operands.

    With `packed_multipliers`, two outputs share one multiplier of 25 x 8 bits, one DSP block:
    ``p = ((w1 << 16) + w0) * x`` holds ``w0 * x`` in its low 16 bits, and ``w1 * x`` above them,
    less the borrow of a negative low product, which is its sign bit.

    Attributes
    ----------
    operands
        ``batch x block_in`` int8, element 0 lowest.
    weights
        ``block_out x block_in`` int8.
    sums
        Per batch row and output channel.
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self._config = config
        levels = (config.block_in - 1).bit_length()
        self.sum_bits = 2 * _BITS + levels
        super().__init__(
            {
                "operands": In(_BITS * config.batch * config.block_in),
                "weights": In(_BITS * config.block_out * config.block_in),
                "sums": Out(signed(self.sum_bits)).array(config.batch * config.block_out),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        config = self._config
        paired = config.block_out - config.block_out % 2 if config.packed_multipliers else 0
        for row in range(config.batch):
            operands = [self._element(self.operands, row, i) for i in range(config.block_in)]
            products: list[list[Value]] = [[] for _ in range(config.block_out)]
            for column, operand in enumerate(operands):
                weights = [
                    self._element(self.weights, output, column)
                    for output in range(config.block_out)
                ]
                for low in range(0, paired, 2):
                    pair = _multiply_pair(m, weights[low], weights[low + 1], operand)
                    products[low].append(pair[0])
                    products[low + 1].append(pair[1])
                for output in range(paired, config.block_out):
                    products[output].append(_multiply(m, weights[output], operand))
            for output, terms in enumerate(products):
                m.d.comb += self.sums[row * config.block_out + output].eq(_sum(m, terms))
        return m

    def _element(self, entry: Value, row: int, column: int) -> Value:
        begin = (row * self._config.block_in + column) * _BITS
        return entry[begin : begin + _BITS].as_signed()


def _multiply(m: Module, weight: Value, operand: Value) -> Value:
    first = Signal(signed(2 * _BITS), name="product_1", reset_less=True)
    second = Signal(signed(2 * _BITS), name="product_2", reset_less=True)
    m.d.sync += [first.eq(weight * operand), second.eq(first)]
    return second


def _multiply_pair(m: Module, low: Value, high: Value, operand: Value) -> tuple[Value, Value]:
    both = Signal(signed(_PACKING_SHIFT + _BITS + 1), name="pair")
    # Even (-128 * 2**16 - 128) * -128 fits 32 bits, though it is 25 times 8 bits.
    first = Signal(signed(_PACKING_SHIFT + 2 * _BITS), name="pair_product", reset_less=True)
    low_product = Signal(signed(2 * _BITS), name="low_product", reset_less=True)
    high_product = Signal(signed(2 * _BITS), name="high_product", reset_less=True)
    m.d.comb += both.eq(high.shift_left(_PACKING_SHIFT) + low)
    m.d.sync += [
        first.eq(both * operand),
        low_product.eq(first[:_PACKING_SHIFT].as_signed()),
        high_product.eq(first[_PACKING_SHIFT:].as_signed() + first[_PACKING_SHIFT - 1]),
    ]
    return low_product, high_product


def _sum(m: Module, terms: list[Value]) -> Value:
    """Add terms in pairs, one register per level."""
    while len(terms) > 1:
        sums: list[Value] = []
        for position in range(0, len(terms), 2):
            total = terms[position] + (terms[position + 1] if position + 1 < len(terms) else 0)
            register = Signal(signed(len(terms[0]) + 1), name="sum", reset_less=True)
            m.d.sync += register.eq(total)
            sums.append(register)
        terms = sums
    return terms[0]


def lanes(entry: Value, width: int) -> list[Value]:
    """Split an entry into its lanes as signed numbers, the lowest first."""
    return [entry[begin : begin + width].as_signed() for begin in range(0, len(entry), width)]


def join(values: Iterable[Value], width: int) -> Value:
    """Put lanes together into an entry, cutting each to a width."""
    return Cat(value[:width] for value in values)
