"""The accelerator's status registers in words."""

from dataclasses import dataclass

from tilewright.isa.memories import Engine
from tilewright.isa.program import Program
from tilewright.isa.registers import EngineRegister, engine_base
from tilewright.runtime.board_access import Window
from tilewright.runtime.board_machine import EngineCounters

#: Bits of `EngineRegister.STATE`: engines whose token is missing, then two flags.
_WAITS_MASK = (1 << len(Engine)) - 1
_QUEUED = 1 << len(Engine)
_ACTIVE = 2 << len(Engine)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """What an engine does at the moment."""

    engine: Engine
    #: Engines whose token its next instruction lacks.
    waits_for: tuple[Engine, ...]
    queued: bool
    active: bool
    #: Instructions started since the start of the program.
    started: int


def read_states(registers: Window) -> tuple[EngineState, ...]:
    """Read the state of every engine."""
    states = []
    for engine in Engine:
        value = registers.read(engine_base(engine) + EngineRegister.STATE)
        states.append(
            EngineState(
                engine=engine,
                waits_for=tuple(giver for giver in Engine if value & _WAITS_MASK & 1 << giver),
                queued=bool(value & _QUEUED),
                active=bool(value & _ACTIVE),
                started=registers.read(engine_base(engine) + EngineRegister.STARTED),
            )
        )
    return tuple(states)


def read_counters(registers: Window) -> tuple[EngineCounters, ...]:
    """Read the counters of every engine."""

    def count(engine: Engine, register: EngineRegister) -> int:
        return registers.read(engine_base(engine) + register)

    return tuple(
        EngineCounters(
            started=count(engine, EngineRegister.STARTED),
            finished=count(engine, EngineRegister.FINISHED),
            busy=count(engine, EngineRegister.BUSY),
            memory_wait=count(engine, EngineRegister.MEMORY_WAIT),
            token_wait=count(engine, EngineRegister.TOKEN_WAIT),
            fetch_wait=count(engine, EngineRegister.FETCH_WAIT),
            drain=count(engine, EngineRegister.DRAIN),
        )
        for engine in Engine
    )


def describe(states: tuple[EngineState, ...], program: Program) -> str:
    """Say what each engine is at, such as "vector waits for a token from load at instruction 812".

    Instructions are counted from 0, as the disassembly counts them.
    """
    parts = [text for state in states if (text := _describe(state, program))]
    return "; ".join(parts) if parts else "no engine has anything left to do"


def _describe(state: EngineState, program: Program) -> str:
    mine = [index for index, item in enumerate(program.instructions) if item.engine is state.engine]
    name = state.engine.name.lower()
    if state.active and 0 < state.started <= len(mine):
        return f"{name} waits for the memory at instruction {mine[state.started - 1]}"
    if state.queued and state.started < len(mine):
        where = f"at instruction {mine[state.started]}"
        givers = " and ".join(giver.name.lower() for giver in state.waits_for)
        if givers:
            return f"{name} waits for a token from {givers} {where}"
        return f"{name} does not begin {where}"
    if state.started < len(mine):
        return f"{name} waits for instruction {mine[state.started]} to be fetched"
    return ""
