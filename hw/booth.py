"""Products made of look-up tables: Booth's rows of radix 4, and adder trees over them.

A. D. Booth, "A signed binary multiplication technique", 1951, recoded by pairs of bits (MacSorley,
1961): half as many rows as bits, each 0, 1 or 2 times the factor, with either sign.
"""

import itertools
from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

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


def sum_tree(m: Module, rows: Sequence[Value], *, name: str) -> Value:
    """Add rows pair by pair, each pair on a carry chain.

    The sums are kept, lest Yosys join them to one of many operands, which takes more than twice
    the look-up tables.
    """
    values = list(rows)
    for level in itertools.count():
        if len(values) == 1:
            return values[0]
        pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
        values = []
        for number, pair in enumerate(pairs):
            total = sum(pair[1:], pair[0])
            kept = Signal(total.shape(), name=f"{name}_{level}_{number}", attrs={"keep": "1"})
            m.d.comb += kept.eq(total)
            values.append(kept)
    raise AssertionError("the number of values halves")


def sum_staged(m: Module, valid: Value, rows: Sequence[Value], *, name: str) -> Value:
    """Add rows in two steps with a stage of registers in between, see `staged`."""
    groups: list[Value] = []
    for first in range(0, len(rows), _GROUP):
        partial = sum_tree(m, rows[first : first + _GROUP], name=f"{name}_sum_{first}")
        groups.append(staged(m, valid, partial, name=f"{name}_rows_{first}"))
    return sum_tree(m, groups, name=f"{name}_sum")
