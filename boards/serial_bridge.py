"""Access to registers and memory by the commands of `tilewright.isa.serial_commands`."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Signal, Value, unsigned
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from tilewright.boards.axi_lite import SPACE_BITS, WordPort
from tilewright.hw.component import Unit
from tilewright.isa.instructions import ADDRESS_BITS
from tilewright.isa.registers import REGISTER_BITS, REGISTER_BYTES
from tilewright.isa.serial_commands import (
    ACKNOWLEDGE,
    MEMORY_BIT,
    READ,
    SERIAL_ADDRESS_BYTES,
    SERIAL_COUNT_BYTES,
    WRITE,
)

#: For which an address stays before the word that was read is taken: a block RAM and registers
#: on both its sides.
MEMORY_READ_CYCLES = 4
_HEAD_BYTES = SERIAL_ADDRESS_BYTES + SERIAL_COUNT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class _Command:
    """What is kept of a command while it is executed.

    Attributes
    ----------
    writes
        Whether it writes.
    address, left
        Of the next word, and how many words are left.
    word
        The word that is moved.
    count
        Bytes still to take or to send.
    """

    writes: Signal
    address: Value
    left: Value
    word: Signal
    count: Signal

    @property
    def in_memory(self) -> Value:
        """Whether the next word is one of the memory."""
        return self.address[MEMORY_BIT]

    def advance(self, m: Module) -> None:
        """Go on to the next word."""
        m.d.sync += [
            self.address.eq(self.address + REGISTER_BYTES),
            self.left.eq(self.left - 1),
        ]


class SerialBridge(Unit):
    """Executes commands, one word at a time.

    Attributes
    ----------
    received, sent
        Bytes from and to the host.
    registers
        The accelerator's registers.
    memory_address, memory_write, memory_word, memory_read
        Byte address of a word of the memory; write this word in this cycle; what was read
        `MEMORY_READ_CYCLES` after the address was given.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "received": In(stream.Signature(unsigned(8))),
                "sent": Out(stream.Signature(unsigned(8))),
                "registers": Out(WordPort()),
                "memory_address": Out(ADDRESS_BITS),
                "memory_write": Out(1),
                "memory_word": Out(REGISTER_BITS),
                "memory_read": In(REGISTER_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        registers = self.registers
        writes = Signal()
        head = Signal(8 * _HEAD_BYTES)
        word = Signal(REGISTER_BITS)
        count = Signal(range(_HEAD_BYTES + 1))
        address, left = head[:ADDRESS_BITS], head[ADDRESS_BITS:]
        command = _Command(writes=writes, address=address, left=left, word=word, count=count)
        m.d.comb += [
            self.memory_address.eq(address[:MEMORY_BIT]),
            self.memory_word.eq(word),
            registers.aw.payload.eq(address[:SPACE_BITS]),
            registers.ar.payload.eq(address[:SPACE_BITS]),
            registers.w.payload.eq(word),
        ]
        with m.FSM():
            self._take_command(m, command, head)
            self._write_word(m, command)
            self._read_word(m, command)
            self._send(m, command)
        return m

    def _take_command(self, m: Module, command: _Command, head: Signal) -> None:
        """Take letter and head of a command, and see what is to be done next."""
        data, count = self.received.payload, command.count
        with m.State("take letter"):
            m.d.comb += self.received.ready.eq(1)
            m.d.sync += [command.writes.eq(data == WRITE), count.eq(_HEAD_BYTES)]
            with m.If(self.received.valid & ((data == READ) | (data == WRITE))):
                m.next = "take head"
        with m.State("take head"):
            self._take_byte(m, head, count)
            with m.If(count == 0):
                m.next = "begin word"
        with m.State("begin word"):
            m.d.sync += count.eq(REGISTER_BYTES)
            with m.If(command.left == 0):
                m.next = "take letter"
                with m.If(command.writes):
                    m.d.sync += command.word.eq(ACKNOWLEDGE)
                    m.d.sync += count.eq(1)
                    m.next = "send bytes"
            with m.Elif(command.writes):
                m.next = "take word"
            with m.Elif(command.in_memory):
                m.next = "wait for memory"
            with m.Else():
                m.next = "ask register"

    def _take_byte(self, m: Module, target: Signal, count: Signal) -> None:
        """Shift a byte of the host into `target` while some are missing."""
        m.d.comb += self.received.ready.eq(count != 0)
        with m.If(self.received.valid & self.received.ready):
            m.d.sync += [target.eq(Cat(target[8:], self.received.payload)), count.eq(count - 1)]

    def _write_word(self, m: Module, command: _Command) -> None:
        registers = self.registers
        with m.State("take word"):
            self._take_byte(m, command.word, command.count)
            with m.If(command.count == 0):
                m.next = "write register"
                with m.If(command.in_memory):
                    m.next = "write memory"
        with m.State("write memory"):
            m.d.comb += self.memory_write.eq(1)
            command.advance(m)
            m.next = "begin word"
        with m.State("write register"):
            # The registers take address and word together.
            m.d.comb += [registers.aw.valid.eq(1), registers.w.valid.eq(1)]
            with m.If(registers.aw.ready & registers.w.ready):
                m.next = "await response"
        with m.State("await response"):
            m.d.comb += registers.b.ready.eq(1)
            with m.If(registers.b.valid):
                command.advance(m)
                m.next = "begin word"

    def _read_word(self, m: Module, command: _Command) -> None:
        registers = self.registers
        waited = Signal(range(MEMORY_READ_CYCLES))
        with m.State("wait for memory"):
            m.d.sync += waited.eq(waited + 1)
            with m.If(waited == MEMORY_READ_CYCLES - 2):
                m.d.sync += waited.eq(0)
                m.next = "take memory"
        with m.State("take memory"):
            m.d.sync += command.word.eq(self.memory_read)
            m.next = "send word"
        with m.State("ask register"):
            m.d.comb += registers.ar.valid.eq(1)
            with m.If(registers.ar.ready):
                m.next = "take register"
        with m.State("take register"):
            m.d.comb += registers.r.ready.eq(1)
            m.d.sync += command.word.eq(registers.r.payload)
            with m.If(registers.r.valid):
                m.next = "send word"

    def _send(self, m: Module, command: _Command) -> None:
        """Send the word that was read, or the byte that acknowledges."""
        word, count = command.word, command.count
        with m.State("send word"):
            command.advance(m)
            m.next = "send bytes"
        with m.State("send bytes"):
            m.d.comb += [self.sent.valid.eq(1), self.sent.payload.eq(word[:8])]
            with m.If(self.sent.ready):
                m.d.sync += [word.eq(word >> 8), count.eq(count - 1)]
                with m.If(count == 1):
                    m.next = "begin word"
                    with m.If(command.writes):
                        m.next = "take letter"
