"""A token that is taken was given by the instruction that the pairing names."""

import pytest

from tilewright.isa.instructions import Finish, Gemm, Load
from tilewright.isa.memories import Engine, Memory
from tilewright.isa.presets import PRESETS
from tilewright.sim.clockwork import simulate_timing
from tilewright.sim.random_programs import random_program
from tilewright.sim.token_pairs import token_pairs

LOAD, GEMM = 1 << Engine.LOAD, 1 << Engine.GEMM


def test_tokens_pair_in_order_wherever_their_instructions_stand() -> None:
    load = Load(memory=Memory.INP, dst=0, entries=1)
    giving = Load(memory=Memory.INP, dst=0, entries=1, signal=GEMM)
    taking = Gemm(wait=LOAD)
    assert token_pairs((taking, load, giving, giving, Gemm(), taking, Finish())) == (
        (2, 0),
        (3, 5),
    )


@pytest.mark.parametrize("seed", range(10))
def test_every_token_is_paired_and_given_before_it_is_taken(seed: int) -> None:
    program = random_program(PRESETS["tiny"], seed)
    timeline = simulate_timing(program)
    pairs = token_pairs(program.instructions)
    waits = sum(item.wait.bit_count() for item in program.instructions)
    signals = sum(item.signal.bit_count() for item in program.instructions)
    assert len(pairs) == len(set(pairs)) == waits == signals
    for giver, taker in pairs:
        assert program.instructions[giver].signal >> program.instructions[taker].engine & 1
        assert timeline.finish[giver] < timeline.start[taker]
    for taker in timeline.token_giver.nonzero()[0]:
        if timeline.token_wait[taker]:
            last = max(timeline.finish[g] for g, t in pairs if t == taker)
            assert timeline.start[taker] - timeline.drain[taker] == last + 1
