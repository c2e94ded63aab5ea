"""Products made of look-up tables: Booth's rows of radix 4, and adder trees over them.

A. D. Booth, "A signed binary multiplication technique", 1951, recoded by pairs of bits (MacSorley,
1961): half as many rows as bits, each 0, 1 or 2 times the factor, with either sign.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Value

from tilewright.hw.pipeline import staged

#: Rows that are added before the first register of a registered sum.
_GROUP = 4


def booth_rows(factor: Value, other: Value) -> list[Value]:
    """Return signed rows whose sum is the product of two signed numbers.

    There are half as many rows as `other` has bits, and one of the corrections that turn
    complements into negative numbers.
    """
    count = -(-len(other) // 2)
    bits = Cat(Const(0, 1), other, other[-1].replicate(2 * count - len(other)))
    rows: list[Value] = []
    corrections: list[Value] = []
    for number in range(count):
        below, low, high = (bits[2 * number + offset] for offset in range(3))
        once, twice = low ^ below, (high ^ low) & ~(low ^ below)
        size = Mux(twice, factor << 1, Mux(once, factor, 0)).as_signed()
        rows.append(Mux(high, ~size, size).as_signed() << 2 * number)
        corrections += [high, Const(0, 1)]
    rows.append(Cat(*corrections, Const(0, 1)).as_signed())
    return rows


def sum_tree(rows: Sequence[Value]) -> Value:
    """Add rows pair by pair."""
    values = list(rows)
    while len(values) > 1:
        pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
        values = [pair[0] + pair[1] if len(pair) == 2 else pair[0] for pair in pairs]
    return values[0]


def sum_staged(m: Module, valid: Value, rows: Sequence[Value], *, name: str) -> Value:
    """Add rows in two steps with a stage of registers in between, see `staged`."""
    groups = [
        staged(m, valid, sum_tree(rows[number : number + _GROUP]), name=f"{name}_rows_{number}")
        for number in range(0, len(rows), _GROUP)
    ]
    return sum_tree(groups)
