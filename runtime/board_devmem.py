"""A board without the `pynq` package: Linux's FPGA manager, `/dev/mem` and a u-dma-buf.

The FPGA manager is documented in the kernel's `driver-api/fpga`, u-dma-buf in its own
`Readme.md` (github.com/ikwzm/udmabuf). All three need the rights of root.
"""

import mmap
import os
import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tilewright.runtime.board_access import BoardError, Buffer, Interrupt, Window
from tilewright.runtime.board_interrupt import UioInterrupt
from tilewright.runtime.board_machine import Bytes

_MANAGER = "sys/class/fpga_manager/fpga0"
_FIRMWARE = "lib/firmware"
_BUFFER = "udmabuf0"
#: State of the FPGA manager after a download.
_OPERATING = "operating"


class DevMemAccess:
    """`BoardAccess` through files of the kernel.

    Parameters
    ----------
    root
        Folder that holds `dev`, `lib` and `sys`.
    """

    name = "/dev/mem"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def download(self, bitstream: Path) -> None:
        """Configure the programmable logic with the `.bin` file beside a bitstream."""
        image = bitstream.with_suffix(".bin")
        manager = self._root / _MANAGER
        if not image.is_file():
            raise BoardError(
                f"there is no {image}", hint="without pynq, the .bin file of the build is needed"
            )
        try:
            shutil.copy(image, self._root / _FIRMWARE / image.name)
            (manager / "flags").write_text("0")
            (manager / "firmware").write_text(image.name)
            state = (manager / "state").read_text().strip()
        except OSError as error:
            raise BoardError(f"cannot load {image}: {_reason(error)}") from error
        if state != _OPERATING:
            raise BoardError(f"cannot load {image}: the FPGA manager says {state!r:.60}")

    def window(self, address: int, size_bytes: int) -> Window:
        """Map registers."""
        path = self._root / "dev/mem"
        try:
            return _Window(_map(path, address, size_bytes))
        except OSError as error:
            raise BoardError(
                f"cannot reach the registers at {address:#x} through {path}: {_reason(error)}",
                hint="run this with the rights of root",
            ) from error

    def allocate(self, size_bytes: int) -> Buffer:
        """Take the buffer of u-dma-buf; there is one."""
        attributes = self._root / "sys/class/u-dma-buf" / _BUFFER
        try:
            address = int((attributes / "phys_addr").read_text(), 0)
            available = int((attributes / "size").read_text(), 0)
            if size_bytes > available:
                raise BoardError(
                    f"{_BUFFER} has {available} bytes, {size_bytes} are needed",
                    hint=f"load u-dma-buf with {_BUFFER}={size_bytes}",
                )
            return _DmaBuffer(_map(self._root / "dev" / _BUFFER, 0, size_bytes), address)
        except (OSError, ValueError) as error:
            raise BoardError(
                f"there is no contiguous memory: {_reason(error)}",
                hint=f"load the kernel module u-dma-buf with {_BUFFER}={size_bytes}",
            ) from error

    def interrupt(self) -> Interrupt | None:
        """Open the first interrupt of the programmable logic."""
        return UioInterrupt.find(self._root)


class _Window:
    """Registers in a mapped file."""

    def __init__(self, mapped: mmap.mmap) -> None:
        self._words: npt.NDArray[np.uint32] = np.frombuffer(mapped, dtype="<u4")

    def read(self, offset: int) -> int:
        """Return the register at a byte offset."""
        return int(self._words[offset // 4])

    def write(self, offset: int, value: int) -> None:
        """Write the register at a byte offset."""
        self._words[offset // 4] = value


class _DmaBuffer:
    """A mapping that bypasses the caches, as the file is opened with O_SYNC."""

    def __init__(self, mapped: mmap.mmap, address: int) -> None:
        self._address = address
        self._data: Bytes = np.frombuffer(mapped, dtype=np.uint8)

    @property
    def physical_address(self) -> int:
        """Where the accelerator finds it."""
        return self._address

    @property
    def data(self) -> Bytes:
        """What the processor sees."""
        return self._data

    def flush(self) -> None:
        """Nothing is cached."""

    def invalidate(self) -> None:
        """Nothing is cached."""

    def free(self) -> None:
        """The mapping goes with its last user."""


def _map(path: Path, offset: int, size_bytes: int) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_SYNC)
    try:
        return mmap.mmap(descriptor, size_bytes, offset=offset)
    finally:
        os.close(descriptor)


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
