"""Tokens of compiled programs: enough of them, none too many, and what they buy."""

from dataclasses import replace

import numpy as np
import pytest
from integer_graphs import GraphBuilder

from tilewright.compiler.compile import compile_graph
from tilewright.compiler.graph import Graph
from tilewright.isa.errors import ProgramError
from tilewright.isa.memories import Engine
from tilewright.isa.presets import PRESETS
from tilewright.isa.program import Program
from tilewright.isa.validator import validate
from tilewright.sim.clockwork import simulate_timing


def network(seed: int = 3) -> Graph:
    builder = GraphBuilder(seed)
    x = builder.input(1, 12, 12, 8)
    y = builder.conv(x, 8, kernel=(3, 3), pads=(1, 1, 1, 1))
    y = builder.add(builder.conv(y, 8, kernel=(3, 3), pads=(1, 1, 1, 1)), x)
    y = builder.conv(y, 8, kernel=(3, 3), pads=(1, 1, 1, 1), groups=8)
    return builder.build(builder.average_pool(y, (12, 12), (1, 1)))


@pytest.fixture(scope="module")
def program() -> Program:
    # Short queues order some instructions by themselves; here the tokens alone have to.
    (step,) = compile_graph(network(), PRESETS["tiny"].replace(queue_entries=512)).steps
    return step.program


def edges(program: Program) -> list[tuple[int, int]]:
    """Pairs of instruction numbers: who gives a token and who takes it."""
    given: dict[tuple[Engine, Engine], list[int]] = {}
    taken: dict[tuple[Engine, Engine], list[int]] = {}
    for number, instruction in enumerate(program.instructions):
        engine = type(instruction).engine
        for other in Engine:
            if engine is not None and instruction.signal >> other & 1:
                given.setdefault((engine, other), []).append(number)
            if engine is not None and instruction.wait >> other & 1:
                taken.setdefault((other, engine), []).append(number)
    assert given.keys() == taken.keys()
    return [pair for key in given for pair in zip(given[key], taken[key], strict=True)]


def without(program: Program, edge: tuple[int, int]) -> Program:
    """Take one token out of a program."""
    instructions = list(program.instructions)
    giver, taker = (instructions[number] for number in edge)
    taker_engine, giver_engine = type(taker).engine, type(giver).engine
    instructions[edge[0]] = replace(giver, signal=giver.signal & ~(1 << taker_engine))
    instructions[edge[1]] = replace(taker, wait=taker.wait & ~(1 << giver_engine))
    return replace(program, instructions=tuple(instructions))


def test_every_single_token_is_needed(program: Program, rng: np.random.Generator) -> None:
    validate(program)
    every = edges(program)
    assert len(every) > 100
    for index in rng.choice(len(every), 40, replace=False):
        with pytest.raises(ProgramError, match="without waiting for"):
            validate(without(program, every[index]))


def test_tokens_follow_program_order(program: Program) -> None:
    assert all(giver < taker for giver, taker in edges(program))


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
@pytest.mark.parametrize("queue_entries", [2, 5, 512])
def test_counters_stay_within_their_limit(limit: int, queue_entries: int) -> None:
    config = PRESETS["tiny"].replace(token_limit=limit, queue_entries=queue_entries)
    (step,) = compile_graph(network(), config).steps
    validate(step.program)
    assert all(giver < taker for giver, taker in edges(step.program))


def test_a_limit_that_queues_keep_costs_no_token() -> None:
    config = PRESETS["tiny"].replace(queue_entries=4)
    tight, wide = (
        compile_graph(network(), config.replace(token_limit=limit)).steps[0].program
        for limit in (5, 255)
    )
    assert tight.instructions == wide.instructions


def test_every_kind_of_channel_is_used(program: Program) -> None:
    engines = {
        (type(program.instructions[a]).engine, type(program.instructions[b]).engine)
        for a, b in edges(program)
    }
    assert (Engine.LOAD, Engine.GEMM) in engines
    assert (Engine.GEMM, Engine.VECTOR) in engines
    assert (Engine.VECTOR, Engine.STORE) in engines
    assert (Engine.STORE, Engine.LOAD) in engines


def test_engines_overlap() -> None:
    builder = GraphBuilder(seed=5)
    x = builder.input(1, 32, 32, 32)
    for _ in range(3):
        x = builder.conv(x, 32, kernel=(3, 3), pads=(1, 1, 1, 1))
    (step,) = compile_graph(builder.build(x), PRESETS["pynq"]).steps
    timeline = simulate_timing(step.program)
    busy = {engine: timeline.account(engine).busy for engine in Engine}
    assert timeline.cycles < 1.12 * busy[Engine.GEMM]
    assert sum(busy.values()) > 1.3 * timeline.cycles
