"""The self-test: it passes on what works, finds what does not, and fits the timing model."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_pynq import FakeBoard, FakeWindow, write_build

import tilewright as tw
from tilewright.boards.catalogue import BOARDS, PYNQ_Z2, ULX3S
from tilewright.isa.errors import ConfigError, TilewrightError
from tilewright.isa.presets import PRESETS, TINY
from tilewright.isa.program import Program
from tilewright.isa.registers import Register
from tilewright.isa.validator import validate
from tilewright.runtime.board_devices import make_machine
from tilewright.runtime.board_machine import Bytes, MachineRun, Patch, Region, SimulatorMachine
from tilewright.runtime.devices import parse_device
from tilewright.runtime.selftest import examine
from tilewright.runtime.selftest_report import SelfTestReport, Verdict
from tilewright.runtime.server import Server
from tilewright.sim.rtl_build import ToolError, find_toolchain
from tilewright.sim.simulator import Progress, simulate

SMALL = TINY.replace(clock_mhz=50.0)
FITTED = {
    "dram.read_latency_cycles": 47,
    "dram.write_latency_cycles": 31,
    "dram.read_gap_cycles": 9,
    "dram.write_gap_cycles": 6,
}


@pytest.fixture
def _toolchain() -> None:
    try:
        find_toolchain()
    except ToolError as error:
        pytest.skip(f"{error}: {error.hint}")


class Device(SimulatorMachine):
    """A simulator whose memory has other timing than programs say, or that damages bytes."""

    def __init__(
        self,
        changes: dict[str, Any] | None = None,
        damage: Callable[[Program, Bytes], None] | None = None,
    ) -> None:
        self.changes, self.damage = changes or {}, damage
        self.validated = 0

    def run(
        self,
        program: Program,
        patches: Sequence[Patch],
        regions: Sequence[Region],
        progress: Progress | None = None,
    ) -> MachineRun:
        validate(program)
        self.validated += 1
        config = program.config.replace(**self.changes)
        moved = Program(
            **{
                name: getattr(program, name)
                for name in ("instructions", "code_address", "constants", "buffers", "dram_bytes")
            },
            config=config,
        )
        dram = np.random.default_rng(4).integers(0, 256, program.dram_bytes, dtype=np.uint8)
        for segment in program.constants:
            dram[segment.address : segment.address + len(segment.data)] = np.frombuffer(
                segment.data, np.uint8
            )
        begin, size = program.code_address, program.code_bytes
        dram[begin : begin + size] = program.initial_dram()[begin : begin + size]
        for patch in patches:
            dram[patch.address : patch.address + patch.data.size] = patch.data
        result = simulate(moved, dram)
        after = result.dram.copy()
        if self.damage is not None:
            self.damage(program, after)
        return MachineRun(
            regions=tuple(after[r.address : r.address + r.size_bytes] for r in regions),
            cycles=result.timeline.cycles,
        )


def verdicts(report: SelfTestReport) -> dict[str, Verdict]:
    return {check.name: check.verdict for check in report.checks}


CONFIGS = {**PRESETS, **{name: board.config for name, board in BOARDS.items()}}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_simulator_passes_in_every_configuration(name: str) -> None:
    """All programs are legal, whatever lies in memory before them."""
    device = Device()
    report = examine(device, config=CONFIGS[name])
    assert report.passed, report.checks
    skipped = {"registers"} if CONFIGS[name] is not ULX3S.config else {"registers", "instructions"}
    assert {k for k, v in verdicts(report).items() if v is Verdict.SKIPPED} == skipped
    assert report.changes == ()
    assert report.advice == (f"the timing model of {CONFIGS[name].name} needs no change",)
    for item in report.measurements:
        assert item.model is None or item.measured == pytest.approx(item.model)
    assert device.validated > 20


@pytest.mark.parametrize("name", ["vta", "pynq", "ultra96"])
def test_the_model_is_fitted_to_the_device(name: str) -> None:
    config = PRESETS[name]
    report = examine(Device(FITTED), config=config)
    assert report.passed
    assert {change.field: change.fitting for change in report.changes} == FITTED
    assert [change.field for change in report.changes if change.needs_bitstream] == [
        "dram.write_gap_cycles"
    ]
    options = [word for line in report.advice[1:] for word in line.split()[:2]]
    assert options == [w for f, v in FITTED.items() for w in ("--set", f"{f}={v}")]
    (loads,) = (item for item in report.measurements if item.name.startswith("load,"))
    assert loads.model is not None
    assert loads.measured - loads.model == 47 - config.dram.read_latency_cycles


def test_what_cannot_be_seen_is_not_changed() -> None:
    """With two bursts in flight a long latency hides the gap between them."""
    report = examine(Device({**FITTED, "dram.read_latency_cycles": 200}), config=TINY)
    assert "dram.read_gap_cycles" not in {change.field for change in report.changes}


def stuck_line(program: Program, dram: Bytes) -> None:
    dram[7::8] |= 0x10


def aliased_address(program: Program, dram: Bytes) -> None:
    """Address line 20 is always 0: what is written above lands below."""
    for begin in range(1 << 20, dram.size, 1 << 21):
        part = dram[begin : begin + (1 << 20)]
        dram[begin - (1 << 20) :][: part.size] = part


def lost_byte(program: Program, dram: Bytes) -> None:
    """The byte before each store's rows is written as well."""
    for item in program.instructions:
        address = getattr(item, "address", 0) if hasattr(item, "src") else 0
        if address:
            dram[address - 1] ^= 0xFF


