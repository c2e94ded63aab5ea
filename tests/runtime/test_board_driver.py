"""The driver on a board whose accelerator is its Verilated design: results, faults, recovery."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from board_hardware import MEMORY_ADDRESS, MEMORY_BYTES
from engine_counts import engine_counts
from fake_pynq import ARM_PLL, CLOCK, DDR_PLL, FakeBoard, FakeUio, write_build

from tilewright.boards.board import Board
from tilewright.boards.catalogue import PYNQ_Z2, ULTRA96_V2
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_digest
from tilewright.isa.errors import ConfigError, DeadlockError, TilewrightError
from tilewright.isa.memories import Engine
from tilewright.isa.presets import TINY
from tilewright.isa.program import Program
from tilewright.runtime.board_access import BoardError
from tilewright.runtime.board_driver import BoardMachine
from tilewright.runtime.board_machine import Bytes, Machine, Patch, Region
from tilewright.runtime.board_pynq import PynqAccess
from tilewright.runtime.remote_client import RemoteAddress, RemoteMachine
from tilewright.runtime.server import Server
from tilewright.sim.random_programs import random_program
from tilewright.sim.rtl_build import ToolError, find_toolchain
from tilewright.sim.simulator import simulate

CONFIG = TINY.replace(clock_mhz=50.0)
WIDE = CONFIG.replace(port_bits=128)
Patcher = pytest.MonkeyPatch


@pytest.fixture(scope="module", autouse=True)
def _toolchain() -> None:
    try:
        find_toolchain()
    except ToolError as error:
        pytest.skip(f"{error}: {error.hint}")


@pytest.fixture
def board(monkeypatch: Patcher) -> Iterator[FakeBoard]:
    board = FakeBoard()
    monkeypatch.setitem(sys.modules, "pynq", board.module())
    yield board
    board.power_off()


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """The folder of a build."""
    folder = tmp_path / "build"
    folder.mkdir()
    write_build(folder, PYNQ_Z2, CONFIG)
    return folder


def open_board(build: Path, root: Path | None = None, **options: Any) -> BoardMachine:
    """Open the board, without its interrupt where there is no folder of the kernel's files."""
    access = PynqAccess(build if root is None else root)
    return BoardMachine(access, build, **{"watchdog_cycles": 5000, **options})


@pytest.fixture
def machine(board: FakeBoard, build: Path) -> Iterator[BoardMachine]:
    with open_board(build) as machine:
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
            assert getattr(counted, part) == value, (engine, part)
    return expected.dram


def stuck(program: Program) -> tuple[Program, int]:
    """Drop the last token from load to vector; returns where vector then waits for it."""
    items = list(program.instructions)
    gives = [i for i, item in enumerate(items) if item.engine is Engine.LOAD]
    gives = [i for i in gives if items[i].signal & 1 << Engine.VECTOR]
    takes = [i for i, item in enumerate(items) if item.engine is Engine.VECTOR]
    takes = [i for i in takes if items[i].wait & 1 << Engine.LOAD]
    signal = items[gives[-1]].signal & ~(1 << Engine.VECTOR)
    items[gives[-1]] = replace(items[gives[-1]], signal=signal)
    return replace(program, instructions=tuple(items)), takes[-1]


@pytest.mark.parametrize(
    ("description", "config"), [(PYNQ_Z2, CONFIG), (ULTRA96_V2, WIDE)], ids=["axi3", "axi4"]
)
def test_programs_leave_what_they_leave_on_the_simulator(
    monkeypatch: Patcher, tmp_path: Path, description: Board, config: AcceleratorConfig
) -> None:
    """Bytes, cycles and counters, through the registers and memory ports of both families."""
    board = FakeBoard(board=description)
    monkeypatch.setitem(sys.modules, "pynq", board.module())
    write_build(tmp_path, description, config)
    with open_board(tmp_path) as machine:
        for seed in range(4):
            check_run(machine, random_program(config, seed, size=20))
    board.power_off()
    assert (board.downloads, board.buffers) == (1, [])


def test_a_program_that_runs_again_is_loaded_once(
    board: FakeBoard, machine: BoardMachine, program: Program, monkeypatch: Patcher
) -> None:
    left = check_run(machine, program)
    monkeypatch.setattr("tilewright.runtime.board_driver.encode_program", None)
    check_run(machine, program, seed=1, before=left)
    assert len(board.buffers) == 1


@pytest.mark.parametrize("missing", ["flush_is_missing", "invalidate_is_missing"])
def test_a_missing_call_for_the_caches_would_be_seen(
    board: FakeBoard, machine: BoardMachine, program: Program, missing: str
) -> None:
    setattr(board, missing, True)
    with pytest.raises((AssertionError, TilewrightError)):
        check_run(machine, program)


