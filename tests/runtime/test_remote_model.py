"""Whole models on machines elsewhere: behind a server, and on a board."""

import json
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from fake_pynq import FakeBoard

from tilewright.boards.catalogue import PYNQ_Z2
from tilewright.boards.project import build_record
from tilewright.boards.toolchains import Toolchain
from tilewright.isa.errors import InputError
from tilewright.isa.memories import Engine
from tilewright.isa.presets import PYNQ
from tilewright.runtime.board_machine import SimulatorMachine
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.remote_client import TOKEN_VARIABLE, RemoteError
from tilewright.runtime.server import Server

Image = npt.NDArray[np.float32]


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeBoard:
    """A PYNQ-Z2 with preset pynq, whose build the environment names."""
    board = FakeBoard(config=PYNQ, memory=np.full(1 << 23, 0xA5, np.uint8))
    record = build_record(PYNQ_Z2, PYNQ, Toolchain.VIVADO)
    (tmp_path / "config.json").write_text(json.dumps(record))
    (tmp_path / "tilewright.bit").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pynq", board.module())
    monkeypatch.setenv("TILEWRIGHT_BITSTREAM", str(tmp_path))
    return board


def test_a_model_behind_a_server_costs_what_it_costs_here(
    compiled_digits: CompiledModel, image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = compiled_digits.run(image)
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    with Server(SimulatorMachine(), token="secret") as server:
        host, port = server.address
        there = compiled_digits.run(image, f"tcp://{host}:{port}")
    assert there.device.value == f"tcp://{host}:{port}"
    for name, values in here.outputs.items():
        np.testing.assert_array_equal(there.outputs[name], values)
    assert there.stats == here.stats


def test_a_model_on_a_board_costs_what_the_simulator_says(
    board: FakeBoard, compiled_digits: CompiledModel, image: Image
) -> None:
    here, there = compiled_digits.run(image), compiled_digits.run(image, "pynq")
    for name, values in here.outputs.items():
        np.testing.assert_array_equal(there.outputs[name], values)
    ours, theirs = here.stats, there.stats
    for field in ("cycles", "macs", "ideal_cycles", "dram_read_bytes", "dram_write_bytes"):
        assert getattr(theirs, field) == getattr(ours, field), field
    for engine in Engine:
        account, expected = theirs.engines[engine], ours.engines[engine]
        assert account.cycles == expected.cycles == ours.cycles
        assert sum(account.token_wait) == sum(expected.token_wait)
        assert (account.busy, account.done) == (expected.busy, expected.done)
    assert sum(layer.cycles for layer in theirs.layers) == theirs.cycles
    assert board.buffers == []
    with pytest.raises(InputError, match=r"^device 'pynq' does not tell when each instruction ran"):
        there.save_trace("trace.json")


def test_a_server_that_is_not_there_is_told(compiled_digits: CompiledModel, image: Image) -> None:
    server = Server(SimulatorMachine())
    host, port = server.address
    server.close()
    with pytest.raises(RemoteError, match=rf"^cannot reach tcp://{host}:{port}: "):
        compiled_digits.run(image, f"tcp://{host}:{port}")
