"""The timing rules at both sides of their edges, worked out by hand."""

import pytest

from tilewright.isa import timing
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import (
    AnyInstruction,
    Finish,
    Gemm,
    GemmLoop,
    Load,
    Store,
    Vector,
    VectorOperation,
    VectorTarget,
)
from tilewright.isa.memories import Engine, Memory
from tilewright.isa.presets import PRESETS
from tilewright.isa.program import Program
from tilewright.sim.clockwork import simulate_timing
from tilewright.sim.random_programs import random_program
from tilewright.sim.timeline import Timeline

#: Bursts of 16 beats of 8 bytes, 2 in flight, gap 1; an entry of `wgt` is 2 beats, one of `out` is
#: half a beat; an instruction is 4 beats; the fetch buffer holds 8 in bursts of 4.
TINY = PRESETS["tiny"]
LATENCY = TINY.dram.read_latency_cycles
LOAD, GEMM, VECTOR = (1 << engine for engine in (Engine.LOAD, Engine.GEMM, Engine.VECTOR))


def run(*instructions: AnyInstruction, config: AcceleratorConfig = TINY) -> Timeline:
    return simulate_timing(
        Program(
            config=config,
            instructions=(*instructions, Finish()),
            code_address=0,
            dram_bytes=1 << 14,
        )
    )


def gemm(steps: int, **fields: int) -> Gemm:
    return Gemm(loops=(GemmLoop(), GemmLoop(), GemmLoop(extent=steps)), **fields)


def copy(target: VectorTarget) -> Vector:
    return Vector(operation=VectorOperation.SUM, target=target)


def weights(entries: int, *, address: int = 0, **fields: int) -> Load:
    return Load(memory=Memory.WGT, dst=0, entries=entries, address=address, **fields)


def test_the_shortest_program() -> None:
    timeline = run()
    assert timeline.cycles == LATENCY + 4 - 1 + timing.FINISH_CYCLES


def test_dispatch_follows_arrival_and_start_follows_dispatch() -> None:
    timeline = run(gemm(1))
    arrival = LATENCY + 4 - 1
    assert timeline.dispatch[0] == arrival + 1
    assert timeline.start[0] == arrival + 1 + timing.QUEUE_CYCLES


def test_one_step_per_cycle() -> None:
    timeline = run(gemm(1), gemm(7))
    assert (timeline.last_step - timeline.start)[:2].tolist() == [2, 8]
    stages = timing.gemm_stages(TINY)
    assert (timeline.finish - timeline.last_step)[:2].tolist() == [stages, stages]


def test_the_issue_stage_is_free_after_the_last_issue() -> None:
    timeline = run(gemm(50), gemm(1))
    assert timeline.start[1] == timeline.last_step[0] + 1


@pytest.mark.parametrize(("target", "drain"), [(VectorTarget.OUT, 0), (VectorTarget.ACC, 1)])
def test_the_vector_engine_drains_after_writing_acc(target: VectorTarget, drain: int) -> None:
    timeline = run(copy(target), copy(VectorTarget.OUT))
    free = timeline.finish[0] if drain else max(timeline.last_step[0], timeline.dispatch[1])
    assert timeline.start[1] == free + 1
    assert (timeline.drain[1] > 0) == bool(drain)


def test_a_token_can_be_taken_in_the_cycle_after_the_finish() -> None:
    timeline = run(gemm(60, signal=VECTOR), Vector(operation=VectorOperation.SUM, wait=GEMM))
    assert timeline.start[1] == timeline.finish[0] + 1
    assert timeline.token_giver[1] == Engine.GEMM


@pytest.mark.parametrize("room", [3, 4, 5])
def test_dispatch_waits_for_room_in_a_queue(room: int) -> None:
    """The first instruction starts at once; as many as there is room for wait for its end."""
    config = TINY.replace(queue_entries=room)
    timeline = run(*[gemm(300)] * 8, config=config)
    assert timeline.dispatch[room] < timeline.last_step[0]
    assert timeline.dispatch[room + 1] == timeline.start[1] + 1


@pytest.mark.parametrize(("latency", "wait"), [(16, 0), (17, 0), (18, 1), (19, 2)])
def test_a_third_burst_waits_for_the_first_to_leave(latency: int, wait: int) -> None:
    """Its address follows the last step of burst 0, so its beats come 19 + 2 latency after the
    start; the port is free for them 36 + latency after it."""
    config = TINY.replace(**{"dram.read_latency_cycles": latency})
    timeline = run(weights(24), config=config)
    port_free = timeline.start[0] + 36 + latency
    assert timeline.last_step[0] == port_free + wait + 16