FAULTS = {
    "a data line": (stuck_line, "data lines"),
    "an address line": (aliased_address, "address lines"),
    "a strobe": (lost_byte, "sizes and alignments"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_where_it_is(name: str) -> None:
    damage, check = FAULTS[name]
    report = examine(Device(damage=damage), config=TINY)
    assert not report.passed
    assert verdicts(report)[check] is Verdict.FAILED
    (found,) = (item for item in report.checks if item.name == check)
    assert " bytes are wrong, the first at 0x" in found.detail
    assert report.advice == ("nothing was measured",)


def test_a_device_that_fails_is_a_failed_check() -> None:
    class Broken(SimulatorMachine):
        def run(self, *_: Any) -> MachineRun:
            raise TilewrightError("the board has gone")

    report = examine(Broken(), config=TINY)
    assert {check.detail for check in report.checks[1:]} == {"the board has gone"}


@pytest.mark.usefixtures("_toolchain")
def test_the_hardware_passes() -> None:
    report = tw.selftest("rtl", config=SMALL)
    assert report.passed, report.checks
    assert report.changes == ()


@pytest.fixture
def boards(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, _toolchain: None
) -> Iterator[Callable[..., FakeBoard]]:
    """Makes the board of device `pynq`."""
    made = []

    def make() -> FakeBoard:
        board = FakeBoard()
        made.append(board)
        monkeypatch.setitem(sys.modules, "pynq", board.module())
        monkeypatch.setenv("TILEWRIGHT_BITSTREAM", str(tmp_path))
        write_build(tmp_path, PYNQ_Z2, SMALL)
        return board

    yield make
    for board in made:
        board.power_off()


def test_a_board_passes_and_its_memory_is_what_the_model_says(
    boards: Callable[..., FakeBoard],
) -> None:
    boards()
    report = tw.selftest("pynq")
    assert report.passed, report.checks
    assert set(verdicts(report).values()) == {Verdict.PASSED}
    assert report.changes == ()


def test_the_memory_of_a_board_is_measured_through_its_ports(
    boards: Callable[..., FakeBoard],
) -> None:
    """A model that is wrong is brought to what the board's memory does."""
    boards()
    wrong = {"dram.read_latency_cycles": 29, "dram.read_gap_cycles": 3}
    report = tw.selftest("pynq", config=SMALL.replace(**wrong))
    assert report.passed, report.checks
    right = {field: getattr(SMALL.dram, field.removeprefix("dram.")) for field in wrong}
    assert {change.field: change.fitting for change in report.changes} == right


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_register_that_does_not_hold_is_found(
    boards: Callable[..., FakeBoard], monkeypatch: pytest.MonkeyPatch, is_remote: bool
) -> None:
    boards()
    write = FakeWindow.write

    def faulty(self: FakeWindow, offset: int, value: int) -> None:
        write(self, offset, value & ~4 if offset == Register.CODE_ADDRESS else value)

    monkeypatch.setattr(FakeWindow, "write", faulty)
    with contextlib.ExitStack() as stack:
        device = stack.enter_context(served_board()) if is_remote else "pynq"
        report = tw.selftest(device)
    (registers,) = (check for check in report.checks if check.name == "registers")
    assert registers.verdict is Verdict.FAILED
    assert registers.detail == "CODE_ADDRESS reads 0x55555551, not 0x55555555 as written"


def in_cycles(report: SelfTestReport) -> dict[str, float]:
    """What a model foretells, and no computer's speed changes."""
    return {item.name: item.measured for item in report.measurements if item.model is not None}


@contextlib.contextmanager
def served_board() -> Iterator[str]:
    """Put the board behind a server, and yield the name of that device."""
    machine = make_machine(parse_device("pynq"))
    try:
        with Server(machine) as server:
            host, port = server.address
            yield f"tcp://{host}:{port}"
    finally:
        machine.close()


def test_a_board_behind_a_server_is_tested_as_one_at_hand(
    boards: Callable[..., FakeBoard],
) -> None:
    boards()
    here = tw.selftest("pynq")
    with served_board() as device:
        report = tw.selftest(device)
        assert report.passed
        assert report.config == SMALL
        assert report.checks == here.checks
        assert set(verdicts(report).values()) == {Verdict.PASSED}
        assert in_cycles(report) == in_cycles(here)
        with pytest.raises(ConfigError, match=r"it has another queue_entries$"):
            tw.selftest(device, config=SMALL.replace(queue_entries=8))
