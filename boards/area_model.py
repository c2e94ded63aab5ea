"""The area of a configuration by formula: in microseconds instead of the minutes of a synthesis.

Multipliers and block RAMs follow from the structure: `hw/` says how many products and which
memories there are, and the vendors how many columns of nine bits with a write enable of their own
a block RAM has (UG473 table 1-9, UG573 table 1-9). Look-up tables and registers are those of the
units, linear in their size; the coefficients are fitted to what Yosys maps for a series 7 part,
see `benchmarks/area.py`.
"""

from dataclasses import dataclass

from tilewright.boards.area import Area
from tilewright.hw.load_writer import loadable
from tilewright.hw.scratchpads import BlockShape, block_shape
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.memories import Memory, memory_shape

#: Bits of a column of block RAM, and entries of a RAMB18 that is four columns wide.
_COLUMN_BITS = 9
_FULL_WIDTH_ENTRIES = 512
_FULL_WIDTH_COLUMNS = 4
#: Memories of fewer entries are made of look-up tables: six bits of 32 entries, or three of 64, in
#: four tables (UG474, table 2-3).
_DISTRIBUTED_ENTRIES = 128
_RAM32M_BITS = 6
_RAM32M_ENTRIES = 32
_RAM32M_LUTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """Look-up tables and registers per something."""

    luts: float
    registers: float


#: Control, counters, fetch, queues, tokens, load and store engines; and per bit of a port.
_FIXED = _Fit(luts=4_200, registers=3_500)
_PORT_BIT = _Fit(luts=20, registers=9)
#: Per output channel and image of the array: accumulation; and per product that it sums.
_OUTPUT = _Fit(luts=118, registers=190)
_PRODUCT = _Fit(luts=16.8, registers=40)
#: Per lane of the vector engine with all multipliers; and what each of its products adds where it
#: has no multiplier, in the order in which they lose it: coefficient, high and low part.
_LANE = _Fit(luts=690, registers=560)
_FABRIC_PRODUCTS = (
    _Fit(luts=355, registers=48),
    _Fit(luts=305, registers=156),
    _Fit(luts=340, registers=156),
)


def estimate_area(config: AcceleratorConfig) -> Area:
    """Estimate what the accelerator takes of a series 7 or UltraScale+ part."""
    outputs = config.batch * config.block_out
    area = _area(_FIXED, 1) + _area(_PORT_BIT, config.port_bits)
    area += _area(_OUTPUT, outputs) + _area(_PRODUCT, outputs * config.block_in)
    area += _area(_LANE, outputs) + Area(multipliers=outputs * config.lane_multipliers)
    for product in _FABRIC_PRODUCTS[: len(_FABRIC_PRODUCTS) - config.lane_multipliers]:
        area += _area(product, outputs)
    area += Area(multipliers=config.batch * config.block_in * _columns_of_products(config))
    area += Area(multipliers=_products_with_sizes(config))
    for memory in Memory:
        area += _memory_area(block_shape(memory, config))
    return area + _memory_area(_load_buffer(config))


def _load_buffer(config: AcceleratorConfig) -> BlockShape:
    """Describe the memory in which the load engine keeps what has arrived."""
    entries = config.load_bursts * config.burst_beats
    return BlockShape(count=1, distinct=1, entries=entries, lanes=1, lane_bits=config.port_bits)


def _columns_of_products(config: AcceleratorConfig) -> int:
    """Multipliers per input channel."""
    return -(-config.block_out // 2) if config.packed_multipliers else config.block_out


def _products_with_sizes(config: AcceleratorConfig) -> int:
    """Multipliers that turn entries into bytes where that is no shift.

    Sizes with one odd part share a multiplier of the load engine.
    """
    loaded = {_odd_part(memory_shape(item, config).entry_bytes) for item in loadable(config)}
    stored = {_odd_part(memory_shape(Memory.OUT, config).entry_bytes)}
    return len(loaded - {1}) + len(stored - {1})


def _odd_part(number: int) -> int:
    return number // (number & -number)


def _area(fit: _Fit, number: int) -> Area:
    return Area(luts=round(fit.luts * number), registers=round(fit.registers * number))


def _memory_area(shape: BlockShape) -> Area:
    if shape.entries < _DISTRIBUTED_ENTRIES:
        deep = -(-shape.entries // _RAM32M_ENTRIES)
        cells = -(-shape.entry_bits // _RAM32M_BITS) * deep
        return Area(luts=_RAM32M_LUTS * cells, registers=shape.entry_bits).times(shape.count)
    columns = shape.lanes * -(-shape.lane_bits // _COLUMN_BITS)
    deep = -(-shape.entries // _FULL_WIDTH_ENTRIES)
    # Twice as deep is half as wide; the ratio is a power of two.
    deep = 1 << (deep - 1).bit_length()
    return Area(half_block_rams=-(-columns * deep // _FULL_WIDTH_COLUMNS)).times(shape.count)
