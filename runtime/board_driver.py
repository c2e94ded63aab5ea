"""The driver: runs programs on the accelerator of a board."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from typing_extensions import Self

from tilewright.isa.config import AcceleratorConfig, with_memory_speed
from tilewright.isa.config_record import config_digest
from tilewright.isa.encoding import encode_program
from tilewright.isa.errors import DeadlockError
from tilewright.isa.port_registers import (
    BASE_ALIGNMENT_BYTES,
    PORT_REGISTERS_OFFSET,
    PortRegister,
)
from tilewright.isa.program import Program, check_config
from tilewright.isa.registers import (
    IDENTIFICATION,
    ISA_VERSION,
    REGISTER_BITS,
    REGISTER_BYTES,
    Control,
    Register,
    Status,
)
from tilewright.runtime.board_access import BoardAccess, BoardError, Buffer, Window
from tilewright.runtime.board_clock import ProcessorRegisters
from tilewright.runtime.board_machine import (
    Counters,
    MachineRun,
    Patch,
    Region,
    check_places,
)
from tilewright.runtime.board_record import BITSTREAM_NAME, BoardRecord
from tilewright.runtime.board_status import describe, read_counters, read_states
from tilewright.runtime.board_wait import Waiter
from tilewright.sim.simulator import Progress

#: Longer than any wait for a memory that still works.
WATCHDOG_CYCLES = 1 << 22
#: Time in which a program may end that nobody wants any more.
_SETTLE_SECONDS = 1.0
_DIGEST_WORDS = 4


class BoardMachine:
    """The accelerator of a board; a context manager.

    Parameters
    ----------
    access
        What the operating system offers.
    folder
        A build: the bitstream and its `config.json`.
    run_seconds
        Time after which a program is given up that neither ends nor stalls.
    watchdog_cycles
        Cycles without progress after which the accelerator itself gives up.

    Raises
    ------
    TilewrightError
        If the bitstream is not that of its description, or cannot be used.
    """

    def __init__(
        self,
        access: BoardAccess,
        folder: Path,
        *,
        run_seconds: float = 60.0,
        watchdog_cycles: int = WATCHDOG_CYCLES,
    ) -> None:
        self._access = access
        self._folder = folder
        self._record = BoardRecord.load(folder)
        self._run_seconds = run_seconds
        self._watchdog_cycles = watchdog_cycles
        self._buffer: Buffer | None = None
        self._loaded: Program | None = None
        self._must_download = True
        self._interrupt = access.interrupt()
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    @property
    def config(self) -> AcceleratorConfig:
        """What the bitstream is."""
        return self._record.config

    @property
    def registers(self) -> Window:
        """The accelerator's registers."""
        return self._registers

    @property
    def description(self) -> str:
        """What it is, in one line."""
        config, board = self._record.config, self._record.board
        text = f"{board} with {config.name} at {config.clock_mhz:g} MHz through {self._access.name}"
        return f"{text}, {fault}" if (fault := self._waiter.fault) else text

    def run(
        self,
        program: Program,
        patches: Sequence[Patch],
        regions: Sequence[Region],
        progress: Progress | None = None,
    ) -> MachineRun:
        """Run a legal program once; see `Machine.run`."""
        check_config(program, with_memory_speed(self._record.config, program.config))
        check_places(program, patches, regions)
        self._prepare()
        buffer = self._load(program)
        for patch in patches:
            buffer.data[patch.address : patch.address + patch.data.size] = patch.data
        buffer.flush()
        self._start(program, buffer)
        self._wait(program, progress)
        buffer.invalidate()
        cycles = self._read_long(Register.CYCLES_LOW, Register.CYCLES_HIGH)
        return MachineRun(
            regions=tuple(
                np.array(buffer.data[region.address : region.address + region.size_bytes])
                for region in regions
            ),
            cycles=cycles,
            counters=Counters(cycles=cycles, engines=read_counters(self._registers)),
        )

    def close(self) -> None:
        """Give the memory back; the bitstream stays where it is."""
        self._free()
        if self._interrupt is not None:
            self._interrupt.close()
            self._interrupt = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(self) -> None:
        """Put the bitstream and its clock in place, and see that they are what they should be."""
        if not self._must_download:
            self._check_identity()
            return
        record = self._record
        self._access.download(self._folder / BITSTREAM_NAME)
        processor = ProcessorRegisters(self._access, record)
        processor.set_port_widths()
        processor.set_clock()
        reached = processor.clock_mhz()
        if abs(reached / record.config.clock_mhz - 1) > 1e-3:
            raise BoardError(
                f"the accelerator has a clock of {reached:g} MHz,"
                f" its bitstream was built for {record.config.clock_mhz:g} MHz"
            )
        self._registers = self._access.window(record.control_address, record.control_bytes)
        self._waiter = Waiter(self._registers, self._interrupt)
        self._check_identity()
        self._write(Register.CONTROL, Control.RESET)

    def _check_identity(self) -> None:
        """Refuse another bitstream; the next run loads the right one."""
        self._must_download = True
        found = self._read(Register.IDENTIFICATION)
        if found != IDENTIFICATION:
            raise BoardError(
                f"there is no accelerator at {self._record.control_address:#x}:"
                f" its identification reads {found:#010x}",
                hint="another bitstream may have been loaded since",
            )
        if (version := self._read(Register.ISA_VERSION)) != ISA_VERSION:
            raise BoardError(
                f"the accelerator has ISA version {version}, this is version {ISA_VERSION}"
            )
        words = [
            self._read(Register.CONFIG_DIGEST_0 + REGISTER_BYTES * word)
            for word in range(_DIGEST_WORDS)
        ]
        digest = "".join(f"{word:08x}" for word in words)
        expected = config_digest(self._record.config)[: len(digest)]
        if digest != expected:
            raise BoardError(
                f"the accelerator has the digest {digest[:16]}, its config.json says"
                f" {expected[:16]}",
                hint="copy bitstream and config.json from the same build",
            )
        self._must_download = False

    def _load(self, program: Program) -> Buffer:
        """Have the program and its constants in memory."""
        if self._buffer is not None and self._loaded is program:
            return self._buffer
        self._loaded = None
        if self._buffer is None or self._buffer.data.size < program.dram_bytes:
            self._free()
            self._buffer = self._access.allocate(program.dram_bytes)
        buffer = self._buffer
        assert buffer.physical_address % BASE_ALIGNMENT_BYTES == 0, "memory comes in pages"
        buffer.data[: program.dram_bytes] = 0
        for segment in program.constants:
            data = np.frombuffer(segment.data, dtype=np.uint8)
            buffer.data[segment.address : segment.address + data.size] = data
        code = encode_program(program.instructions, program.config)
        buffer.data[program.code_address : program.code_address + code.size] = code
        self._loaded = program
        return buffer

    def _free(self) -> None:
        self._loaded = None
        if self._buffer is not None:
            self._buffer.free()
            self._buffer = None

    def _start(self, program: Program, buffer: Buffer) -> None:
        base, mask = buffer.physical_address, (1 << REGISTER_BITS) - 1
        self._write(PORT_REGISTERS_OFFSET + PortRegister.BASE_LOW, base & mask)
        self._write(PORT_REGISTERS_OFFSET + PortRegister.BASE_HIGH, base >> REGISTER_BITS)
        self._write(PORT_REGISTERS_OFFSET + PortRegister.REFUSED, 0)
        self._write(Register.CODE_ADDRESS, program.code_address)
        self._write(Register.INSTRUCTION_COUNT, len(program.instructions))
        self._write(Register.WATCHDOG_CYCLES, self._watchdog_cycles)
        self._waiter.enable()
        self._write(Register.CONTROL, Control.CLEAR)
        self._write(Register.CONTROL, Control.START)

    def _wait(self, program: Program, progress: Progress | None) -> None:
        """Wait for the end; whatever goes wrong leaves an accelerator that can be used again."""
        total = len(program.instructions)

        def look() -> None:
            if progress is not None:
                progress(0, total)

        try:
            status = self._waiter.wait(self._run_seconds, look)
        except BaseException:
            # The caller gives up while the program runs: where it does not end by itself, only a
            # new bitstream stops it for sure.
            self._must_download = True
            with contextlib.suppress(OSError):
                self._must_download = not self._waiter.settle(_SETTLE_SECONDS)
            raise
        refused = self._read(PORT_REGISTERS_OFFSET + PortRegister.REFUSED)
        if refused:
            self._must_download = True
            raise BoardError(f"the memory has refused {refused} accesses of the accelerator")
        if status & Status.DONE:
            if progress is not None:
                progress(total, total)
            return
        said = describe(read_states(self._registers), program)
        if status & Status.STALLED:
            self._write(Register.CONTROL, Control.RESET)
            raise DeadlockError(f"the accelerator stands still: {said}")
        self._must_download = True
        raise BoardError(f"the accelerator has not finished in {self._run_seconds:g} s: {said}")

    def _read(self, offset: int) -> int:
        return self._registers.read(offset)

    def _write(self, offset: int, value: int) -> None:
        self._registers.write(offset, int(value))

    def _read_long(self, low: int, high: int) -> int:
        return self._read(low) | self._read(high) << REGISTER_BITS
