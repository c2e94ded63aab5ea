"""Whole programs leave the bytes that a scalar interpreter leaves, whatever order it takes."""

from dataclasses import replace

import numpy as np
import pytest
from scalar import Scalar

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import ConfigError, DeadlockError, InputError, ProgramError
from tilewright.isa.happens_before import happens_before
from tilewright.isa.instructions import (
    Finish,
    Gemm,
    Load,
    Store,
    Vector,
    VectorOperation,
    VectorTarget,
)
from tilewright.isa.memories import Engine, Memory
from tilewright.isa.presets import PRESETS
from tilewright.isa.program import Program
from tilewright.isa.semantics import MachineState
from tilewright.isa.validator import validate
from tilewright.sim.random_programs import random_program
from tilewright.sim.simulator import simulate

TINY = PRESETS["tiny"]
CONFIGS = {
    "tiny": TINY,
    "batch": TINY.replace(batch=2, port_bits=128),
    "wide": TINY.replace(block_out=8, port_bits=32),
    "narrow": TINY.replace(block_in=16, block_out=2, acc_entries=48, inp_entries=200),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_random_programs(config: AcceleratorConfig, seed: int) -> None:
    program = random_program(config, seed, size=30)
    dram = program.initial_dram()
    scalar = Scalar(MachineState(config, dram.copy()))
    for position in happens_before(program.instructions, config).sequence:
        scalar.execute(program.instructions[position])
    result = simulate(program, dram)
    np.testing.assert_array_equal(result.dram, np.array(scalar.dram, np.uint8))
    for memory in Memory:
        expected = np.array(scalar.memories[memory], np.uint8)
        np.testing.assert_array_equal(result.state.bytes[memory], expected, err_msg=memory.name)
    np.testing.assert_array_equal(dram, program.initial_dram(), err_msg="the argument changed")


@pytest.mark.parametrize("name", PRESETS)
def test_random_programs_are_legal(name: str) -> None:
    for seed in range(5):
        validate(random_program(PRESETS[name], seed))


def test_random_programs_cover_the_instruction_set() -> None:
    programs = [random_program(TINY, seed) for seed in range(30)]
    everything = [item for program in programs for item in program.instructions]
    loads = [item for item in everything if isinstance(item, Load)]
    gemms = [item for item in everything if isinstance(item, Gemm)]
    vectors = [item for item in everything if isinstance(item, Vector)]
    assert {item.memory for item in loads} == set(Memory) - {Memory.ACC, Memory.OUT}
    assert any(item.entries == 0 for item in loads)
    assert any(item.row_stride >> 31 for item in loads)
    assert {item.accumulate for item in gemms} == {False, True}
    assert {item.operation for item in vectors} == set(VectorOperation)
    assert {(item.target, item.requantise, item.lookup) for item in vectors} == {
        (target, requantise, lookup)
        for target in VectorTarget
        for requantise in (False, True)
        for lookup in (False, True)
        if target is VectorTarget.OUT or requantise or not lookup
    }
    channels = {
        (giver, item.engine)
        for item in everything
        for giver in Engine
        if item.engine is not None and item.wait >> giver & 1
    }
    assert len(channels) == 10
    assert any(takes_before_given(program) for program in programs)


def takes_before_given(program: Program) -> bool:
    """Whether an instruction takes a token that a later instruction gives."""
    held = {(giver, taker): 0 for giver in Engine for taker in Engine}
    for item in program.instructions:
        for other in Engine:
            if item.engine is not None:
                held[other, item.engine] -= item.wait >> other & 1
                held[item.engine, other] += item.signal >> other & 1
        if min(held.values()) < 0:
            return True
    return False


def test_equal_seeds_make_equal_programs() -> None:
    assert random_program(TINY, 3) == random_program(TINY, 3)
    assert random_program(TINY, 3) != random_program(TINY, 4)


@pytest.fixture
def program() -> Program:
    return random_program(TINY, 1, size=200)


def test_progress_is_reported(program: Program) -> None:
    calls: list[tuple[int, int]] = []
    simulate(program, program.initial_dram(), progress=lambda *call: calls.append(call))
    total = len(program.instructions)
    assert calls == [*((done, total) for done in range(0, total, 64)), (total, total)]


def test_an_interrupted_run_leaves_its_argument_alone(program: Program) -> None:
    dram = program.initial_dram()

    def interrupt(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(program, dram, progress=interrupt)
    np.testing.assert_array_equal(dram, program.initial_dram())


def test_another_configuration_is_refused(program: Program) -> None:
    other = TINY.replace(queue_entries=5, **{"dram.read_gap_cycles": 2})
    with pytest.raises(ConfigError, match="queue_entries 4 instead of 5"):
        simulate(program, program.initial_dram(), config=other)
    simulate(program, program.initial_dram(), config=TINY)


def test_dram_must_fit(program: Program) -> None:
    size = program.dram_bytes
    with pytest.raises(InputError) as caught:
        simulate(program, np.zeros(size - 1, np.uint8))
    assert str(caught.value) == (
        f"dram must be {size} values of uint8, not uint8 of shape ({size - 1},)"
    )
    with pytest.raises(InputError):
        simulate(program, np.zeros(size, np.int8))


def finished(*instructions: Load | Gemm | Vector | Store | Finish) -> Program:
    return Program(config=TINY, instructions=instructions, code_address=0, dram_bytes=1 << 14)


def test_a_deadlock_says_what_each_engine_waits_for() -> None:
    stuck = finished(
        Load(memory=Memory.INP, dst=0, entries=1, address=8192),
        Gemm(wait=1 << Engine.LOAD),
        Finish(),
    )
    with pytest.raises(DeadlockError) as caught:
        simulate(stuck, np.zeros(stuck.dram_bytes, np.uint8))
    assert str(caught.value) == (
        "deadlock: load is done, gemm waits for a token from load at instruction 1 (gemm 0),"
        " vector is done, store is done"
    )


def test_a_full_queue_can_deadlock() -> None:
    """The load that gives the token is dispatched when the queue of gemm has room, or never."""

    def waiting(gemms: int) -> Program:
        first = Gemm(wait=1 << Engine.LOAD)
        rest = [Gemm()] * (gemms - 1)
        load = Load(memory=Memory.INP, dst=0, entries=1, signal=1 << Engine.GEMM)
        return finished(first, *rest, load, Finish())

    fits = waiting(TINY.queue_entries)
    simulate(fits, np.zeros(fits.dram_bytes, np.uint8))
    stuck = waiting(TINY.queue_entries + 1)
    with pytest.raises(DeadlockError, match="dispatch waits for room in the queue of gemm"):
        simulate(stuck, np.zeros(stuck.dram_bytes, np.uint8))


def test_finish_must_be_the_last_instruction() -> None:
    for instructions in ((Gemm(),), (Finish(), Gemm()), (Finish(), Finish())):
        with pytest.raises(ProgramError, match="a program must end with its only finish"):
            simulate(finished(*instructions), np.zeros(1 << 14, np.uint8))


def test_cycles_do_not_depend_on_data(program: Program) -> None:
    rng = np.random.default_rng(0)
    first = simulate(program, program.initial_dram())
    changed = program.initial_dram()
    data = program.constants[-1]
    changed[data.address : data.address + len(data.data)] = rng.integers(0, 256, len(data.data))
    second = simulate(program, changed)
    assert first.timeline.cycles == second.timeline.cycles
    assert not np.array_equal(first.dram, second.dram)


def test_another_timing_leaves_the_same_bytes() -> None:
    program = random_program(TINY, 7)
    first = simulate(program, program.initial_dram())
    slower = replace(
        program, config=TINY.replace(**{"dram.read_latency_cycles": 99}, queue_entries=16)
    )
    second = simulate(slower, slower.initial_dram())
    np.testing.assert_array_equal(first.dram, second.dram)
    assert first.timeline.cycles < second.timeline.cycles
