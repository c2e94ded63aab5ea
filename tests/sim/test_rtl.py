"""The hardware equals the simulator: every byte, every cycle, every counter."""

from dataclasses import astuple, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import DeadlockError, InputError, ProgramError
from tilewright.isa.instructions import Finish, Load, Store
from tilewright.isa.memories import Engine, Memory
from tilewright.isa.presets import ECP5, PYNQ, TINY, ULTRA96, VTA
from tilewright.isa.program import Program
from tilewright.sim.random_programs import random_program
from tilewright.sim.rtl import RtlCounts, RtlResult, run_rtl
from tilewright.sim.rtl_build import ToolError, find_toolchain
from tilewright.sim.simulator import SimulationResult, simulate
from tilewright.sim.timeline import Timeline

CONFIGS = {
    "ecp5": ECP5,
    "pynq": PYNQ,
    "32 bit, no gap": TINY.replace(
        block_in=8,
        block_out=2,
        port_bits=32,
        load_bursts=3,
        store_bursts=1,
        queue_entries=2,
        burst_beats=8,
        **{
            "dram.read_gap_cycles": 0,
            "dram.write_gap_cycles": 0,
            "dram.read_latency_cycles": 2,
            "dram.write_latency_cycles": 2,
        },
    ),
    "batch of two, odd depths": TINY.replace(
        block_in=16,
        block_out=16,
        batch=2,
        port_bits=128,
        packed_multipliers=True,
        acc_entries=96,
        inp_entries=100,
        out_entries=37,
        lut_tables=3,
        store_bursts=5,
        **{"dram.read_gap_cycles": 3},
    ),
    "unequal odd blocks": TINY.replace(
        block_in=24,
        block_out=12,
        port_bits=32,
        packed_multipliers=True,
        lane_multipliers=1,
        acc_entries=90,
        wgt_entries=33,
    ),
    "two instructions per beat": TINY.replace(
        block_in=1, block_out=1, port_bits=512, fetch_entries=2, burst_beats=2
    ),
    "single beats": TINY.replace(
        port_bits=256, burst_beats=1, load_bursts=1, store_bursts=1, fetch_entries=3
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _toolchain() -> None:
    try:
        find_toolchain()
    except ToolError as error:
        pytest.skip(f"{error}: {error.hint}")


def with_inputs(program: Program, seed: int) -> npt.NDArray[np.uint8]:
    dram = program.initial_dram()
    rng = np.random.default_rng(seed)
    for buffer in program.inputs:
        end = buffer.address + buffer.size_bytes
        dram[buffer.address : end] = rng.integers(0, 256, buffer.size_bytes)
    return dram


def assert_equal(hardware: RtlResult, simulation: SimulationResult) -> None:
    timeline = simulation.timeline
    for field in fields(Timeline):
        measured, expected = getattr(hardware.timeline, field.name), getattr(timeline, field.name)
        np.testing.assert_array_equal(measured, expected, field.name)
    np.testing.assert_array_equal(hardware.dram, simulation.dram)
    for memory in Memory:
        np.testing.assert_array_equal(
            hardware.scratchpads[memory], simulation.state.bytes[memory], memory.name
        )
    for engine in Engine:
        account = timeline.account(engine)
        count = int((timeline.engine == engine).sum())
        expected = RtlCounts(
            started=count,
            finished=count,
            busy=account.busy,
            memory_wait=account.memory_wait,
            token_wait=sum(account.token_wait),
            fetch_wait=account.fetch_wait,
            drain=account.drain,
        )
        assert astuple(hardware.counts[engine]) == astuple(expected), engine.name


def check(config: AcceleratorConfig, seeds: range, size: int) -> None:
    for seed in seeds:
        program = random_program(config, seed, size=size)
        dram = with_inputs(program, seed)
        assert_equal(run_rtl(program, dram), simulate(program, dram))


def test_random_programs() -> None:
    check(TINY, range(100), 40)


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_random_programs_of_other_machines(config: AcceleratorConfig) -> None:
    check(config, range(250), 40)


@pytest.mark.slow
@pytest.mark.parametrize("config", [ULTRA96, VTA], ids=lambda config: config.name)
def test_random_programs_of_large_machines(config: AcceleratorConfig) -> None:
    check(config, range(60), 40)


@pytest.mark.slow
def test_many_random_programs() -> None:
    check(TINY, range(100, 600), 40)


def tiny_program(*instructions: Load | Store | Finish, dram_bytes: int = 8192) -> Program:
    return Program(config=TINY, instructions=instructions, code_address=4096, dram_bytes=dram_bytes)


def test_a_deadlock_is_noticed() -> None:
    program = tiny_program(Load(memory=Memory.INP, dst=0, entries=1, wait=2), Finish())
    with pytest.raises(DeadlockError, match="the program stands still in cycle"):
        run_rtl(program, program.initial_dram())


def test_a_write_beyond_dram_is_refused() -> None:
    program = tiny_program(Store(src=0, address=8192, entries=1), Finish())
    with pytest.raises(ProgramError, match="the program writes beyond its dram_bytes"):
        run_rtl(program, program.initial_dram())


def test_the_cycle_limit_ends_a_run() -> None:
    program = tiny_program(Load(memory=Memory.INP, dst=0, entries=1), Finish())
    cycles = run_rtl(program, program.initial_dram()).timeline.cycles
    assert (
        run_rtl(program, program.initial_dram(), cycle_limit=cycles + 1).timeline.cycles == cycles
    )
    with pytest.raises(ProgramError, match=f"the program takes more than {cycles} cycles"):
        run_rtl(program, program.initial_dram(), cycle_limit=cycles)


def test_dram_must_fit_the_program() -> None:
    program = tiny_program(Finish())
    with pytest.raises(InputError, match="dram must be 8192 values of uint8"):
        run_rtl(program, np.zeros(100, np.uint8))


@pytest.mark.slow
def test_a_trace_shows_the_run(tmp_path: Path) -> None:
    program = tiny_program(Load(memory=Memory.INP, dst=0, entries=1), Finish())
    path = tmp_path / "run.vcd"
    traced = run_rtl(program, program.initial_dram(), trace=path)
    assert traced.timeline.cycles == run_rtl(program, program.initial_dram()).timeline.cycles
    text = path.read_text(encoding="utf-8")
    assert "$enddefinitions" in text
    assert "load_engine" in text
