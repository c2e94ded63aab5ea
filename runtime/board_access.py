"""How a driver reaches a board: registers, memory that the accelerator sees, and the bitstream."""

from pathlib import Path
from typing import Protocol

from tilewright.isa.errors import TilewrightError
from tilewright.runtime.board_machine import Bytes, Window

__all__ = ["BoardAccess", "BoardError", "Buffer", "Interrupt", "Window"]


class BoardError(TilewrightError):
    """A board cannot be used, or has failed."""


class Buffer(Protocol):
    """Memory that lies in one piece, seen by the processor through its caches."""

    @property
    def physical_address(self) -> int:
        """Where the accelerator finds it, a multiple of a page."""
        ...

    @property
    def data(self) -> Bytes:
        """What the processor sees."""
        ...

    def flush(self) -> None:
        """Let the accelerator see what the processor has written."""
        ...

    def invalidate(self) -> None:
        """Let the processor see what the accelerator has written."""
        ...

    def free(self) -> None:
        """Give the memory back."""
        ...


class Interrupt(Protocol):
    """An interrupt that is masked when it comes."""

    def arm(self) -> None:
        """Let the next interrupt come through, or the present one where it is still raised."""
        ...

    def wait(self, seconds: float) -> bool:
        """Say whether an interrupt has come since `arm`, or comes within some seconds."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


class BoardAccess(Protocol):
    """What the operating system of a board offers."""

    @property
    def name(self) -> str:
        """What it goes through."""
        ...

    def download(self, bitstream: Path) -> None:
        """Configure the programmable logic; raises `BoardError` where that fails."""
        ...

    def window(self, address: int, size_bytes: int) -> Window:
        """Map registers; raises `BoardError` where that is not allowed."""
        ...

    def allocate(self, size_bytes: int) -> Buffer:
        """Take memory; raises `BoardError` where there is none."""
        ...

    def interrupt(self) -> Interrupt | None:
        """Open the first interrupt of the programmable logic, where the system offers it."""
        ...