@pytest.mark.parametrize(("latency", "wait"), [(31, 0), (32, 0), (33, 1), (34, 2)])
def test_a_third_burst_waits_for_the_response_to_the_first(latency: int, wait: int) -> None:
    """Burst 0 streams from 2 to 33 after the start, burst 2 from 68 at the earliest."""
    config = TINY.replace(**{"dram.write_latency_cycles": latency})
    timeline = run(Store(src=0, address=1024, entries=96), config=config)
    assert timeline.last_step[0] == timeline.start[0] + 68 + wait + 31
    assert timeline.finish[0] == timeline.last_step[0] + timing.STORE_DATA_CYCLES + latency


@pytest.mark.parametrize(("address", "beats"), [(0, 16), (8, 16), (112, 16)])
def test_a_row_is_cut_at_every_multiple_of_a_burst(address: int, beats: int) -> None:
    """An unaligned row of one burst's length becomes two bursts with a gap between them."""
    timeline = run(weights(8, address=address))
    first = timeline.start[0] + 2 + LATENCY
    gap = TINY.dram.read_gap_cycles if address else 0
    assert timeline.last_step[0] == first + beats + gap


def test_rows_are_never_merged() -> None:
    """Eight rows of two beats each have a gap between any two, though they adjoin in memory."""
    config = TINY.replace(load_bursts=8)
    timeline = run(weights(1, rows=8, row_stride=16), config=config)
    gaps = 7 * TINY.dram.read_gap_cycles
    assert timeline.last_step[0] == timeline.start[0] + 2 + LATENCY + 16 + gaps


def test_padding_takes_a_cycle_per_entry_while_data_is_on_its_way() -> None:
    """The first beat of data can be used 15 cycles after the start; padding begins after 2."""
    for padding, wait in ((12, 1), (13, 0), (14, 0)):
        timeline = run(weights(1, pad_left=padding))
        assert timeline.memory_wait[0] == wait
        assert timeline.last_step[0] == timeline.start[0] + max(15, 2 + padding) + 1


def test_entries_narrower_than_a_beat_take_a_cycle_each() -> None:
    """Five entries of four bytes from the middle of a beat: three beats, five cycles."""
    timeline = run(Load(memory=Memory.INP, dst=0, address=4, entries=5))
    assert timeline.last_step[0] == timeline.start[0] + 2 + LATENCY + 5


def test_loads_run_ahead_of_the_write_stage() -> None:
    """The addresses of four loads may be sent before the first is written, not those of five."""
    config = TINY.replace(load_bursts=16, **{"dram.read_latency_cycles": 400})
    timeline = run(*[weights(1)] * 6, config=config)
    assert timeline.start[3] < timeline.last_step[0]
    ahead = timing.LOADS_AHEAD
    assert timeline.start[ahead] == timeline.last_step[0] + 1
    assert timeline.start[ahead + 1] == timeline.last_step[1] + 1


def test_a_program_ends_after_its_last_finish() -> None:
    timeline = run(gemm(100), Store(src=0, address=1024, entries=1))
    assert timeline.cycles == max(timeline.finish[:-1]) + timing.FINISH_CYCLES


def test_a_token_may_be_given_by_a_later_instruction() -> None:
    timeline = run(gemm(1, wait=LOAD), weights(1, signal=GEMM))
    assert timeline.start[0] == timeline.finish[1] + 1


@pytest.mark.parametrize("name", PRESETS)
def test_every_cycle_of_every_engine_is_accounted_for(name: str) -> None:
    for seed in range(5):
        timeline = simulate_timing(random_program(PRESETS[name], seed))
        for engine in Engine:
            account = timeline.account(engine)
            assert account.cycles == timeline.cycles
            assert min(account.busy, account.memory_wait, account.fetch_wait, account.done) >= 0
            last = timeline.last_step[timeline.engine == engine].max(initial=-1)
            assert account.done == timeline.cycles - last - 1


def test_bytes_are_counted() -> None:
    timeline = run(
        weights(2, rows=3, planes=2, pad_left=1), Store(src=0, address=1024, entries=3, rows=2)
    )
    assert timeline.dram_bytes.tolist() == [12 * 16, 6 * 4, 0]
    assert timeline.dram_read_bytes == 12 * 16 + 3 * 32
    assert timeline.dram_write_bytes == 6 * 4
