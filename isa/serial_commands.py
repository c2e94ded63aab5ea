"""The commands by which a host reaches registers and memory over a serial line.

A command is a letter, four bytes of address and two bytes of count, little endian. `READ` answers
with as many words of 32 bits; `WRITE` is followed by them and answers with `ACKNOWLEDGE`. The
address is a multiple of four, and grows with every word. Any other letter is ignored, so that zeros
bring both sides back into step.
"""

READ, WRITE = ord("R"), ord("W")
#: Answer to a write.
ACKNOWLEDGE = 0x06
#: Bit of an address that chooses the memory instead of the registers.
MEMORY_BIT = 31
#: Widths of address and count.
SERIAL_ADDRESS_BYTES, SERIAL_COUNT_BYTES = 4, 2
#: Bits per second of the line: 8 data bits, no parity, one stop bit.
BAUD = 1_000_000
