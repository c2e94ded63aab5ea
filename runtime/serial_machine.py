"""The machine of a board at a serial port, whose accelerator has its memory on the chip."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from typing_extensions import Self

from tilewright.isa.config import AcceleratorConfig, with_memory_speed
from tilewright.isa.encoding import encode_program
from tilewright.isa.program import Program, check_config
from tilewright.runtime.board_access import BoardError
from tilewright.runtime.board_control import RUN_SECONDS, WATCHDOG_CYCLES, AcceleratorControl
from tilewright.runtime.board_machine import MachineRun, Patch, Region, Window, check_places
from tilewright.runtime.board_record import RECORD_NAME, load_config
from tilewright.runtime.selftest_registers import check_registers
from tilewright.runtime.serial_line import SerialLine
from tilewright.sim.simulator import Progress


class SerialMachine:
    """The accelerator of a board at a serial port; a context manager.

    Parameters
    ----------
    port
        Name of the port.
    folder
        A build, of which `config.json` is read; the bitstream is loaded already.
    run_seconds, watchdog_cycles
        Those of `AcceleratorControl`.

    Raises
    ------
    TilewrightError
        If nothing answers, or what answers is not that build.
    """

    def __init__(
        self,
        port: str,
        folder: Path,
        *,
        run_seconds: float = RUN_SECONDS,
        watchdog_cycles: int = WATCHDOG_CYCLES,
    ) -> None:
        self._port = port
        self._config = load_config(folder / RECORD_NAME)
        self._loaded: Program | None = None
        self._line = SerialLine.open(port)
        self._control = AcceleratorControl(
            self._line, run_seconds=run_seconds, watchdog_cycles=watchdog_cycles
        )
        try:
            self._line.synchronise()
            self._control.check_identity(self._config, port)
            self._control.reset()
        except BaseException:
            self.close()
            raise

    @property
    def description(self) -> str:
        """What it is, in one line."""
        config = self._config
        return f"{config.name} at {config.clock_mhz:g} MHz behind {self._port}"

    @property
    def config(self) -> AcceleratorConfig:
        """What the bitstream is."""
        return self._config

    @property
    def registers(self) -> Window:
        """The accelerator's registers."""
        return self._line

    def check_registers(self) -> str:
        """Try the accelerator's registers; see `Machine.check_registers`."""
        return check_registers(self._line)

    def run(
        self,
        program: Program,
        patches: Sequence[Patch],
        regions: Sequence[Region],
        progress: Progress | None = None,
    ) -> MachineRun:
        """Run a legal program once; see `Machine.run`."""
        check_config(program, with_memory_speed(self._config, program.config))
        check_places(program, patches, regions)
        if self._control.lost:
            raise BoardError(
                f"a program still runs on the board at {self._port}",
                hint="load its bitstream again",
            )
        self._load(program)
        for patch in patches:
            self._line.write_memory(patch.address, patch.data)
        counters = self._control.run(program, progress)
        return MachineRun(
            regions=tuple(
                self._line.read_memory(region.address, region.size_bytes) for region in regions
            ),
            cycles=counters.cycles,
            counters=counters,
        )

    def close(self) -> None:
        """Close the port."""
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self, program: Program) -> None:
        """Have the program and its constants in memory; no program writes over its own."""
        if self._loaded is program:
            return
        self._loaded = None
        for segment in program.constants:
            self._line.write_memory(segment.address, np.frombuffer(segment.data, dtype=np.uint8))
        code = encode_program(program.instructions, program.config)
        self._line.write_memory(program.code_address, code)
        self._loaded = program
