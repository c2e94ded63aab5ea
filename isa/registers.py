"""The control registers of the accelerator: addresses, bits, and the digest that they hold.

Registers have 32 bits at byte offsets that are multiples of four. A 64-bit value lies in two of
them, the low half first. `hw/` builds them, the driver in `runtime/` uses them, and the hardware
description of a bitstream lists them.
"""

import hashlib
import json
from enum import IntEnum, IntFlag

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_to_record
from tilewright.isa.memories import Engine

#: Version of instructions, semantics and registers together.
ISA_VERSION = 1
#: What `Register.ID` reads: "TLWR".
IDENTIFICATION = 0x544C_5752
#: Bytes of a register.
REGISTER_BYTES = 4
#: Bytes that the registers occupy in the address space.
REGISTER_SPACE_BYTES = 0x1000
#: Registers that hold the digest.
DIGEST_WORDS = 4


class Register(IntEnum):
    """Byte offset of each register that does not belong to an engine."""

    #: `IDENTIFICATION`.
    ID = 0x00
    #: `ISA_VERSION`.
    VERSION = 0x04
    #: First 32 bits of the hardware digest; three more registers follow.
    DIGEST_0 = 0x10
    #: Bits 32 to 63 of the hardware digest.
    DIGEST_1 = 0x14
    #: Bits 64 to 95 of the hardware digest.
    DIGEST_2 = 0x18
    #: Bits 96 to 127 of the hardware digest.
    DIGEST_3 = 0x1C
    #: `Control`; a bit acts when it is written as one, and reads as zero.
    CONTROL = 0x20
    #: `Status`.
    STATUS = 0x24
    #: Which bits of `INTERRUPT` raise the interrupt.
    INTERRUPT_ENABLE = 0x28
    #: `Interrupt`; writing a one clears a bit.
    INTERRUPT = 0x2C
    #: Physical address of byte 0 of DRAM, a multiple of 4096: low half.
    BASE_LOW = 0x30
    #: Physical address of byte 0 of DRAM: high half.
    BASE_HIGH = 0x34
    #: DRAM address of the first instruction.
    PROGRAM_ADDRESS = 0x38
    #: Number of instructions.
    PROGRAM_COUNT = 0x3C
    #: Cycles without a step, a start or a finish after which the watchdog gives up; 0: never.
    WATCHDOG_CYCLES = 0x40
    #: Cycles since the start of the program, or of the whole program: low half.
    CYCLES_LOW = 0x48
    #: Cycles: high half.
    CYCLES_HIGH = 0x4C


class EngineRegister(IntEnum):
    """Byte offset of each register of an engine from the first one of that engine."""

    #: Bit 0: an instruction waits in the queue; bit 1: one executes; bits 8 to 11: engines of
    #: which the first in the queue lacks a token.
    STATE = 0x00
    #: Instructions started since the start of the program.
    STARTED = 0x04
    #: Instructions finished since the start of the program.
    FINISHED = 0x08
    #: Cycles of the state `busy`.
    BUSY = 0x10
    #: Cycles of the state `memory-wait`.
    MEMORY_WAIT = 0x14
    #: Cycles of the state `fetch-wait`.
    FETCH_WAIT = 0x18
    #: Cycles of the state `drain`.
    DRAIN = 0x1C
    #: Cycles in which a token of the load engine was missing.
    TOKEN_WAIT_LOAD = 0x20
    #: Cycles in which a token of the gemm engine was missing.
    TOKEN_WAIT_GEMM = 0x24
    #: Cycles in which a token of the vector engine was missing.
    TOKEN_WAIT_VECTOR = 0x28
    #: Cycles in which a token of the store engine was missing.
    TOKEN_WAIT_STORE = 0x2C


class Control(IntFlag):
    """Bits of `Register.CONTROL`."""

    #: Begin the program; ignored while one runs.
    START = 1
    #: Put the core into the state after power-up; registers that can be written keep their value.
    RESET = 2


class Status(IntFlag):
    """Bits of `Register.STATUS`."""

    #: A program runs.
    RUNNING = 1
    #: The last program has ended; cleared by a start and by a reset.
    DONE = 2
    #: The watchdog has seen no progress; cleared by a start and by a reset.
    STUCK = 4
    #: The memory has refused an access; cleared by a start and by a reset.
    BUS_ERROR = 8


class Interrupt(IntFlag):
    """Bits of `Register.INTERRUPT` and `Register.INTERRUPT_ENABLE`."""

    #: A program has ended.
    DONE = 1
    #: `Status.STUCK` or `Status.BUS_ERROR` has been set.
    ERROR = 2


#: Registers that the host writes; all others are only read.
WRITABLE = (
    Register.CONTROL,
    Register.INTERRUPT_ENABLE,
    Register.INTERRUPT,
    Register.BASE_LOW,
    Register.BASE_HIGH,
    Register.PROGRAM_ADDRESS,
    Register.PROGRAM_COUNT,
    Register.WATCHDOG_CYCLES,
)

#: Bits of `EngineRegister.STATE`.
STATE_QUEUED_BIT = 0
STATE_EXECUTING_BIT = 1
STATE_WAITS_BIT = 8

_ENGINES_OFFSET = 0x100
_ENGINE_BYTES = 0x40


def engine_register(engine: Engine, register: EngineRegister) -> int:
    """Byte offset of a register of an engine."""
    return _ENGINES_OFFSET + _ENGINE_BYTES * engine + register


def token_wait_register(giver: Engine) -> EngineRegister:
    """Which register counts the cycles in which a token of `giver` was missing."""
    return EngineRegister(EngineRegister.TOKEN_WAIT_LOAD + REGISTER_BYTES * giver)


def hardware_digest(config: AcceleratorConfig) -> str:
    """Hash what a bitstream is made of, as hexadecimal SHA-256.

    Name, clock and memory model are no part of it, except `write_gap_cycles`, which is built in:
    a program runs on every board whose bitstream has the digest of its configuration.
    """
    record = config_to_record(config)
    del record["name"], record["clock_mhz"]
    record["dram"] = {"write_gap_cycles": config.dram.write_gap_cycles}
    record["isa_version"] = ISA_VERSION
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def digest_words(config: AcceleratorConfig) -> tuple[int, ...]:
    """Values of the digest registers of a configuration."""
    digest = bytes.fromhex(hardware_digest(config))
    return tuple(
        int.from_bytes(digest[4 * word : 4 * word + 4], "little") for word in range(DIGEST_WORDS)
    )
