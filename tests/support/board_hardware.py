"""The design of a board, Verilated, behind register accesses; built once and cached."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from board_bench import BENCH_NAME, BoardBench, bench_verilog
from library_cache import cached_library

from tilewright.boards.board import Board
from tilewright.boards.parts import Family
from tilewright.isa.config import AcceleratorConfig

_HARNESS = Path(__file__).with_name("board_harness.cpp")
#: Physical address of the memory that buffers are taken from, and its size.
MEMORY_ADDRESS, MEMORY_BYTES = 0x1000_0000, 1 << 27


class BoardHardware:
    """A board's design after the download of its bitstream, and the memory that it reaches."""

    def __init__(
        self,
        board: Board,
        config: AcceleratorConfig,
        memory: npt.NDArray[np.uint8],
    ) -> None:
        assert memory.size >= MEMORY_BYTES + config.port_bytes
        self._memory = memory
        self._library = _load(_build(board.part.family, board.control_address, config))
        self._board = self._library.board_make(memory.ctypes.data)

    def read(self, offset: int) -> int:
        """Read a register."""
        return self._access(0, offset, 0)

    def write(self, offset: int, value: int) -> None:
        """Write a register."""
        self._access(1, offset, value)

    def run(self, cycles: int) -> bool:
        """Let time pass until the interrupt is raised; says whether it is."""
        return bool(self._library.board_run(self._board, cycles))

    def close(self) -> None:
        """End the simulation."""
        self._library.board_free(self._board)

    def _access(self, write: int, offset: int, value: int) -> int:
        answer = ctypes.c_uint32()
        done = self._library.board_access(self._board, write, offset, value, ctypes.byref(answer))
        assert done, f"the processor hangs: no register answers at {offset:#x}"
        return answer.value


@cache
def _build(family: Family, control_address: int, config: AcceleratorConfig) -> Path:
    """Build the library, or find it."""
    bench = BoardBench(
        config,
        family,
        control_address=control_address,
        memory_address=MEMORY_ADDRESS,
        memory_bytes=MEMORY_BYTES,
    )
    return cached_library(
        f"{family.value}-{config.name}",
        bench_verilog(bench),
        top=BENCH_NAME,
        harness=_HARNESS,
        defines=[f"-DTILEWRIGHT_PORT_BYTES={config.port_bytes}"],
    )


def _load(path: Path) -> Any:
    library = ctypes.CDLL(str(path))
    pointer, word = ctypes.c_void_p, ctypes.c_uint32
    library.board_make.argtypes = [pointer]
    library.board_make.restype = pointer
    library.board_free.argtypes = [pointer]
    library.board_free.restype = None
    library.board_access.argtypes = [pointer, ctypes.c_int32, word, word, pointer]
    library.board_access.restype = ctypes.c_int32
    library.board_run.argtypes = [pointer, ctypes.c_uint64]
    library.board_run.restype = ctypes.c_int32
    return library
