"""Registers between the accelerator and the memory of a board, one page above its own registers."""

from enum import IntEnum

from tilewright.isa.registers import REGISTER_ADDRESS_BITS

#: Byte offset of the first of them from the accelerator's first register.
PORT_REGISTERS_OFFSET = 1 << REGISTER_ADDRESS_BITS
#: Bytes of both pages.
REGISTER_SPACE_BYTES = 2 * PORT_REGISTERS_OFFSET
#: Physical addresses that a program's byte 0 may have are multiples of this.
BASE_ALIGNMENT_BYTES = 4096


class PortRegister(IntEnum):
    """Registers by byte offset from `PORT_REGISTERS_OFFSET`."""

    #: Physical address of DRAM byte 0 of the program, a page; read and written.
    BASE_LOW = 0x00
    BASE_HIGH = 0x04
    #: Accesses that the memory has refused (AXI responses SLVERR and DECERR), from 0 to 2**32 - 1;
    #: any write clears it.
    REFUSED = 0x08
