"""The driver on a board whose accelerator is the simulator: results, faults, recovery."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_pynq import ARM_PLL, CLOCK, DDR_PLL, FakeBoard, engine_counts

from tilewright.boards.catalogue import PYNQ_Z2
from tilewright.boards.project import build_record
from tilewright.boards.toolchains import Toolchain
from tilewright.isa.errors import ConfigError, DeadlockError, TilewrightError
from tilewright.isa.instructions import Load, Vector
from tilewright.isa.memories import Engine
from tilewright.isa.port_registers import PORT_REGISTERS_OFFSET, PortRegister
from tilewright.isa.presets import TINY
from tilewright.isa.program import Program
from tilewright.isa.registers import EngineRegister, Register, Status, engine_base
from tilewright.runtime.board_access import BoardError
from tilewright.runtime.board_driver import BoardMachine
from tilewright.runtime.board_machine import Bytes, Machine, Patch, Region
from tilewright.runtime.board_pynq import PynqAccess
from tilewright.runtime.remote_client import RemoteAddress, RemoteMachine
from tilewright.runtime.server import Server
from tilewright.sim.random_programs import random_program
from tilewright.sim.simulator import simulate

CONFIG = TINY.replace(clock_mhz=50.0)


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> FakeBoard:
    board = FakeBoard(config=CONFIG)
    monkeypatch.setitem(sys.modules, "pynq", board.module())
    return board


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """The folder of a build, with an empty bitstream."""
    record = build_record(PYNQ_Z2, CONFIG, Toolchain.VIVADO)
    (tmp_path / "config.json").write_text(json.dumps(record))
    (tmp_path / "tilewright.bit").write_bytes(b"")
    return tmp_path


@pytest.fixture
def machine(board: FakeBoard, build: Path) -> Iterator[BoardMachine]:
    with BoardMachine(PynqAccess(), build, run_seconds=0.05) as machine:
        yield machine


@pytest.fixture(scope="module")
def program() -> Program:
    return random_program(CONFIG, 7, size=24)


def free_place(program: Program, size: int) -> int:
    """First of some bytes that are neither code nor constants."""
    taken = np.zeros(program.dram_bytes, dtype=bool)
    taken[program.code_address : program.code_address + program.code_bytes] = True
    for segment in program.constants:
        taken[segment.address : segment.address + len(segment.data)] = True
    runs = np.lib.stride_tricks.sliding_window_view(~taken, size).all(axis=1)
    return int(np.flatnonzero(runs)[0])


def check_run(
    machine: Machine, program: Program, seed: int = 0, before: Bytes | None = None
) -> Bytes:
    """Run with random bytes in a free place; compare counters and all of DRAM, and return it."""
    dram = program.initial_dram() if before is None else before.copy()
    data = np.random.default_rng(seed).integers(0, 256, 16, dtype=np.uint8)
    place = free_place(program, data.size)
    dram[place : place + data.size] = data
    expected = simulate(program, dram)
    whole = Region(address=0, size_bytes=program.dram_bytes)
    run = machine.run(program, [Patch(address=place, data=data)], [whole])
    np.testing.assert_array_equal(run.regions[0], expected.dram)
    assert run.cycles == expected.timeline.cycles
    assert run.counters is not None
    for engine in Engine:
        counted = run.counters.engines[engine]
        for part, value in engine_counts(expected.timeline, engine).items():
            assert getattr(counted, part.name.lower()) == value, (engine, part)
    return expected.dram


def test_programs_leave_what_they_leave_on_the_simulator(
    board: FakeBoard, machine: BoardMachine
) -> None:
    for seed in range(4):
        check_run(machine, random_program(CONFIG, seed, size=20))
    assert board.downloads == 1


def test_a_program_that_runs_again_is_loaded_once(
    board: FakeBoard, machine: BoardMachine, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = check_run(machine, program)
    monkeypatch.setattr("tilewright.runtime.board_driver.encode_program", None)
    check_run(machine, program, seed=1, before=left)
    assert len(board.buffers) == 1


def test_memory_is_given_back(board: FakeBoard, build: Path, program: Program) -> None:
    with BoardMachine(PynqAccess(), build) as machine:
        check_run(machine, program)
        assert len(board.buffers) == 1
    assert board.buffers == []


def test_the_clock_and_the_ports_are_set(board: FakeBoard, machine: BoardMachine) -> None:
    value = board.processor[CLOCK]
    # 50 MHz, from the first PLL that divides to it: the I/O PLL of 1000 MHz by 20.
    assert (value >> 4 & 3, (value >> 8 & 63) * (value >> 20 & 63)) == (0, 20)
    assert board.processor[0xF800_8000] & 1 == 0
    assert machine.description == "pynq-z2 with tiny at 50 MHz through pynq"


def test_a_program_of_another_configuration_is_refused(machine: BoardMachine) -> None:
    other = random_program(CONFIG.replace(block_out=8), 0, size=6)
    with pytest.raises(ConfigError, match=r"block_out 8 instead of 4"):
        machine.run(other, [], [])


def refuse(
    board: FakeBoard, build: Path, message: str, error: type[TilewrightError] = BoardError
) -> None:
    with pytest.raises(error) as caught:
        BoardMachine(PynqAccess(), build)
    assert str(caught.value) == message


def test_another_bitstream_is_refused(board: FakeBoard, build: Path) -> None:
    board.config = CONFIG.replace(queue_entries=8)
    with pytest.raises(BoardError, match=r"^the accelerator has the digest \w{16}, its config"):
        BoardMachine(PynqAccess(), build)


def test_no_accelerator_is_told(board: FakeBoard, build: Path) -> None:
    def download(path: str) -> None:
        board.registers = {}

    sys.modules["pynq"].Overlay = download  # type: ignore[attr-defined]
    message = "there is no accelerator at 0x43c00000: its identification reads 0x00000000"
    refuse(board, build, message)


def test_a_download_that_breaks_off_is_told(board: FakeBoard, build: Path) -> None:
    board.download_error = OSError("fpga_manager: write error")
    refuse(board, build, f"cannot load {build / 'tilewright.bit'}: fpga_manager: write error")
    board.download_error = None
    with BoardMachine(PynqAccess(), build) as machine:
        assert machine.description


def test_a_board_with_another_pll_is_refused(board: FakeBoard, build: Path) -> None:
    record = json.loads((build / "config.json").read_text())
    record["clock"]["pll"] = "DDR_PLL"
    (build / "config.json").write_text(json.dumps(record))
    # 50 MHz would be a 67th of it, which two divisors up to 63 cannot make.
    board.processor[DDR_PLL] = 67 << 12
    refuse(
        board,
        build,
        "the board cannot make the bitstream's clock of 50 MHz: its DDR_PLL runs at 3350 MHz",
    )


def test_a_clock_that_stays_wrong_is_told(board: FakeBoard, build: Path) -> None:
    board.clock_is_stuck = True
    message = "the accelerator has a clock of 100 MHz, its bitstream was built for 50 MHz"
    refuse(board, build, message)


def test_missing_memory_is_told_and_the_next_run_works(
    board: FakeBoard, machine: BoardMachine, program: Program
) -> None:
    board.memory_error = RuntimeError("Failed to allocate memory!")
    with pytest.raises(BoardError) as caught:
        machine.run(program, [], [])
    size = program.dram_bytes
    assert str(caught.value) == (
        f"the board has no {size} bytes of contiguous memory: Failed to allocate memory!"
    )
    board.memory_error = None
    check_run(machine, program)


def position(program: Program, kind: type, number: int) -> int:
    """Index of the n-th instruction of a kind."""
    found = [i for i, item in enumerate(program.instructions) if isinstance(item, kind)]
    return found[number]


def test_a_standstill_says_who_waits_for_whom(
    board: FakeBoard, machine: BoardMachine, program: Program
) -> None:
    counts = {
        engine: sum(item.engine is engine for item in program.instructions) for engine in Engine
    }
    board.outcome = {Register.STATUS: Status.RUNNING | Status.STALLED}
    for engine in Engine:
        board.outcome[engine_base(engine) + EngineRegister.STARTED] = counts[engine]
    # The second vector instruction is queued and lacks tokens of load and gemm; load is active.
    vector, load = engine_base(Engine.VECTOR), engine_base(Engine.LOAD)
    board.outcome |= {
        vector + EngineRegister.STATE: 0b01_0011,
        vector + EngineRegister.STARTED: 1,
        load + EngineRegister.STATE: 0b10_0000,
        load + EngineRegister.STARTED: 2,
    }
    resets = board.resets
    with pytest.raises(DeadlockError) as caught:
        machine.run(program, [], [])
    assert str(caught.value) == (
        "the accelerator stands still: load waits for the memory at instruction"
        f" {position(program, Load, 1)}; vector waits for a token from load and gemm at"
        f" instruction {position(program, Vector, 1)}"
    )
    assert board.resets == resets + 1
    board.outcome = None
    check_run(machine, program)
    assert board.downloads == 1


def test_a_run_without_an_end_is_given_up(
    board: FakeBoard, machine: BoardMachine, program: Program
) -> None:
    board.outcome = {Register.STATUS: Status.RUNNING}
    with pytest.raises(BoardError) as caught:
        machine.run(program, [], [])
    first = position(program, Load, 0)
    assert str(caught.value).startswith("the accelerator has not finished in 0.05 s: load waits")
    assert f"instruction {first} to be fetched" in str(caught.value)
    board.outcome = None
    check_run(machine, program)
    assert board.downloads == 2


def test_refused_accesses_are_told(
    board: FakeBoard, machine: BoardMachine, program: Program
) -> None:
    board.outcome = {
        Register.STATUS: Status.DONE,
        PORT_REGISTERS_OFFSET + PortRegister.REFUSED: 3,
    }
    with pytest.raises(BoardError, match=r"^the memory has refused 3 accesses of the accelerator$"):
        machine.run(program, [], [])
    board.outcome = None
    check_run(machine, program)


def test_an_interrupted_run_leaves_a_usable_board(
    board: FakeBoard, machine: BoardMachine, program: Program
) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    board.outcome = {Register.STATUS: Status.RUNNING}
    with pytest.raises(KeyboardInterrupt):
        machine.run(program, [], [], interrupt)
    board.outcome = None
    check_run(machine, program)
    assert board.downloads == 2


BLOCK_IN = "block_in must be an integer from 1 to 256, not 0"


def damage(record: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        record = record[parent]
    record[last] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("version", 9, "the bitstream has version 9, this is version 1"),
        ("isa_version", 0, "the bitstream has isa_version 0, this is isa_version 1"),
        ("digest", "0", "the configuration of the bitstream does not have its digest"),
        ("family", "spartan", "{path} does not describe a bitstream"),
        ("clock", None, "{path} does not describe a bitstream"),
        (
            "config.block_in",
            0,
            f"the configuration of the bitstream cannot be: {BLOCK_IN}",
        ),
        ("clock.pll", "X", "the driver knows no PLL 'X' of zynq-7000"),
    ],
)
def test_a_damaged_description_is_refused(
    board: FakeBoard, build: Path, path: str, value: Any, message: str
) -> None:
    record = json.loads((build / "config.json").read_text())
    damage(record, path, value)
    (build / "config.json").write_text(json.dumps(record))
    refuse(board, build, message.format(path=build / "config.json"))


def test_no_bitstream_is_told(board: FakeBoard, build: Path) -> None:
    (build / "tilewright.bit").unlink()
    refuse(board, build, f"there is no bitstream {build / 'tilewright.bit'}")


def test_no_pynq_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynq", None)
    with pytest.raises(BoardError, match=r"^device pynq needs the package pynq of a board's image"):
        PynqAccess()


def test_a_board_behind_a_server(machine: BoardMachine, program: Program) -> None:
    with Server(machine) as server:
        host, port = server.address
        with RemoteMachine(RemoteAddress(host=host, port=port)) as remote:
            check_run(remote, program)


def test_every_pll_of_the_board_reaches_its_clock(board: FakeBoard, build: Path) -> None:
    for pll, mhz, register in (("ARM_PLL", 1300, ARM_PLL), ("DDR_PLL", 1050, DDR_PLL)):
        record = json.loads((build / "config.json").read_text())
        record["clock"]["pll"] = pll
        (build / "config.json").write_text(json.dumps(record))
        with BoardMachine(PynqAccess(), build):
            value = board.processor[CLOCK]
            divisor = (value >> 8 & 63) * (value >> 20 & 63)
            assert mhz / divisor == 50.0
            assert board.processor[register] >> 12 == mhz // 50
