"""The rules of the validator for what must be ordered: races, deadlocks, tokens, runs."""

from dataclasses import replace

import pytest
from effort import growth
from isa_programs import (
    GEMM,
    HEADER,
    LOAD_INP,
    LOAD_VEC,
    STORE,
    program_of,
    refusal_of,
    with_config,
)

from tilewright.isa.assembly import assemble
from tilewright.isa.encoding import encode_uops
from tilewright.isa.errors import DeadlockError, ProgramError
from tilewright.isa.instructions import (
    Finish,
    Gemm,
    GemmLoop,
    GemmUop,
    Load,
    Store,
    Vector,
    VectorLoop,
    VectorOperation,
    VectorUop,
)
from tilewright.isa.memories import Engine, Memory
from tilewright.isa.presets import PRESETS
from tilewright.isa.program import Program, Segment
from tilewright.isa.validator import validate


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        (
            [(f"{GEMM} wait=load", GEMM), (f"{LOAD_INP} signal=gemm", LOAD_INP)],
            (
                "instruction 5 (gemm 0): reads entry 0 of guop without waiting for instruction 0"
                " (load 0), which writes it"
            ),
        ),
        (
            [
                ("src=1) wait=load,gemm", "src=1) wait=load"),
                ("wait=load signal=vector", "wait=load"),
            ],
            (
                "instruction 6 (vector 0): uses bank 0 of acc without waiting for instruction 5"
                " (gemm 0), which uses it"
            ),
        ),
        (
            [("signal=store", ""), (f"{STORE} wait=vector", STORE)],
            (
                "instruction 7 (store 0): reads entry 0 of out without waiting for instruction 6"
                " (vector 0), which writes it"
            ),
        ),
        (
            [("wait=vector signal=load", "wait=vector"), (f"{LOAD_VEC} wait=store", LOAD_VEC)],
            (
                "instruction 8 (load 5): reads DRAM byte 0x2800 without waiting for instruction 7"
                " (store 0), which writes it"
            ),
        ),
        (
            [
                (f"{LOAD_VEC} wait=store", f"{LOAD_VEC.replace('vec', 'inp')} wait=store"),
                ("wait=load signal=vector", "signal=vector"),
                ("entries=8 signal=gemm", "entries=8"),
                ("entries=1 signal=vector", "entries=1 signal=gemm,vector"),
                (GEMM, f"{GEMM} wait=load"),
            ],
            (
                "instruction 5 (gemm 0): reads entry 0 of inp without waiting for instruction 4"
                " (load 4), which writes it"
            ),
        ),
        (
            [
                ("\nfinish", "\nload memory=wgt dst=0 address=0x1060 entries=1\nfinish"),
                (LOAD_VEC, f"load memory=inp dst=8 address=0x2000 entries=1\n{LOAD_VEC}"),
            ],
            None,
        ),
        (
            [(LOAD_VEC, f"load memory=inp dst=7 address=0x2000 entries=1\n{LOAD_VEC}")],
            (
                "instruction 8 (load 5): writes entry 7 of inp without waiting for instruction 5"
                " (gemm 0), which reads it"
            ),
        ),
        (
            [(LOAD_VEC, f"gemm dst=31 loop(extent=2, dst=1)\n{LOAD_VEC}")],
            (
                "instruction 8 (gemm 1): uses bank 0 of acc without waiting for instruction 6"
                " (vector 0), which uses it"
            ),
        ),
        ([(LOAD_VEC, f"gemm dst=32 loop(extent=2, dst=1)\n{LOAD_VEC}")], None),
    ],
)
def test_races(edits: list[tuple[str, str]], message: str | None) -> None:
    if message is None:
        validate(program_of(*edits))
    else:
        assert refusal_of(*edits) == message


def test_deadlocks_say_what_each_engine_waits_for() -> None:
    with pytest.raises(DeadlockError) as caught:
        validate(program_of(("wait=load signal=vector", "wait=load")))
    assert str(caught.value) == (
        "deadlock: load waits for a token from store at instruction 8 (load 5), gemm is done,"
        " vector waits for a token from gemm at instruction 6 (vector 0),"
        " store waits for a token from vector at instruction 7 (store 0)"
    )