def test_memory_is_given_back(board: FakeBoard, build: Path, program: Program) -> None:
    with open_board(build) as machine:
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


def test_a_program_for_another_speed_of_the_memory_runs(machine: BoardMachine) -> None:
    """The timing model is no part of the hardware; the gap that the store engine keeps is."""
    slower = {"dram.read_latency_cycles": 20, "dram.read_gap_cycles": 4}
    program = random_program(CONFIG.replace(**slower), 5, size=12)
    dram = simulate(program, program.initial_dram()).dram
    whole = Region(address=0, size_bytes=program.dram_bytes)
    np.testing.assert_array_equal(machine.run(program, [], [whole]).regions[0], dram)
    other = random_program(CONFIG.replace(**{"dram.write_gap_cycles": 4}), 5, size=12)
    with pytest.raises(ConfigError, match=r"dram.write_gap_cycles 4 instead of 1"):
        machine.run(other, [], [])


def refuse(build: Path, message: str, error: type[TilewrightError] = BoardError) -> None:
    with pytest.raises(error) as caught:
        open_board(build)
    assert str(caught.value) == message


def test_another_bitstream_is_refused(board: FakeBoard, build: Path) -> None:
    other = CONFIG.replace(queue_entries=8)
    right = (build / "tilewright.bit").read_bytes()
    write_build(build, PYNQ_Z2, other)
    (build / "tilewright.bit").write_bytes(right)
    digests = [config_digest(item)[:16] for item in (CONFIG, other)]
    message = "the accelerator has the digest {}, its config.json says {}".format(*digests)
    refuse(build, message)
    write_build(build, PYNQ_Z2, CONFIG)
    open_board(build).close()


def test_a_bitstream_that_somebody_else_loads_is_noticed_and_replaced(
    board: FakeBoard, machine: BoardMachine, program: Program
) -> None:
    board.load_another()
    with pytest.raises(BoardError) as caught:
        machine.run(program, [], [])
    assert str(caught.value) == (
        "there is no accelerator at 0x43c00000: its identification reads 0x00000000"
    )
    check_run(machine, program)
    assert board.downloads == 2


def test_no_accelerator_is_told(board: FakeBoard, build: Path) -> None:
    address = json.loads((build / "config.json").read_text())["control_address"]
    board.processor[address + 0x10000] = 0
    record = json.loads((build / "config.json").read_text())
    record["control_address"] = address + 0x10000
    (build / "config.json").write_text(json.dumps(record))
    message = "there is no accelerator at 0x43c10000: its identification reads 0x00000000"
    refuse(build, message)


