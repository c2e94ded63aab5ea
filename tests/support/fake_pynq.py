"""A stand-in for the package pynq on a board: its accelerator is the Verilated design of the board.

Memory and caches are apart: what the processor writes reaches the accelerator by a flush alone, and
the other way round by an invalidate, so a missing call shows as wrong data. Registers, memory ports
and interrupt are those of the design; nothing here knows what a program is.
"""

import contextlib
import json
import os
import pty
import select
import threading
import tty
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
from board_hardware import MEMORY_ADDRESS, MEMORY_BYTES, BoardHardware

from tilewright.boards.board import Board
from tilewright.boards.catalogue import PYNQ_Z2
from tilewright.boards.hwh import hardware_description
from tilewright.boards.project import build_record
from tilewright.boards.toolchains import Toolchain
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_from_record, config_to_record
from tilewright.isa.registers import Register

#: Registers of the processors: PLLs and clock 0, and the lock of the Zynq-7000.
ARM_PLL, DDR_PLL, IO_PLL = 0xF800_0100, 0xF800_0104, 0xF800_0108
CLOCK, UNLOCK, UNLOCK_KEY = 0xF800_0170, 0xF800_0008, 0xDF0D
IOPLL_MP, CLOCK_MP = 0xFF5E_0020, 0xFF5E_00C0
#: Cycles of the accelerator between two looks of the processor at its status, and between two looks
#: at the interrupt.
_LOOK_CYCLES, _INTERRUPT_CYCLES = 2000, 20_000
_PAGE_BYTES = 4096
_BEGIN, _END = b"bitstream:", b":end"


def write_build(folder: Path, board: Board, config: AcceleratorConfig) -> None:
    """Write the files of a build; the bitstream says which design it holds."""
    record = build_record(board, config, Toolchain.VIVADO)
    (folder / "config.json").write_text(json.dumps(record))
    (folder / "tilewright.hwh").write_text(hardware_description(config, board))
    text = json.dumps(config_to_record(config)).encode()
    (folder / "tilewright.bit").write_bytes(_BEGIN + text + _END)


class FakeBuffer(np.ndarray[Any, np.dtype[np.uint8]]):
    """What `allocate` returns: the processor's view of a piece of memory."""

    board: "FakeBoard"
    device_address: int

    def flush(self) -> None:
        if not self.board.flush_is_missing:
            memory = self._memory()
            memory[:] = self[: memory.size]

    def invalidate(self) -> None:
        if not self.board.invalidate_is_missing:
            memory = self._memory()
            self[: memory.size] = memory

    def freebuffer(self) -> None:
        self.board.buffers.remove(self.device_address)

    def _memory(self) -> npt.NDArray[np.uint8]:
        begin = self.device_address - MEMORY_ADDRESS
        return self.board.memory[begin : begin + self.size]


@dataclass(eq=False)
class FakeBoard:
    """The board. Faults are attributes that a test sets."""

    board: Board = PYNQ_Z2
    processor: dict[int, int] = field(default_factory=dict)
    buffers: list[int] = field(default_factory=list)
    #: The programmable logic, once configured.
    hardware: "BoardHardware | _OtherDesign | None" = None
    downloads: int = 0
    #: Bytes that `allocate` has.
    free_bytes: int = MEMORY_BYTES // 2
    #: Where `allocate` finds memory.
    memory_begin: int = MEMORY_ADDRESS + 2 * _PAGE_BYTES
    #: Writes of the clock have no effect.
    clock_is_stuck: bool = False
    flush_is_missing: bool = False
    invalidate_is_missing: bool = False

    def __post_init__(self) -> None:
        self.memory = np.zeros(MEMORY_BYTES + 64, np.uint8)
        self.lock = threading.RLock()
        self.processor |= {IO_PLL: 20 << 12, ARM_PLL: 26 << 12, DDR_PLL: 21 << 12}
        self.processor[CLOCK] = 10 << 8 | 1 << 20
        self.processor |= {IOPLL_MP: 45 << 8, CLOCK_MP: 15 << 8 | 1 << 16}

    def module(self) -> ModuleType:
        """The package."""
        module: Any = ModuleType("pynq")
        module.__spec__ = ModuleSpec("pynq", None)
        module.Overlay = self.download
        module.MMIO = lambda address, length: FakeWindow(self, address, length)
        module.allocate = self.allocate
        return module

    def download(self, path: str) -> None:
        """Configure the programmable logic, as `pynq.Overlay` does."""
        bitstream = Path(path)
        if not bitstream.with_suffix(".hwh").is_file():
            raise OSError(f"cannot find the hardware description of {bitstream.name}")
        self.power_off()
        data = bitstream.read_bytes()
        if not (data.startswith(_BEGIN) and data.endswith(_END)):
            raise RuntimeError("fpga_manager fpga0: Error while writing image data to FPGA")
        config = config_from_record(json.loads(data[len(_BEGIN) : -len(_END)]))
        with self.lock:
            self.hardware = BoardHardware(self.board, config, self.memory)
        self.downloads += 1

    def load_another(self) -> None:
        """Be configured by somebody else, with a design whose registers read 0."""
        self.power_off()
        self.hardware = _OtherDesign()

    def power_off(self) -> None:
        """Leave the programmable logic without a design."""
        with self.lock:
            if self.hardware is not None:
                self.hardware.close()
                self.hardware = None

    def allocate(self, *, shape: tuple[int], dtype: type) -> FakeBuffer:
        assert dtype is np.uint8
        (size,) = shape
        if size > self.free_bytes:
            raise RuntimeError("Failed to allocate Memory!")
        random = np.random.default_rng(1)
        buffer = random.integers(0, 256, shape, dtype=np.uint8).view(FakeBuffer)
        buffer.board, buffer.device_address = self, self.memory_begin
        inside = self.memory[self.memory_begin - MEMORY_ADDRESS :][:size]
        inside[:] = random.integers(0, 256, inside.size, dtype=np.uint8)
        self.buffers.append(self.memory_begin)
        return buffer


