"""A board at a serial port: a terminal behind which its Verilated design takes and sends bytes."""

import contextlib
import ctypes
import os
import pty
import select
import threading
import tty
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.back import verilog
from amaranth.hdl import Module
from amaranth.lib.wiring import In, Out
from library_cache import cached_library

from tilewright.boards.chip_memory import SerialAccelerator
from tilewright.hw.component import Unit
from tilewright.isa.config import AcceleratorConfig

_HARNESS = Path(__file__).with_name("serial_harness.cpp")
_TOP = "tilewright_serial_bench"
#: Cycles that pass while the host says nothing, and bytes that come at the most in between.
_CYCLES, _ROOM = 2000, 1 << 14


class SerialBench(Unit):
    """`SerialAccelerator` with names that C++ can say."""

    def __init__(self, config: AcceleratorConfig) -> None:
        self._config = config
        members: dict[str, Any] = {
            "received_valid": In(1),
            "received_ready": Out(1),
            "received_payload": In(8),
            "sent_valid": Out(1),
            "sent_ready": In(1),
            "sent_payload": Out(8),
        }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.design = design = SerialAccelerator(self._config)
        m.d.comb += [
            design.received.valid.eq(self.received_valid),
            design.received.payload.eq(self.received_payload),
            self.received_ready.eq(design.received.ready),
            self.sent_valid.eq(design.sent.valid),
            self.sent_payload.eq(design.sent.payload),
            design.sent.ready.eq(self.sent_ready),
        ]
        return m


class FakeSerialBoard:
    """The board; `port` names its terminal."""

    def __init__(self, config: AcceleratorConfig) -> None:
        self._library = _load(_build(config))
        self._ours, self._theirs = pty.openpty()
        tty.setraw(self._theirs)
        self.port = os.ttyname(self._theirs)
        self._closing = threading.Event()
        #: The board has no design, and does not answer.
        self.is_silent = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Unplug it."""
        self._closing.set()
        self._thread.join()
        for descriptor in (self._ours, self._theirs):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _serve(self) -> None:
        board = self._library.board_make()
        output = np.empty(_ROOM, np.uint8)
        while not self._closing.is_set():
            readable, _, _ = select.select([self._ours], [], [], 0.002)
            data = os.read(self._ours, 4096) if readable else b""
            if self.is_silent:
                continue
            count = self._library.board_exchange(
                board, data, len(data), output.ctypes.data, _ROOM, _CYCLES
            )
            sent = bytes(output[:count])
            while sent:
                sent = sent[os.write(self._ours, sent) :]
        self._library.board_free(board)


@cache
def _build(config: AcceleratorConfig) -> Path:
    text = verilog.convert(SerialBench(config), name=_TOP, strip_internal_attrs=True)
    return cached_library(f"serial-{config.name}", text, top=_TOP, harness=_HARNESS)


def _load(path: Path) -> Any:
    library = ctypes.CDLL(str(path))
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.board_make.restype = pointer
    library.board_free.argtypes = [pointer]
    library.board_free.restype = None
    library.board_exchange.argtypes = [
        *(pointer, ctypes.c_char_p, number),
        *(pointer, number, number),
    ]
    library.board_exchange.restype = number
    return library
