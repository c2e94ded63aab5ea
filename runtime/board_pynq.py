"""A board through the `pynq` package of its image."""

from pathlib import Path
from typing import Any

import numpy as np

from tilewright.runtime.board_access import BoardError, Buffer, Interrupt, Window
from tilewright.runtime.board_interrupt import UioInterrupt
from tilewright.runtime.board_machine import Bytes


class PynqAccess:
    """`BoardAccess` through pynq 2.7 or later.

    Parameters
    ----------
    root
        Folder that holds the files of the kernel.

    Raises
    ------
    BoardError
        If the package is not there.
    """

    name = "pynq"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        try:
            import pynq
        except ImportError as error:
            raise BoardError(
                f"device pynq needs the package pynq of a board's image: {error}",
                hint="run this on the board, or use tcp://BOARD with `tilewright serve` there",
            ) from error
        self._pynq: Any = pynq

    def download(self, bitstream: Path) -> None:
        """Configure the programmable logic."""
        if not bitstream.is_file():
            raise BoardError(f"there is no bitstream {bitstream}", hint="see tilewright build")
        try:
            self._overlay = self._pynq.Overlay(str(bitstream.resolve()))
        except (OSError, RuntimeError, ValueError) as error:
            raise BoardError(f"cannot load {bitstream}: {error}") from error

    def window(self, address: int, size_bytes: int) -> Window:
        """Map registers."""
        try:
            window: Window = self._pynq.MMIO(address, size_bytes)
        except (OSError, RuntimeError, ValueError) as error:
            raise BoardError(
                f"cannot reach the registers at {address:#x}: {error}",
                hint="pynq needs the rights of root",
            ) from error
        return window

    def allocate(self, size_bytes: int) -> Buffer:
        """Take memory."""
        try:
            array = self._pynq.allocate(shape=(size_bytes,), dtype=np.uint8)
        except (OSError, RuntimeError, MemoryError) as error:
            raise BoardError(
                f"the board has no {size_bytes} bytes of contiguous memory: {error}",
                hint="end other programs that use pynq, or enlarge cma= in the boot arguments",
            ) from error
        return _PynqBuffer(array)

    def interrupt(self) -> Interrupt | None:
        """Open the first interrupt of the programmable logic."""
        return UioInterrupt.find(self._root)


class _PynqBuffer:
    """An array of `pynq.allocate`."""

    def __init__(self, array: Any) -> None:
        self._array = array

    @property
    def physical_address(self) -> int:
        """Where the accelerator finds it."""
        return int(self._array.device_address)

    @property
    def data(self) -> Bytes:
        """What the processor sees."""
        data: Bytes = self._array
        return data

    def flush(self) -> None:
        """Let the accelerator see what the processor has written."""
        self._array.flush()

    def invalidate(self) -> None:
        """Let the processor see what the accelerator has written."""
        self._array.invalidate()

    def free(self) -> None:
        """Give the memory back."""
        self._array.freebuffer()
