"""Check of the self-test: every register of a board's accelerator that can be written."""

from tilewright.isa.registers import REGISTER_BITS, Control, Register, Status
from tilewright.runtime.board_machine import Window
from tilewright.runtime.selftest_report import Failure

_ALL_ONES = (1 << REGISTER_BITS) - 1
_PATTERNS = (0, _ALL_ONES, 0x5555_5555, 0xAAAA_AAAA, *(1 << bit for bit in range(REGISTER_BITS)))
#: Registers that hold what is written, without any effect until a program starts.
_HOLDING = (Register.CODE_ADDRESS, Register.INSTRUCTION_COUNT, Register.WATCHDOG_CYCLES)


def check_registers(registers: Window) -> str:
    """Write patterns into all holding registers and read them back, each beside the others."""
    for number, pattern in enumerate(_PATTERNS):
        written = {
            register: pattern ^ (_ALL_ONES if (number + place) % 2 else 0)
            for place, register in enumerate(_HOLDING)
        }
        for register, value in written.items():
            registers.write(register, value)
        for register, value in written.items():
            if (found := registers.read(register)) != value:
                raise Failure(f"{register.name} reads {found:#010x}, not {value:#010x} as written")
    registers.write(Register.CONTROL, Control.CLEAR)
    if status := registers.read(Register.STATUS):
        raise Failure(f"STATUS reads {Status(status)!r} while nothing runs")
    return f"{len(_PATTERNS)} patterns in {len(_HOLDING)} registers; identity and digest are right"
