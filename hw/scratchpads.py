"""The scratchpads of the accelerator and the wires between them and the engines."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Value

from tilewright.hw.layouts import uop_bits
from tilewright.hw.scratchpad import Scratchpad
from tilewright.hw.vector import lut_words
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import GemmUop, VectorUop
from tilewright.isa.memories import Memory, memory_shape
from tilewright.isa.timing import cycles_per_entry


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShape:
    """The block memories that make up a scratchpad."""

    #: Number of block memories, each with ports of its own.
    count: int
    #: How many of them differ in what they hold.
    distinct: int
    entries: int
    lanes: int
    lane_bits: int

    @property
    def entry_bits(self) -> int:
        """Width of an entry."""
        return self.lanes * self.lane_bits

    def make(self) -> list[Scratchpad]:
        """Make the block memories."""
        return [
            Scratchpad(entries=self.entries, lanes=self.lanes, lane_bits=self.lane_bits)
            for _ in range(self.count)
        ]


def block_shape(memory: Memory, config: AcceleratorConfig) -> BlockShape:
    """Describe the block memories of a scratchpad.

    `acc` has one per bank, `lut` one per lane of the vector engine with the same contents, every
    other scratchpad one. Lanes are as wide as a memory port where an entry is longer.
    """
    shape = memory_shape(memory, config)
    parts, _ = cycles_per_entry(memory, config)
    count, entries, lanes, lane_bits = 1, shape.entries, 1, 8 * shape.entry_bytes
    match memory:
        case Memory.ACC:
            count, entries = shape.banks, config.acc_bank_entries
        case Memory.LUT:
            count, entries = config.batch * config.block_out, lut_words(config)
            lane_bits = config.port_bits
        case Memory.GUOP if parts == 1:
            lane_bits = uop_bits(GemmUop, config)
        case Memory.VUOP if parts == 1:
            lane_bits = uop_bits(VectorUop, config)
        case Memory.OUT:
            pass
        case _:
            lanes, lane_bits = parts, 8 * shape.entry_bytes // parts
    return BlockShape(
        count=count, distinct=shape.banks, entries=entries, lanes=lanes, lane_bits=lane_bits
    )


def connect_reader(m: Module, port: Any, pad: Scratchpad) -> None:
    """Wire the read port of an engine to a scratchpad that no other engine reads."""
    m.d.comb += [
        pad.read.enable.eq(port.enable),
        pad.read.address.eq(port.address),
        port.data.eq(pad.read.data),
    ]


def connect_writer(m: Module, port: Any, pad: Scratchpad) -> None:
    """Wire the write port of an engine to a scratchpad that no other engine writes."""
    m.d.comb += [
        pad.write.enable.eq(port.enable),
        pad.write.address.eq(port.address),
        pad.write.data.eq(port.data),
    ]


def connect_bank(
    m: Module, pad: Scratchpad, readers: Sequence[Any], writers: Sequence[Any]
) -> None:
    """Wire two engines to a bank of `acc`, which only one of them uses at a time."""
    for (first, second), port in ((readers, pad.read), (writers, pad.write)):
        m.d.comb += [
            port.enable.eq(first.enable | second.enable),
            port.address.eq(Mux(first.enable, first.address, second.address)),
        ]
    m.d.comb += pad.write.data.eq(Mux(writers[0].enable, writers[0].data, writers[1].data))
    for reader in readers:
        m.d.comb += reader.data.eq(pad.read.data)


def connect_load(
    m: Module, bus: Any, memory: Memory, pads: Sequence[Scratchpad], config: AcceleratorConfig
) -> None:
    """Wire the writes of the load engine to a scratchpad."""
    selected: Value = bus.select[memory]
    address: Value = bus.address
    if memory is Memory.LUT:
        parts, _ = cycles_per_entry(memory, config)
        address = Cat(bus.part[: (parts - 1).bit_length()], bus.address)
    for pad in pads:
        lanes = [selected & (bus.all_parts | (bus.part == lane)) for lane in range(pad.lanes)]
        m.d.comb += [
            pad.write.enable.eq(Cat(lanes) if pad.lanes > 1 else selected),
            pad.write.address.eq(address),
            pad.write.data.eq(bus.data[: pad.lane_bits].replicate(pad.lanes)),
        ]
