"""The driver: runs programs on the accelerator of a board."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from typing_extensions import Self

from tilewright.isa.config import AcceleratorConfig, with_memory_speed
from tilewright.isa.encoding import encode_program
from tilewright.isa.port_registers import (
    BASE_ALIGNMENT_BYTES,
    PORT_REGISTERS_OFFSET,
    PortRegister,
)
from tilewright.isa.program import Program, check_config
from tilewright.isa.registers import REGISTER_BITS
from tilewright.runtime.board_access import BoardAccess, BoardError, Buffer, Window
from tilewright.runtime.board_clock import ProcessorRegisters
from tilewright.runtime.board_control import (
    RUN_SECONDS,
    WATCHDOG_CYCLES,
    AcceleratorControl,
)
from tilewright.runtime.board_machine import (
    MachineRun,
    Patch,
    Region,
    check_places,
)
from tilewright.runtime.board_record import BITSTREAM_NAME, BoardRecord
from tilewright.runtime.selftest_registers import check_registers
from tilewright.sim.simulator import Progress


class BoardMachine:
    """The accelerator of a board; a context manager.

    Parameters
    ----------
    access
        What the operating system offers.
    folder
        A build: the bitstream and its `config.json`.
    run_seconds, watchdog_cycles
        Those of `AcceleratorControl`.

    Raises
    ------
    TilewrightError
        If the bitstream is not that of its description, or cannot be used.
    """

    _control: AcceleratorControl

    def __init__(
        self,
        access: BoardAccess,
        folder: Path,
        *,
        run_seconds: float = RUN_SECONDS,
        watchdog_cycles: int = WATCHDOG_CYCLES,
    ) -> None:
        self._access = access
        self._folder = folder
        self._record = BoardRecord.load(folder)
        self._run_seconds = run_seconds
        self._watchdog_cycles = watchdog_cycles
        self._buffer: Buffer | None = None
        self._loaded: Program | None = None
        #: The right bitstream was there when it was last looked at.
        self._ready = False
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
        return self._control.registers

    def check_registers(self) -> str:
        """Try the accelerator's registers; see `Machine.check_registers`."""
        return check_registers(self.registers)

    @property
    def description(self) -> str:
        """What it is, in one line."""
        config, board = self._record.config, self._record.board
        text = f"{board} with {config.name} at {config.clock_mhz:g} MHz through {self._access.name}"
        return f"{text}, {fault}" if (fault := self._control.fault) else text

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
        self._place(buffer)
        counters = self._control.run(program, progress, self._check_memory)
        buffer.invalidate()
        return MachineRun(
            regions=tuple(
                np.array(buffer.data[region.address : region.address + region.size_bytes])
                for region in regions
            ),
            cycles=counters.cycles,
            counters=counters,
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
        record, place = self._record, f"{self._record.control_address:#x}"
        if self._ready and not self._control.lost:
            self._ready = False
            self._control.check_identity(record.config, place)
            self._ready = True
            return
        self._ready = False
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
        self._control = AcceleratorControl(
            self._access.window(record.control_address, record.control_bytes),
            self._interrupt,
            run_seconds=self._run_seconds,
            watchdog_cycles=self._watchdog_cycles,
        )
        self._control.check_identity(record.config, place)
        self._control.reset()
        self._ready = True

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

    def _place(self, buffer: Buffer) -> None:
        """Tell the memory ports where byte 0 of the program lies."""
        base, mask = buffer.physical_address, (1 << REGISTER_BITS) - 1
        ports = PORT_REGISTERS_OFFSET
        self.registers.write(ports + PortRegister.BASE_LOW, base & mask)
        self.registers.write(ports + PortRegister.BASE_HIGH, base >> REGISTER_BITS)
        self.registers.write(ports + PortRegister.REFUSED, 0)

    def _check_memory(self) -> None:
        refused = self.registers.read(PORT_REGISTERS_OFFSET + PortRegister.REFUSED)
        if refused:
            self._control.lost = True
            raise BoardError(f"the memory has refused {refused} accesses of the accelerator")
