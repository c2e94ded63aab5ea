"""The validator says of small random programs, intact and mutated, what a checker by trial says."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from timing_oracle import Location, Unsound, effects, is_sound

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import encode_uop
from tilewright.isa.errors import ProgramError
from tilewright.isa.instructions import (
    TOKEN_CHANNELS,
    AnyInstruction,
    Finish,
    Gemm,
    GemmLoop,
    GemmUop,
    Load,
    Store,
    Vector,
    VectorLoop,
    VectorOperation,
    VectorTarget,
    VectorUop,
)
from tilewright.isa.memories import UOP_BYTES, Engine, Memory, memory_shape
from tilewright.isa.presets import PRESETS
from tilewright.isa.program import Program, Segment
from tilewright.isa.validator import validate

CONFIG = PRESETS["tiny"].replace(queue_entries=3, token_limit=3)
GEMM_UOPS = [GemmUop(), GemmUop(src=1, wgt=1), GemmUop(dst=1, src=2), GemmUop(dst=1, src=3, wgt=1)]
VECTOR_UOPS = [VectorUop(), VectorUop(src=1, coef=1), VectorUop(dst=1, src=1), VectorUop(dst=2)]
UOPS = b"".join(encode_uop(uop, CONFIG) for uop in (*GEMM_UOPS, *VECTOR_UOPS))
CONSTANTS = Segment(address=0x400, data=UOPS + bytes(256))
VECTOR_UOPS_ADDRESS = CONSTANTS.address + len(GEMM_UOPS) * UOP_BYTES
DATA_ADDRESS = CONSTANTS.address + len(UOPS)
STORED_ADDRESS = 0x800
CODE_ADDRESS = 0x1000

Instructions = list[AnyInstruction]


def preamble() -> Instructions:
    """Loads that give every scratchpad contents."""
    load = Load(memory=Memory.GUOP, dst=0, address=CONSTANTS.address, entries=len(GEMM_UOPS))
    return [
        load,
        replace(load, memory=Memory.VUOP, address=VECTOR_UOPS_ADDRESS),
        *(
            replace(load, memory=memory, address=DATA_ADDRESS, entries=entries)
            for memory, entries in (
                (Memory.INP, 8),
                (Memory.WGT, 4),
                (Memory.VEC, 8),
                (Memory.COEF, 4),
                (Memory.PRM, 2),
            )
        ),
        Gemm(dst=28, loops=(GemmLoop(), GemmLoop(), GemmLoop(extent=8, dst=1))),
        Vector(
            operation=VectorOperation.SUM, loops=(*[VectorLoop()] * 2, VectorLoop(extent=8, dst=1))
        ),
    ]


def random_instruction(rng: random.Random) -> AnyInstruction:
    """An instruction on few entries, so that most pairs conflict."""
    match rng.choice(list(Engine)):
        case Engine.LOAD:
            memory = rng.choice([Memory.INP, Memory.VEC, Memory.WGT, Memory.COEF, Memory.PRM])
            size = memory_shape(memory, CONFIG).entry_bytes
            aligned = rng.randrange(4) * max(size, 8)
            return Load(
                memory=memory,
                dst=rng.randrange(3),
                address=rng.choice([DATA_ADDRESS, STORED_ADDRESS]) + aligned,
                entries=rng.randint(1, 2),
                pad_left=rng.randrange(2),
            )
        case Engine.GEMM:
            return Gemm(
                accumulate=rng.random() < 0.5,
                uop_begin=rng.randrange(3),
                uop_count=rng.randint(1, 2),
                dst=rng.choice([28, 30, 32, 34]),
                src=rng.randrange(3),
                wgt=rng.randrange(2),
                loops=(GemmLoop(), GemmLoop(), GemmLoop(extent=rng.randint(1, 2), dst=1, src=1)),
            )
        case Engine.VECTOR:
            target = rng.choice(list(VectorTarget))
            from_acc = rng.random() < 0.5
            return Vector(
                operation=rng.choice([VectorOperation.SUM, VectorOperation.MAC]),
                target=target,
                requantise=rng.random() < 0.3,
                uop_begin=rng.randrange(3),
                uop_count=rng.randint(1, 2),
                dst=rng.randrange(3) + (28 if target is VectorTarget.ACC else 0),
                src=rng.randrange(4) + (CONFIG.acc_operand_base + 28 if from_acc else 0),
                loops=(
                    VectorLoop(),
                    VectorLoop(),
                    VectorLoop(extent=rng.randint(1, 2), dst=rng.randrange(3), src=1, prm=1),
                ),
            )
        case Engine.STORE:
            return Store(
                src=rng.randrange(4),
                address=STORED_ADDRESS + 4 * rng.randrange(8),
                entries=rng.randint(1, 2),
                rows=rng.randint(1, 2),
                row_stride=rng.choice([8, 16]),
            )


def synchronised(instructions: Sequence[AnyInstruction]) -> Instructions:
    """Add a token from the last conflicting instruction of each other engine, where none does."""
    result = list(instructions)
    used = [locations(item) for item in instructions]
    covered = dict.fromkeys(TOKEN_CHANNELS, -1)
    for taker, instruction in enumerate(instructions):
        for giver in reversed(range(taker)):
            channel = (instructions[giver].engine, instruction.engine)
            if channel not in TOKEN_CHANNELS or giver <= covered[channel]:
                continue
            (reads, writes), (later_reads, later_writes) = used[giver], used[taker]
            if writes & (later_reads | later_writes) or reads & later_writes:
                covered[channel] = giver
                result[giver] = replace(
                    result[giver], signal=result[giver].signal | 1 << channel[1]
                )
                result[taker] = replace(result[taker], wait=result[taker].wait | 1 << channel[0])
    return result


def locations(instruction: AnyInstruction) -> tuple[set[Location], set[Location]]:
    """What an instruction reads and writes; a bank of `acc` counts as written as a whole."""
    found = effects(instruction, CONFIG, GEMM_UOPS, VECTOR_UOPS)
    reads = {location for kind, location in found if kind == "r"}
    writes = {location for kind, location in found if kind == "w"}
    banks = {("bank", n // 32) for name, n in reads | writes if name == "ACC"}
    return reads, writes | banks


def drop_token(program: Instructions, rng: random.Random) -> None:
    """Remove one token on both sides."""
    giver, taker = rng.choice(sorted(TOKEN_CHANNELS))
    gives = [i for i, x in enumerate(program) if x.engine is giver and x.signal >> taker & 1]
    takes = [i for i, x in enumerate(program) if x.engine is taker and x.wait >> giver & 1]
    if gives and takes:
        number = rng.randrange(min(len(gives), len(takes)))
        flip(program, gives[number], "signal", taker)
        flip(program, takes[number], "wait", giver)


def flip_one_side(program: Instructions, rng: random.Random) -> None:
    """Add or remove a token on one side only."""
    giver, taker = rng.choice(sorted(TOKEN_CHANNELS))
    side, owner, other = rng.choice([("signal", giver, taker), ("wait", taker, giver)])
    positions = [i for i, x in enumerate(program) if x.engine is owner]
    if positions:
        flip(program, rng.choice(positions), side, other)


def add_token(program: Instructions, rng: random.Random) -> None:
    """Add a token on both sides, or remove what is there."""
    giver, taker = rng.choice(sorted(TOKEN_CHANNELS))
    gives = [i for i, x in enumerate(program) if x.engine is giver]
    takes = [i for i, x in enumerate(program) if x.engine is taker]
    if gives and takes:
        flip(program, rng.choice(gives), "signal", taker)
        flip(program, rng.choice(takes), "wait", giver)


def move_signal(program: Instructions, rng: random.Random) -> None:
    """Give a token one instruction earlier or later."""
    giver, taker = rng.choice(sorted(TOKEN_CHANNELS))
    own = [i for i, x in enumerate(program) if x.engine is giver]
    pairs = [
        pair
        for pair in pairwise(own)
        if (program[pair[0]].signal ^ program[pair[1]].signal) >> taker & 1
    ]
    if pairs:
        for position in rng.choice(pairs):
            flip(program, position, "signal", taker)


def swap_neighbours(program: Instructions, rng: random.Random) -> None:
    """Exchange two instructions that follow each other."""
    i = rng.randrange(len(program) - 2)
    program[i], program[i + 1] = program[i + 1], program[i]


def shift_index(program: Instructions, rng: random.Random) -> None:
    """Move an operand by one entry."""
    i = rng.randrange(len(program) - 1)
    match program[i]:
        case Load(memory=Memory.GUOP | Memory.VUOP):
            pass
        case Load() | Gemm() | Vector() as item:
            program[i] = replace(item, dst=max(item.dst + rng.choice([-1, 1]), 0))
        case Store() as item:
            program[i] = replace(item, src=max(item.src + rng.choice([-1, 1]), 0))


def shift_address(program: Instructions, rng: random.Random) -> None:
    """Move a store by a whole entry."""
    stores = [i for i, item in enumerate(program) if isinstance(item, Store)]
    if stores:
        i = rng.choice(stores)
        item = program[i]
        assert isinstance(item, Store)
        program[i] = replace(item, address=item.address + rng.choice([-4, 4]))


def leave(program: Instructions, rng: random.Random) -> None:
    """Change nothing."""


MUTATIONS: list[Callable[[Instructions, random.Random], None]] = [
    leave,
    drop_token,
    flip_one_side,
    add_token,
    move_signal,
    swap_neighbours,
    shift_index,
    shift_address,
]


def flip(program: Instructions, position: int, side: str, engine: Engine) -> None:
    item = program[position]
    program[position] = replace(item, **{side: getattr(item, side) ^ 1 << engine})


def is_accepted(instructions: Sequence[AnyInstruction], config: AcceleratorConfig) -> str:
    """Empty if the validator accepts a program, else its reason."""
    program = Program(
        config=config,
        instructions=tuple(instructions),
        code_address=CODE_ADDRESS,
        constants=(CONSTANTS,),
        dram_bytes=1 << 16,
    )
    try:
        validate(program)
    except ProgramError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda item: item.__name__)
def test_verdict_equals_that_of_the_checker_by_trial(
    mutation: Callable[[Instructions, random.Random], None],
) -> None:
    rng = random.Random(mutation.__name__)
    verdicts: Counter[bool] = Counter()
    for seed in range(70):
        config = CONFIG.replace(
            queue_entries=rng.choice([2, 3, 8]), token_limit=rng.choice([2, 9, 9])
        )
        program = preamble()
        while len(program) < 10 + seed % 14:
            candidate = random_instruction(rng)
            try:
                effects(candidate, CONFIG, GEMM_UOPS, VECTOR_UOPS)
            except Unsound:
                continue
            program.append(candidate)
        program = [*synchronised(program), Finish()]
        mutation(program, rng)
        sound = is_sound(program, config, GEMM_UOPS, VECTOR_UOPS, seed)
        reason = is_accepted(program, config)
        assert sound == (not reason), (seed, sound, reason)
        verdicts[sound] += 1
    assert mutation is flip_one_side or verdicts[True] >= 5, verdicts
    assert mutation is leave or verdicts[False] >= 5, verdicts
