"""Instruction fetch: reads the program ahead and hands out one instruction per cycle."""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import memory, stream
from amaranth.lib.wiring import In, Out

from tilewright.hw.axi import ReadPort
from tilewright.hw.component import Unit
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import instruction_bytes
from tilewright.isa.instructions import ADDRESS_BITS
from tilewright.isa.timing import fetch_burst_instructions

#: Width of a number of instructions.
COUNT_BITS = 32
#: Sides of the buffer.
_PORTS = ("write", "read")


class Fetch(Unit):
    """Reads `count` instructions from `address`, a multiple of the fetch burst.

    A burst is asked for when the buffer has room for all of it. An instruction is handed out in the
    cycle after its last beat at the earliest.

    Attributes
    ----------
    start, address, count
        In the cycle of `start`, everything begins anew.
    instruction
        Instructions go out.
    port
        The memory port.
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self._config = config
        self._bytes = instruction_bytes(config)
        self._burst = fetch_burst_instructions(config)
        super().__init__(
            {
                "start": In(1),
                "address": In(ADDRESS_BITS),
                "count": In(COUNT_BITS),
                "instruction": Out(stream.Signature(unsigned(8 * self._bytes))),
                "port": Out(ReadPort(config.port_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        taken = Signal()
        m.d.comb += taken.eq(self.instruction.valid & self.instruction.ready)
        self._send(m, taken)
        self._receive(m, taken)
        return m

    def _send(self, m: Module, taken: Value) -> None:
        """Ask for bursts while there is room."""
        config, burst = self._config, self._burst
        address = self.port.ar.payload
        room = Signal(range(config.fetch_entries + 1))
        left = Signal(COUNT_BITS)
        more = Signal()
        sent = Signal()
        beats = Signal(range(self._beats(burst) + 1))
        more_after = left > burst
        m.d.comb += [
            self.port.ar.valid.eq((room >= burst) & more),
            sent.eq(self.port.ar.valid & self.port.ar.ready),
            beats.eq(self._beats(burst)),
            address.length.eq(beats - 1),
        ]
        for count in range(1, burst):
            with m.If(left == count):
                m.d.comb += beats.eq(self._beats(count))
        with m.If(self.start):
            m.d.sync += [
                address.address.eq(self.address),
                left.eq(self.count),
                more.eq(self.count != 0),
                room.eq(config.fetch_entries),
            ]
        with m.Else():
            m.d.sync += room.eq(room + taken - Mux(sent, burst, 0))
            with m.If(sent):
                m.d.sync += [
                    address.address.eq(address.address + burst * self._bytes),
                    left.eq(Mux(more_after, left - burst, 0)),
                    more.eq(more_after),
                ]

    def _beats(self, instructions: int) -> int:
        return -(-instructions * self._bytes // self._config.port_bytes)

    def _receive(self, m: Module, taken: Value) -> None:
        """Collect instructions in banks as wide as a beat or an instruction, the shorter of both.

        A beat fills one bank where an instruction is at least as long, else as many banks as it
        has instructions of one burst.
        """
        config = self._config
        per_beat = max(1, config.port_bytes // self._bytes)
        filled = min(per_beat, self._burst)
        banks = max(per_beat, self._bytes // config.port_bytes)
        depth = -(-config.fetch_entries // per_beat)
        width = 8 * min(self._bytes, config.port_bytes)
        level = Signal(range(config.fetch_entries + 1))
        arrived = Signal(range(per_beat + 1))
        write_bank, read_bank = (Signal(range(banks), name=f"{port}_bank") for port in _PORTS)
        write_entry, read_entry = (Signal(range(depth), name=f"{port}_entry") for port in _PORTS)
        valid = self.port.r.valid
        words = []
        for bank in range(banks):
            storage: Any = memory.Memory(shape=unsigned(width), depth=depth, init=[])
            m.submodules[f"bank_{bank}"] = storage
            write_port, read_port = storage.write_port(), storage.read_port(domain="comb")
            first = bank - bank % filled
            m.d.comb += [
                write_port.en.eq(valid & (write_bank == first)),
                write_port.addr.eq(write_entry),
                write_port.data.eq(self.port.r.payload.data.word_select(bank % per_beat, width)),
                read_port.addr.eq(read_entry),
            ]
            words.append(read_port.data)
        if per_beat > 1:
            m.d.comb += [
                arrived.eq(Mux(valid, filled, 0)),
                self.instruction.payload.eq(Array(words)[read_bank]),
            ]
            _advance(m, taken, (read_bank, 1, banks), (read_entry, depth))
        else:
            m.d.comb += [
                arrived.eq(valid & (write_bank == banks - 1)),
                self.instruction.payload.eq(Cat(words)),
            ]
            _advance(m, taken, (Const(0), 1, 1), (read_entry, depth))
        _advance(m, valid, (write_bank, filled, banks), (write_entry, depth))
        m.d.comb += self.instruction.valid.eq(level != 0)
        m.d.sync += level.eq(level + arrived - taken)
        first_bank = self.address[(self._bytes - 1).bit_length() :] if per_beat > 1 else 0
        with m.If(self.start):
            m.d.sync += [
                level.eq(0),
                write_bank.eq(first_bank),
                write_entry.eq(0),
                read_bank.eq(first_bank),
                read_entry.eq(0),
            ]


def _advance(
    m: Module, moves: Value, bank: tuple[Value, int, int], entry: tuple[Signal, int]
) -> None:
    """Move a cursor on by some of its banks, and to the next entry after the last of these."""
    position, distance, banks = bank
    last = position == banks - distance
    with m.If(moves):
        if banks > 1:
            m.d.sync += position.eq(Mux(last, 0, position + distance))
        with m.If(last):
            m.d.sync += entry[0].eq(Mux(entry[0] == entry[1] - 1, 0, entry[0] + 1))