class _OtherDesign:
    """A design that has nothing to do with ours."""

    def read(self, offset: int) -> int:
        return 0

    def write(self, offset: int, value: int) -> None:
        pass

    def run(self, cycles: int) -> bool:
        return False

    def close(self) -> None:
        pass


@dataclass
class FakeWindow:
    """Registers from an address on, as `pynq.MMIO` maps them."""

    board: FakeBoard
    address: int
    length: int

    def read(self, offset: int) -> int:
        assert offset % 4 == 0
        assert offset < self.length
        if self.address != self.board.board.control_address:
            return self.board.processor.get(self.address + offset, 0)
        with self.board.lock:
            hardware = self._hardware()
            if offset == Register.STATUS:
                hardware.run(_LOOK_CYCLES)
            return hardware.read(offset)

    def write(self, offset: int, value: int) -> None:
        assert offset % 4 == 0
        assert offset < self.length
        assert 0 <= value < 1 << 32
        if self.address == self.board.board.control_address:
            with self.board.lock:
                self._hardware().write(offset, value)
            return
        place, processor = self.address + offset, self.board.processor
        if place in (CLOCK, CLOCK_MP) and self.board.clock_is_stuck:
            return
        if place == CLOCK and processor.get(UNLOCK) != UNLOCK_KEY:
            return
        processor[place] = value

    def _hardware(self) -> BoardHardware | _OtherDesign:
        hardware = self.board.hardware
        assert hardware is not None, "the processor hangs: the logic is not configured"
        return hardware


class FakeUio:
    """The file of the first interrupt below a folder, a terminal that gives the kernel's words.

    Parameters
    ----------
    stuck
        False where the interrupt never comes, true where it is always raised.
    """

    def __init__(self, board: FakeBoard, root: Path, *, stuck: bool | None = None) -> None:
        self._board, self._stuck = board, stuck
        self._ours, theirs = pty.openpty()
        tty.setraw(theirs)
        folder = root / "sys/class/uio/uio0"
        folder.mkdir(parents=True)
        (folder / "name").write_text("fabric\n")
        (root / "dev").mkdir()
        (root / "dev/uio0").symlink_to(os.ttyname(theirs))
        self._theirs = theirs
        self._closing = threading.Event()
        self.interrupts = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        for descriptor in (self._ours, self._theirs):
            os.close(descriptor)

    def _serve(self) -> None:
        while not self._closing.is_set():
            if select.select([self._ours], [], [], 0.01)[0]:
                assert int.from_bytes(os.read(self._ours, 4), "little") == 1
                self._wait()

    def _wait(self) -> None:
        """Let time pass until the interrupt is raised, which masks it."""
        while not self._closing.is_set() and self._stuck is not False:
            with self._board.lock:
                hardware = self._board.hardware
                raised = self._stuck or (hardware and hardware.run(_INTERRUPT_CYCLES))
            if raised:
                self.interrupts += 1
                with contextlib.suppress(OSError):
                    os.write(self._ours, self.interrupts.to_bytes(4, "little"))
                return
