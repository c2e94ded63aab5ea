"""Whole models on machines elsewhere: behind a server, and on a board."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fake_pynq import FakeBoard, write_build

import tilewright as tw
from tilewright import demo
from tilewright.boards.catalogue import PYNQ_Z2
from tilewright.isa.errors import InputError
from tilewright.isa.memories import Engine
from tilewright.isa.presets import TINY
from tilewright.runtime.board_machine import SimulatorMachine
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.remote_client import TOKEN_VARIABLE, RemoteError
from tilewright.runtime.result import RunResult
from tilewright.runtime.server import Server
from tilewright.sim.rtl_build import ToolError, find_toolchain

Image = npt.NDArray[np.float32]
SMALL = TINY.replace(clock_mhz=50.0)


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeBoard]:
    """A PYNQ-Z2 with a small array, whose build the environment names."""
    try:
        find_toolchain()
    except ToolError as error:
        pytest.skip(f"{error}: {error.hint}")
    board = FakeBoard()
    write_build(tmp_path, PYNQ_Z2, SMALL)
    monkeypatch.setitem(sys.modules, "pynq", board.module())
    monkeypatch.setenv("TILEWRIGHT_BITSTREAM", str(tmp_path))
    yield board
    board.power_off()


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


def check_on_board(compiled: CompiledModel, inputs: npt.NDArray[Any]) -> RunResult:
    """Compare outputs, cycles and what each engine did with the simulator; returns the run."""
    here, there = compiled.run(inputs), compiled.run(inputs, "pynq")
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
    return there


def test_a_model_on_a_board_costs_what_the_simulator_says(board: FakeBoard, image: Image) -> None:
    there = check_on_board(tw.compile(demo.MODEL_PATH, config=SMALL), image)
    assert board.buffers == []
    with pytest.raises(InputError, match=r"^device 'pynq' does not tell when each instruction ran"):
        there.save_trace("trace.json")


@pytest.mark.slow
def test_resnet8_on_a_pynq_z2_costs_what_the_simulator_says(
    board: FakeBoard, shared_models: Path, tmp_path: Path, rng: np.random.Generator
) -> None:
    """With the board's own configuration and the timing model of its memory."""
    write_build(tmp_path, PYNQ_Z2, PYNQ_Z2.config)
    compiled = tw.compile(
        shared_models / "models" / "resnet8_cifar10_int8.tflite", config=PYNQ_Z2.config
    )
    (name,) = compiled.graph.inputs
    shape = compiled.graph.tensors[name].shape
    check_on_board(compiled, rng.integers(-128, 128, shape, dtype=np.int8))


def test_a_server_that_is_not_there_is_told(compiled_digits: CompiledModel, image: Image) -> None:
    server = Server(SimulatorMachine())
    host, port = server.address
    server.close()
    with pytest.raises(RemoteError, match=rf"^cannot reach tcp://{host}:{port}: "):
        compiled_digits.run(image, f"tcp://{host}:{port}")