def test_a_full_queue_deadlocks_where_a_longer_one_would_not() -> None:
    """The gemm that a load waits for is dispatched after more loads than the queue holds."""
    text = """
load memory=guop dst=0 address=0x1000 entries=1
load memory=wgt dst=0 address=0x1060 entries=1
load memory=inp dst=0 address=0x1060 entries=1 signal=gemm
load memory=vec dst=0 address=0x1060 entries=1 wait=gemm
load memory=vec dst=0 address=0x1060 entries=1
load memory=vec dst=0 address=0x1060 entries=1
load memory=vec dst=0 address=0x1060 entries=1
gemm wait=load signal=load
finish
"""
    validate(with_config(text, queue_entries=4))
    with pytest.raises(DeadlockError) as caught:
        validate(with_config(text, queue_entries=3))
    assert str(caught.value) == (
        "deadlock: load waits for a token from gemm at instruction 3 (load 3), gemm waits for the"
        " dispatch of instruction 7 (gemm 0), vector is done, store is done, dispatch waits for"
        " room in the queue of load at instruction 6 (load 6)"
    )


def test_dispatch_that_waits_for_room() -> None:
    text = "\n".join(["gemm wait=load"] * 5 + ["load memory=inp dst=0 entries=1", "finish"])
    with pytest.raises(DeadlockError) as caught:
        validate(assemble(HEADER + text))
    assert str(caught.value) == (
        "deadlock: load waits for the dispatch of instruction 5 (load 0), gemm waits for a token"
        " from load at instruction 0 (gemm 0), vector is done, store is done, dispatch waits for"
        " room in the queue of gemm at instruction 4 (gemm 4)"
    )


def test_tokens_left_over() -> None:
    assert refusal_of(("wait=load,gemm", "wait=gemm")) == (
        "the tokens from load to vector do not balance: 1 are given and 0 are taken"
    )


def loads_and_gemms(count: int, *, in_turns: bool) -> str:
    """Loads that each give a token to a gemm."""
    loads = [f"load memory=inp dst={i} entries=0 pad_left=1 signal=gemm" for i in range(count)]
    gemms = [f"gemm src={i} dst={i} wait=load" for i in range(count)]
    turns = [line for pair in zip(loads, gemms, strict=True) for line in pair]
    setup = """
load memory=guop dst=0 address=0x1000 entries=1
load memory=wgt dst=0 address=0x1060 entries=1
"""
    return setup + "\n".join([*(turns if in_turns else loads + gemms), "finish"])


@pytest.mark.parametrize(
    ("in_turns", "most", "place"),
    [
        # Until gemm 0 starts, gemm 4 has no room in the queue, and load 5 stands behind it.
        pytest.param(True, 5, "instruction 10 (load 6)", id="bounded by the queue"),
        pytest.param(False, 40, "instruction 41 (load 41)", id="bounded by their number"),
    ],
)
def test_token_counters_are_bounded_under_any_timing(in_turns: bool, most: int, place: str) -> None:
    text = loads_and_gemms(40, in_turns=in_turns)
    validate(with_config(text, queue_entries=4, token_limit=most))
    with pytest.raises(ProgramError) as caught:
        validate(with_config(text, queue_entries=4, token_limit=most - 1))
    assert str(caught.value) == (
        f"{place}: the tokens from load to gemm may come to {most}, more than token_limit"
        f" ({most - 1})"
    )


EIGHT = "loop(extent=8, dst=1, src=1)"
IN_PLACE = """
load memory=guop dst=0 address=0x1000 entries=1
load memory=vuop dst=0 address=0x1010 entries=2
load memory=wgt dst=0 address=0x1060 entries=1
load memory=inp dst=0 address=0x2000 entries=8 signal=gemm
gemm loop(extent=8, dst=1, src=1) wait=load signal=vector
vector operation=sum target=acc {} wait=gemm
finish
"""


def test_a_vector_instruction_may_read_what_its_own_run_writes() -> None:
    validate(assemble(HEADER + IN_PLACE.format("src=256 loop(extent=8, dst=1, src=1)")))
    validate(assemble(HEADER + IN_PLACE.format("src=257 loop(extent=7, dst=1, src=1)")))
    validate(assemble(HEADER + IN_PLACE.format("src=256 loop(extent=8, src=1)")))


