"""The control registers behind an AXI4-Lite port."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.axi import RESPONSE_BITS
from tilewright.hw.component import Unit
from tilewright.hw.counters import COUNTS
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_digest
from tilewright.isa.memories import Engine
from tilewright.isa.registers import (
    IDENTIFICATION,
    ISA_VERSION,
    REGISTER_ADDRESS_BITS,
    REGISTER_BITS,
    REGISTER_BYTES,
    Control,
    EngineRegister,
    Register,
    Status,
    engine_base,
)

#: Counter behind each counting register.
_COUNT_OF = dict(zip(list(EngineRegister)[1:], COUNTS, strict=True))
_WRITABLE = (
    Register.CODE_ADDRESS,
    Register.INSTRUCTION_COUNT,
    Register.WATCHDOG_CYCLES,
    Register.INTERRUPT_ENABLE,
)


class ControlPort(wiring.Signature):
    """An AXI4-Lite port seen from its manager."""

    def __init__(self) -> None:
        address = unsigned(REGISTER_ADDRESS_BITS)
        word, strobe = unsigned(REGISTER_BITS), unsigned(REGISTER_BYTES)
        write = data.StructLayout({"data": word, "strobe": strobe})
        super().__init__(
            {
                "aw": Out(stream.Signature(address)),
                "w": Out(stream.Signature(write)),
                "b": In(stream.Signature(unsigned(RESPONSE_BITS))),
                "ar": Out(stream.Signature(address)),
                "r": In(stream.Signature(word)),
            }
        )


class ControlRegisters(Unit):
    """Holds `Register` and `EngineRegister`, starts programs, and watches over their progress.

    Reads of what is no register give 0, writes to it have no effect. Byte strobes are ignored: a
    host writes whole registers.

    Attributes
    ----------
    port
        The AXI4-Lite port.
    interrupt
        A program has ended or stalled, and the interrupt is enabled.
    start, reset, code_address, instruction_count
        Commands to the core.
    running, done, progress, cycle
        What the core does: a program runs; it ends; something has happened in this cycle; number
        of the cycle.
    states
        Per engine, the value of `EngineRegister.STATE`.
    counts
        Per engine, its counters in the order of `COUNTS`.
    """

    def __init__(self, config: AcceleratorConfig) -> None:
        self._config = config
        engines = len(Engine)
        super().__init__(
            {
                "port": In(ControlPort()),
                "interrupt": Out(1),
                "start": Out(1),
                "reset": Out(1),
                "code_address": Out(REGISTER_BITS),
                "instruction_count": Out(REGISTER_BITS),
                "running": In(1),
                "done": In(1),
                "progress": In(1),
                "cycle": In(2 * REGISTER_BITS),
                "states": In(engines + 2).array(engines),
                "counts": In(REGISTER_BITS).array(engines, len(COUNTS)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the circuit."""
        m = Module()
        writable = {
            register: Signal(REGISTER_BITS, name=register.name.lower()) for register in _WRITABLE
        }
        command = Signal(REGISTER_BITS)
        self._write(m, writable, command)
        finished, stalled = Signal(), Signal()
        self._watch(m, command, writable[Register.WATCHDOG_CYCLES], finished, stalled)
        m.d.comb += [
            self.start.eq((command & Control.START).any()),
            self.reset.eq((command & Control.RESET).any()),
            self.code_address.eq(writable[Register.CODE_ADDRESS]),
            self.instruction_count.eq(writable[Register.INSTRUCTION_COUNT]),
            self.interrupt.eq(writable[Register.INTERRUPT_ENABLE][0] & (finished | stalled)),
        ]
        status = (
            Mux(self.running, Status.RUNNING, 0)
            | Mux(finished, Status.DONE, 0)
            | Mux(stalled, Status.STALLED, 0)
        )
        self._read(m, self._values(writable, status))
        return m

    def _write(self, m: Module, writable: dict[Register, Any], command: Signal) -> None:
        """Take an address and a word together, then answer; a command acts for one cycle."""
        port = self.port
        answering = Signal()
        taken = Signal()
        m.d.comb += [
            taken.eq(port.aw.valid & port.w.valid & ~answering),
            port.aw.ready.eq(taken),
            port.w.ready.eq(taken),
            port.b.valid.eq(answering),
        ]
        m.d.sync += command.eq(0)
        with m.If(taken):
            m.d.sync += answering.eq(1)
            with m.Switch(port.aw.payload):
                for register, value in ((Register.CONTROL, command), *writable.items()):
                    with m.Case(register):
                        m.d.sync += value.eq(port.w.payload.data)
        with m.Elif(port.b.ready):
            m.d.sync += answering.eq(0)

    def _watch(
        self, m: Module, command: Signal, limit: Value, finished: Signal, stalled: Signal
    ) -> None:
        """Note the end of a program, and the lack of progress."""
        quiet = Signal(REGISTER_BITS)
        clears = (command & (Control.START | Control.RESET | Control.CLEAR)).any()
        with m.If(self.progress | ~self.running):
            m.d.sync += quiet.eq(0)
        with m.Else():
            m.d.sync += quiet.eq(quiet + 1)
        with m.If(clears):
            m.d.sync += [finished.eq(0), stalled.eq(0)]
        with m.Elif(self.done):
            m.d.sync += finished.eq(1)
        with m.Elif((limit != 0) & (quiet == limit)):
            m.d.sync += stalled.eq(1)

    def _values(self, writable: dict[Register, Any], status: Value) -> dict[int, Any]:
        """What each register shows, by address."""
        digest = bytes.fromhex(config_digest(self._config))
        values: dict[int, Any] = {
            Register.IDENTIFICATION: IDENTIFICATION,
            Register.ISA_VERSION: ISA_VERSION,
            Register.STATUS: status,
            Register.CYCLES_LOW: self.cycle[:REGISTER_BITS],
            Register.CYCLES_HIGH: self.cycle[REGISTER_BITS:],
        }
        values.update({int(register): value for register, value in writable.items()})
        for number in range(4):
            word = digest[REGISTER_BYTES * number : REGISTER_BYTES * (number + 1)]
            address = Register.CONFIG_DIGEST_0 + REGISTER_BYTES * number
            values[address] = int.from_bytes(word, "big")
        for engine in Engine:
            base = engine_base(engine)
            values[base + EngineRegister.STATE] = self.states[engine]
            for number, register in enumerate(_COUNT_OF):
                values[base + register] = self.counts[engine][number]
        return values

    def _read(self, m: Module, values: dict[int, Any]) -> None:
        """Take an address, and show the register in the next cycle."""
        port = self.port
        m.d.comb += port.ar.ready.eq(~port.r.valid)
        with m.If(port.ar.valid & port.ar.ready):
            m.d.sync += [port.r.valid.eq(1), port.r.payload.eq(0)]
            with m.Switch(port.ar.payload):
                for address, value in values.items():
                    with m.Case(address):
                        m.d.sync += port.r.payload.eq(value)
        with m.Elif(port.r.ready):
            m.d.sync += port.r.valid.eq(0)
