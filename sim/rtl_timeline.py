"""The timeline of a run on the hardware, made of the cycles in which its events were seen."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_never

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import instruction_bytes
from tilewright.isa.instructions import AnyInstruction, Finish, Gemm, Load, Store, Vector
from tilewright.isa.memories import Engine
from tilewright.isa.program import Program
from tilewright.isa.timing import (
    LOAD_START_CYCLES,
    LOAD_WRITE_CYCLES,
    QUEUE_CYCLES,
    STORE_DATA_CYCLES,
    STORE_START_CYCLES,
    TOKEN_CYCLES,
    VECTOR_STAGES,
    gemm_stages,
)
from tilewright.sim.timeline import NO_ENGINE, Timeline
from tilewright.sim.transfers import Transfer, TransferKey, load_key, make_transfer, store_key

Cycles: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The cycles in which each instruction was dispatched, started and finished."""

    dispatch: Cycles
    start: Cycles
    finish: Cycles
    #: Last cycle of the program.
    cycles: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Facts:
    """What the program says of its instructions, one value each."""

    engine: npt.NDArray[np.int8]
    #: Engines that it takes tokens from and gives tokens to, one bit each.
    wait: Cycles
    signal: Cycles
    #: Cycles from its last step to its finish.
    tail: Cycles
    #: Steps with start-up, except that of a load; `_EVERY_CYCLE` where each cycle is one.
    steps: Cycles
    dram_bytes: Cycles


#: In `_Facts.steps`.
_EVERY_CYCLE = -1


def measured_timeline(program: Program, events: Events) -> Timeline:
    """Name what each engine did between the events; the simulator is not asked."""
    facts = _facts(program)
    runs = facts.engine != NO_ENGINE
    last_step = np.where(runs, events.finish - facts.tail, events.cycles)
    idle_from = _idle_from(facts, events, last_step)
    token, giver = _tokens(facts, events)
    fetched = np.maximum(idle_from, events.dispatch + QUEUE_CYCLES)
    supplied = np.maximum(fetched, token)
    began = np.maximum(events.start, idle_from)
    worked = last_step + 1 - began
    startup = np.maximum(0, events.start + LOAD_START_CYCLES - began)
    steps = facts.steps + np.where(facts.engine == Engine.LOAD, startup, 0)
    busy = np.where(facts.steps == _EVERY_CYCLE, worked, steps)
    return Timeline(
        cycles=events.cycles,
        engine=facts.engine,
        dispatch=events.dispatch,
        start=events.start,
        last_step=last_step,
        finish=events.finish,
        fetch_wait=np.where(runs, fetched - idle_from, 0),
        token_wait=np.where(runs, supplied - fetched, 0),
        token_giver=np.where(runs & (supplied > fetched), giver, NO_ENGINE).astype(np.int8),
        drain=np.where(runs, np.maximum(0, events.start - supplied), 0),
        busy=np.where(runs, busy, 0),
        memory_wait=np.where(runs, worked - busy, 0),
        dram_bytes=facts.dram_bytes,
        fetch_bytes=len(program.instructions) * instruction_bytes(program.config),
    )


def _idle_from(facts: _Facts, events: Events, last_step: Cycles) -> Cycles:
    """Return the cycle from which the engine of each instruction had nothing else to do."""
    result = np.zeros_like(last_step)
    for engine in Engine:
        mine = np.flatnonzero(facts.engine == engine)
        mine = mine[np.argsort(events.start[mine], kind="stable")]
        result[mine[1:]] = last_step[mine[:-1]] + 1
    return result


def _tokens(facts: _Facts, events: Events) -> tuple[Cycles, Cycles]:
    """Return the first cycle in which all tokens were there, and the giver of the last one.

    Each channel is a queue: the n-th token taken is the n-th token given.
    """
    token, last_giver = np.zeros_like(events.finish), np.full_like(events.finish, NO_ENGINE)
    for giver in Engine:
        for taker in Engine:
            gives = (facts.engine == giver) & (facts.signal >> taker & 1 == 1)
            takers = np.flatnonzero((facts.engine == taker) & (facts.wait >> giver & 1 == 1))
            takers = takers[np.argsort(events.start[takers], kind="stable")]
            given = np.sort(events.finish[gives])[: len(takers)] + TOKEN_CYCLES
            takers = takers[: len(given)]
            later = given > token[takers]
            token[takers[later]], last_giver[takers[later]] = given[later], giver
    return token, last_giver


def _facts(program: Program) -> _Facts:
    config = program.config
    transfers: dict[TransferKey, Transfer] = {}
    tails: dict[type[AnyInstruction], int] = {}

    def work(key: TransferKey, startup: int) -> tuple[int, int]:
        if key not in transfers:
            transfers[key] = make_transfer(key, config)
        return startup + transfers[key].steps, transfers[key].data_bytes

    rows = []
    for instruction in program.instructions:
        kind = type(instruction)
        if kind not in tails:
            tails[kind] = _tail(instruction, config)
        match instruction:
            case Load():
                done = work(load_key(instruction, config), 0)
            case Store():
                done = work(store_key(instruction, config), STORE_START_CYCLES)
            case Gemm() | Vector() | Finish():
                done = _EVERY_CYCLE, 0
            case _:
                assert_never(instruction)
        engine = NO_ENGINE if instruction.engine is None else instruction.engine
        rows.append((engine, instruction.wait, instruction.signal, tails[kind], *done))
    engines, wait, signal, tail, steps, dram_bytes = np.array(rows, dtype=np.int64).T.copy()
    return _Facts(
        engine=engines.astype(np.int8),
        wait=wait,
        signal=signal,
        tail=tail,
        steps=steps,
        dram_bytes=dram_bytes,
    )


def _tail(instruction: AnyInstruction, config: AcceleratorConfig) -> int:
    """Cycles from the last step of an instruction to its finish."""
    match instruction:
        case Load():
            return LOAD_WRITE_CYCLES
        case Gemm():
            return gemm_stages(config)
        case Vector():
            return VECTOR_STAGES
        case Store():
            return STORE_DATA_CYCLES + config.dram.write_latency_cycles
        case Finish():
            return 0
        case _:
            assert_never(instruction)
