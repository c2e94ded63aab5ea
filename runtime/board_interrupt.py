"""The accelerator's interrupt through Linux's userspace I/O: a file that is read when it comes.

PYNQ's images name the first interrupt of the programmable logic ``fabric`` in their device tree.
Its driver (the kernel's `driver-api/uio-howto`) masks the interrupt when it comes, until a word
that is not 0 is written. The class `pynq.Interrupt` reads the same file, but wants an interrupt
controller in the bitstream, which one interrupt does without.
"""

import os
import select
from pathlib import Path

from typing_extensions import Self

_DEVICES = "sys/class/uio"
_NAME = "fabric"
_WORD_BYTES = 4


class UioInterrupt:
    """An interrupt of a device of userspace I/O."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def find(cls, root: Path = Path("/")) -> Self | None:
        """Open the first interrupt of the programmable logic, where the kernel offers it.

        Parameters
        ----------
        root
            Folder that holds `dev` and `sys`.
        """
        for folder in sorted((root / _DEVICES).glob("uio*")):
            try:
                if (folder / "name").read_text().strip() == _NAME:
                    return cls(os.open(root / "dev" / folder.name, os.O_RDWR | os.O_NOCTTY))
            except OSError:
                continue
        return None

    def arm(self) -> None:
        """Let the next interrupt come through, or the present one where it is still raised."""
        os.write(self._descriptor, (1).to_bytes(_WORD_BYTES, "little"))

    def wait(self, seconds: float) -> bool:
        """Say whether an interrupt has come since `arm`, or comes within some seconds."""
        readable, _, _ = select.select([self._descriptor], [], [], seconds)
        if readable:
            os.read(self._descriptor, _WORD_BYTES)
        return bool(readable)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
