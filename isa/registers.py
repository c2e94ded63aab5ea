"""The control registers: what the host sees of the accelerator through its AXI4-Lite port."""

from enum import IntEnum, IntFlag

from tilewright.isa.memories import Engine

#: Version of the instruction set, its encoding and these registers.
ISA_VERSION = 1
#: Value of `Register.IDENTIFICATION`: the letters ``TLWR``.
IDENTIFICATION = int.from_bytes(b"TLWR", "big")
#: Width of a register, and bytes from one to the next.
REGISTER_BITS = 32
REGISTER_BYTES = REGISTER_BITS // 8
#: Width of a register address; the port occupies one page.
REGISTER_ADDRESS_BITS = 12


class Register(IntEnum):
    """Registers by byte offset; all are read-only unless stated otherwise."""

    #: `IDENTIFICATION`.
    IDENTIFICATION = 0x00
    #: `ISA_VERSION`.
    ISA_VERSION = 0x04
    #: What `Control` says; written only, and only its bits that are 1 act.
    CONTROL = 0x08
    #: `Status` bits.
    STATUS = 0x0C
    #: First 16 bytes of `config_digest`, read as a big-endian number, the highest word first.
    CONFIG_DIGEST_0 = 0x10
    CONFIG_DIGEST_1 = 0x14
    CONFIG_DIGEST_2 = 0x18
    CONFIG_DIGEST_3 = 0x1C
    #: DRAM address of the program; read and written.
    CODE_ADDRESS = 0x20
    #: Instructions of the program, `Finish` included; read and written.
    INSTRUCTION_COUNT = 0x24
    #: Cycles without any step, start or finish after which a program counts as stalled, 0 for
    #: never; read and written.
    WATCHDOG_CYCLES = 0x28
    #: 1 to raise the interrupt while `Status.DONE` or `Status.STALLED` is set; read and written.
    INTERRUPT_ENABLE = 0x2C
    #: Cycles since the start, until the end.
    CYCLES_LOW = 0x30
    CYCLES_HIGH = 0x34


class Control(IntFlag):
    """Commands."""

    #: Run the program; clears `Status`.
    START = 1
    #: Bring the accelerator into its first state. Only while no program runs or it has stalled:
    #: answers of the memory that are still to come would be taken for those of the next program.
    RESET = 2
    #: Clear `Status.DONE` and `Status.STALLED`.
    CLEAR = 4


class Status(IntFlag):
    """State of the program."""

    RUNNING = 1
    #: It has reached `Finish`.
    DONE = 2
    #: The watchdog has seen no progress.
    STALLED = 4


class EngineRegister(IntEnum):
    """Registers of each engine, by offset from `engine_base`; all read-only."""

    #: Bits 0 to 3: engines whose token its next instruction lacks; bit 4: its queue holds an
    #: instruction; bit 5: it is making steps of one.
    STATE = 0x00
    #: Instructions that have started and finished since the start of the program.
    STARTED = 0x04
    FINISHED = 0x08
    #: Cycles by what the engine did, as `docs/microarchitecture.md` names them.
    BUSY = 0x0C
    MEMORY_WAIT = 0x10
    TOKEN_WAIT = 0x14
    FETCH_WAIT = 0x18
    DRAIN = 0x1C


def engine_base(engine: Engine) -> int:
    """Byte offset of the registers of an engine."""
    return 0x80 + 0x20 * engine