@pytest.mark.parametrize(
    ("operands", "entry"),
    [
        ("dst=1 src=256 loop(extent=7, dst=1, src=1)", 1),
        ("src=256 loop(extent=2) loop(extent=8, dst=1, src=1)", 0),
        ("dst=8 src=256 loop(extent=2, dst=63, src=8) loop(extent=8, dst=1)", 8),
        ("uop_count=2 src=256 loop(extent=8, dst=1, src=1)", 0),
    ],
)
def test_a_vector_instruction_must_not_read_what_an_earlier_run_wrote(
    operands: str, entry: int
) -> None:
    with pytest.raises(ProgramError) as caught:
        validate(assemble(HEADER + IN_PLACE.format(operands)))
    assert str(caught.value) == (
        f"instruction 5 (vector 0): reads entry {entry} of acc after an earlier run of the same"
        f" instruction has written it"
    )


def test_an_instruction_of_too_many_steps_in_place_is_refused_at_once() -> None:
    loops = "loop(extent=4095) loop(extent=4095) loop(extent=8, dst=1, src=1)"
    with pytest.raises(ProgramError) as caught:
        validate(assemble(HEADER + IN_PLACE.format(f"src=256 {loops}")))
    assert str(caught.value) == (
        "instruction 5 (vector 0): an instruction that reads entries of acc which it writes must"
        " have at most 16777216 steps, not 134152200"
    )


def test_the_effort_does_not_follow_the_steps_of_loops() -> None:
    small, large = (
        assemble(HEADER + IN_PLACE.replace(EIGHT, loops, 1).format("src=256 dst=63"))
        for loops in (
            EIGHT,
            "loop(extent=4095, dst=1) loop(extent=4095, dst=63) loop(extent=4095, dst=1)",
        )
    )
    # Steps are 8.6e9 times as many.
    assert growth(lambda: validate(small), lambda: validate(large)) < 100


def tiles(count: int) -> Program:
    """A double-buffered layer of `count` tiles on `pynq`: four instructions a tile."""
    config = PRESETS["pynq"]
    gemm_uops = encode_uops(GemmUop, [[0, i, i] for i in range(9)], config)
    vector_uops = encode_uops(VectorUop, [[0, 0, 0]], config)
    data = gemm_uops.tobytes() + vector_uops.tobytes() + bytes(8 * 1024)
    load, gemm, vector, store = (1 << engine for engine in Engine)
    row = Load(memory=Memory.GUOP, dst=0, address=0x1000, entries=9)
    instructions: list[Load | Gemm | Vector | Store | Finish] = [
        row,
        replace(row, memory=Memory.VUOP, address=0x1048, entries=1),
        replace(row, memory=Memory.WGT, address=0x1050),
        replace(row, memory=Memory.PRM, address=0x1050, entries=1, signal=vector),
    ]
    for i in range(count):
        half = i % 2
        old, new = i >= 2, i < count - 2
        instructions += [
            Load(
                memory=Memory.INP,
                dst=half * 512,
                entries=14,
                rows=14,
                row_stride=224,
                address=0x10000,
                pad_left=1,
                pad_right=1,
                pad_top=1,
                pad_bottom=1,
                wait=gemm * old,
                signal=gemm,
            ),
            Gemm(
                uop_count=9,
                src=half * 512,
                dst=half * 512,
                loops=(
                    GemmLoop(),
                    GemmLoop(extent=14, dst=14, src=16),
                    GemmLoop(extent=14, dst=1, src=1),
                ),
                wait=load | vector * old,
                signal=load * new | vector,
            ),
            Vector(
                operation=VectorOperation.SUM,
                requantise=True,
                src=config.acc_operand_base + half * 512,
                dst=half * 512,
                loops=(VectorLoop(), VectorLoop(), VectorLoop(extent=196, src=1, dst=1)),
                wait=gemm | store * old | load * (i == 0),
                signal=gemm * new | store,
            ),
            Store(
                src=half * 512,
                entries=196,
                address=0x20000 + i * 3136,
                wait=vector,
                signal=vector * new,
            ),
        ]
    return Program(
        config=config,
        instructions=(*instructions, Finish()),
        code_address=1 << 25,
        constants=(Segment(address=0x1000, data=data),),
        dram_bytes=1 << 26,
    )


def test_the_effort_grows_with_the_length_of_the_program() -> None:
    small, large = tiles(100), tiles(300)
    # Three times as long; what is quadratic would take nine times as long.
    assert growth(lambda: validate(small), lambda: validate(large)) < 5