def test_a_download_that_breaks_off_is_told_and_touches_nothing(
    board: FakeBoard, build: Path
) -> None:
    """The fake board hangs as a real one does where registers without a design are read."""
    bitstream = build / "tilewright.bit"
    whole = bitstream.read_bytes()
    bitstream.write_bytes(whole[: len(whole) // 2])
    reason = "fpga_manager fpga0: Error while writing image data to FPGA"
    refuse(build, f"cannot load {bitstream}: {reason}")
    assert board.hardware is None
    bitstream.write_bytes(whole)
    with open_board(build) as machine:
        check_run(machine, random_program(CONFIG, 2, size=12))


def test_a_board_with_another_pll_is_refused(board: FakeBoard, build: Path) -> None:
    record = json.loads((build / "config.json").read_text())
    record["clock"]["pll"] = "DDR_PLL"
    (build / "config.json").write_text(json.dumps(record))
    # 50 MHz would be a 67th of it, which two divisors up to 63 cannot make.
    usual, board.processor[DDR_PLL] = board.processor[DDR_PLL], 67 << 12
    refuse(
        build,
        "the board cannot make the bitstream's clock of 50 MHz: its DDR_PLL runs at 3350 MHz",
    )
    board.processor[DDR_PLL] = usual
    open_board(build).close()


def test_a_clock_that_stays_wrong_is_told(board: FakeBoard, build: Path) -> None:
    board.clock_is_stuck = True
    message = "the accelerator has a clock of 100 MHz, its bitstream was built for 50 MHz"
    refuse(build, message)
    board.clock_is_stuck = False
    open_board(build).close()


def test_missing_memory_is_told_and_the_next_run_works(
    board: FakeBoard, machine: BoardMachine, program: Program
) -> None:
    board.free_bytes = program.dram_bytes - 1
    with pytest.raises(BoardError) as caught:
        machine.run(program, [], [])
    size = program.dram_bytes
    assert str(caught.value) == (
        f"the board has no {size} bytes of contiguous memory: Failed to allocate Memory!"
    )
    board.free_bytes = size
    check_run(machine, program)


def test_a_deadlock_says_who_waits_for_whom(
    board: FakeBoard, machine: BoardMachine, program: Program
) -> None:
    broken, place = stuck(program)
    with pytest.raises(DeadlockError) as caught:
        machine.run(broken, [], [])
    message = str(caught.value)
    assert message.startswith("the accelerator stands still: ")
    assert f"vector waits for a token from load at instruction {place}" in message
    check_run(machine, program)
    assert board.downloads == 1


def test_a_run_without_an_end_is_given_up(board: FakeBoard, build: Path, program: Program) -> None:
    broken, place = stuck(program)
    with open_board(build, watchdog_cycles=0, run_seconds=1.0) as machine:
        with pytest.raises(BoardError) as caught:
            machine.run(broken, [], [])
        assert str(caught.value).startswith("the accelerator has not finished in 1 s: ")
        assert f"vector waits for a token from load at instruction {place}" in str(caught.value)
        check_run(machine, program)
    assert board.downloads == 2


def test_refused_accesses_are_told(
    board: FakeBoard, machine: BoardMachine, program: Program
) -> None:
    """The buffer reaches beyond the end of memory, its last half does not answer."""
    begin = board.memory_begin
    half = program.dram_bytes // 2 // 4096 * 4096
    board.memory_begin = MEMORY_ADDRESS + MEMORY_BYTES - half
    with pytest.raises(BoardError, match=r"^the memory has refused \d+ accesses of the accel"):
        machine.run(program, [], [])
    machine.close()
    board.memory_begin = begin
    check_run(machine, program)
    assert board.downloads == 2


def test_an_interrupted_run_leaves_a_usable_board(
    board: FakeBoard, build: Path, program: Program
) -> None:
    """A program that ends after all needs no new bitstream, one that does not end needs it."""

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    long, broken = long_program(), stuck(program)[0]
    with open_board(build, watchdog_cycles=0) as machine:
        for item, downloads in ((long, 1), (broken, 2)):
            with pytest.raises(KeyboardInterrupt):
                machine.run(item, [], [], interrupt)
            check_run(machine, program)
            assert board.downloads == downloads


@pytest.fixture
def interrupts(board: FakeBoard, build: Path) -> Iterator[Callable[[bool | None], FakeUio]]:
    """Makes the file of the interrupt below the folder of the build."""
    made = []

    def make(stuck: bool | None = None) -> FakeUio:
        made.append(FakeUio(board, build, stuck=stuck))
        return made[-1]

    yield make
    for item in made:
        item.close()


def long_program() -> Program:
    """Return one that takes longer than the driver looks without a pause, on any computer."""
    return random_program(CONFIG, 3, size=2000)


def test_the_end_of_a_program_is_an_interrupt(
    interrupts: Callable[..., FakeUio], build: Path, program: Program
) -> None:
    uio = interrupts()
    with open_board(build) as machine:
        for _ in range(3):
            check_run(machine, long_program())
        with pytest.raises(DeadlockError, match="vector waits for a token from load"):
            machine.run(stuck(program)[0], [], [])
        check_run(machine, program)
        assert "interrupt" not in machine.description
    assert uio.interrupts >= 3


@pytest.mark.parametrize(
    ("stuck_at", "fault"),
    [
        (False, "without its interrupt: it does not come"),
        (True, "without its interrupt: it comes while programs run"),
    ],
)
def test_an_interrupt_that_is_stuck_is_done_without(
    interrupts: Callable[..., FakeUio],
    build: Path,
    stuck_at: bool,
    fault: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    interrupts(stuck_at)
    with open_board(build) as machine:
        for _ in range(2):
            check_run(machine, long_program())
        (line,) = (record.getMessage() for record in caplog.records)
        assert line == f"the accelerator's interrupt is done without: {fault.split(': ')[1]}"
        assert machine.description.endswith(f" through pynq, {fault}")


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
    refuse(build, message.format(path=build / "config.json"))


def test_no_bitstream_is_told(board: FakeBoard, build: Path) -> None:
    (build / "tilewright.bit").unlink()
    refuse(build, f"there is no bitstream {build / 'tilewright.bit'}")


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
        with open_board(build):
            value = board.processor[CLOCK]
            divisor = (value >> 8 & 63) * (value >> 20 & 63)
            assert mhz / divisor == 50.0
            assert board.processor[register] >> 12 == mhz // 50
