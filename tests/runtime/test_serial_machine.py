"""A board at a serial port, its design Verilated behind a terminal: self-test, faults, recovery."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_serial import FakeSerialBoard

from tilewright.boards.catalogue import ULX3S
from tilewright.boards.project import build_record
from tilewright.boards.toolchains import Toolchain
from tilewright.compiler.compile import compile_graph
from tilewright.isa.errors import ConfigError, DeadlockError
from tilewright.isa.memories import Engine
from tilewright.isa.presets import TINY
from tilewright.isa.registers import Register
from tilewright.runtime.board_access import BoardError
from tilewright.runtime.board_machine import Patch, Region
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.selftest import examine
from tilewright.runtime.selftest_network import network_input, small_network
from tilewright.runtime.selftest_programs import load_chain
from tilewright.runtime.selftest_report import Verdict
from tilewright.runtime.serial_machine import SerialMachine
from tilewright.sim.rtl_build import ToolError, find_toolchain

CONFIG = TINY.replace(name="serial", clock_mhz=50.0, dram=ULX3S.config.dram)


@pytest.fixture(scope="module")
def board() -> Iterator[FakeSerialBoard]:
    pytest.importorskip("serial")
    try:
        find_toolchain()
    except ToolError as error:
        pytest.skip(f"{error}: {error.hint}")
    board = FakeSerialBoard(CONFIG)
    yield board
    board.close()


@pytest.fixture
def build(tmp_path: Path) -> Path:
    record = build_record(ULX3S, CONFIG, Toolchain.TRELLIS)
    (tmp_path / "config.json").write_text(json.dumps(record))
    return tmp_path


@pytest.fixture
def machine(board: FakeSerialBoard, build: Path) -> Iterator[SerialMachine]:
    with SerialMachine(board.port, build, watchdog_cycles=5000) as machine:
        yield machine


def test_it_tests_itself_and_its_memory_is_what_the_model_says(machine: SerialMachine) -> None:
    report = examine(machine)
    assert report.passed, report.checks
    skipped = [check.name for check in report.checks if check.verdict is Verdict.SKIPPED]
    assert skipped == ["instructions"]
    assert report.changes == ()
    assert report.config == CONFIG


def test_a_model_costs_what_it_costs_on_the_simulator(
    board: FakeSerialBoard, build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_BITSTREAM", str(build))
    compiled = CompiledModel(compiled=compile_graph(small_network(), CONFIG))
    here, there = (
        compiled.run(network_input(), device) for device in ("sim", f"ulx3s:{board.port}")
    )
    assert there.stats.cycles == here.stats.cycles
    for name, values in here.outputs.items():
        np.testing.assert_array_equal(there.outputs[name], values)


def test_bytes_that_begin_and_end_within_words_leave_their_neighbours(
    board: FakeSerialBoard, build: Path, rng: np.random.Generator
) -> None:
    with SerialMachine(board.port, build) as machine:
        program = load_chain(CONFIG, 1)
        place = program.code_address + program.code_bytes
        before = rng.integers(0, 256, 64, dtype=np.uint8)
        around = Region(address=place, size_bytes=64)
        for begin, size in ((0, 64), (1, 2), (3, 6), (4, 8), (13, 1), (30, 5)):
            data = rng.integers(0, 256, size, dtype=np.uint8)
            patches = [
                Patch(address=place, data=before),
                Patch(address=place + begin, data=data),
            ]
            expected = before.copy()
            expected[begin : begin + size] = data
            (got,) = machine.run(program, patches, [around]).regions
            np.testing.assert_array_equal(got, expected)


def test_a_deadlock_is_told_and_the_next_run_works(machine: SerialMachine) -> None:
    program = load_chain(CONFIG, 3)
    broken = [
        replace(item, signal=0) if item.engine is Engine.VECTOR else item
        for item in program.instructions
    ]
    place = max(i for i, item in enumerate(broken) if item.engine is Engine.LOAD)
    with pytest.raises(DeadlockError) as caught:
        machine.run(replace(program, instructions=tuple(broken)), [], [])
    assert str(caught.value).startswith("the accelerator stands still: load waits for a token from")
    assert f"vector waits for a token from load at instruction {place - 1}" in str(caught.value)
    assert machine.run(program, [], []).cycles > 0


def test_a_command_that_was_left_in_its_middle_is_ended(
    board: FakeSerialBoard, build: Path
) -> None:
    with SerialMachine(board.port, build) as machine:
        machine.run(load_chain(CONFIG, 2), [], [])
        machine._line._send(b"W" + (1 << 31 | 0x2000).to_bytes(4, "little") + b"\x00\x04abcdefg")
    with SerialMachine(board.port, build) as machine:
        machine.run(load_chain(CONFIG, 2), [], [])


def test_another_bitstream_is_refused(board: FakeSerialBoard, build: Path) -> None:
    record = build_record(ULX3S, CONFIG.replace(queue_entries=8), Toolchain.TRELLIS)
    (build / "config.json").write_text(json.dumps(record))
    with pytest.raises(BoardError, match=r"^the accelerator has the digest \w{16}, its config"):
        SerialMachine(board.port, build)


def test_a_program_of_another_configuration_is_refused(machine: SerialMachine) -> None:
    with pytest.raises(ConfigError, match=r"queue_entries 8 instead of 4"):
        machine.run(load_chain(CONFIG.replace(queue_entries=8), 1), [], [])


def test_a_board_without_its_bitstream_is_told(
    board: FakeSerialBoard, build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.runtime.serial_line._ANSWER_SECONDS", 0.05)
    board.is_silent = True
    with pytest.raises(BoardError) as caught:
        SerialMachine(board.port, build)
    board.is_silent = False
    assert str(caught.value) == f"the board at {board.port} does not answer: 0 of 4 bytes came"
    with SerialMachine(board.port, build) as machine:
        assert machine.registers.read(Register.ISA_VERSION) == 1


def test_a_program_that_still_runs_is_told(board: FakeSerialBoard, build: Path) -> None:
    program = load_chain(CONFIG, 3)
    broken = [
        replace(item, signal=0) if item.engine is Engine.VECTOR else item
        for item in program.instructions
    ]
    with SerialMachine(board.port, build, watchdog_cycles=0, run_seconds=0.05) as machine:
        with pytest.raises(BoardError, match=r"^the accelerator has not finished in 0.05 s: "):
            machine.run(replace(program, instructions=tuple(broken)), [], [])
        with pytest.raises(BoardError) as caught:
            machine.run(program, [], [])
    assert str(caught.value) == f"a program still runs on the board at {board.port}"


def test_a_port_that_is_not_there_is_told(build: Path) -> None:
    pytest.importorskip("serial")
    with pytest.raises(BoardError, match=r"^cannot open the serial port /dev/nowhere: "):
        SerialMachine("/dev/nowhere", build)
