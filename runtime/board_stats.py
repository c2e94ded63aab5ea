"""Statistics of a run on a board, from what its accelerator has counted."""

from collections import Counter
from collections.abc import Sequence

from typing_extensions import assert_never

from tilewright.compiler.compiled import AcceleratorStep, CompiledGraph, HostStep, Target
from tilewright.isa.encoding import instruction_bytes
from tilewright.isa.instructions import Load, Store
from tilewright.isa.memories import Engine, Memory, memory_shape
from tilewright.isa.program import Program
from tilewright.runtime.board_machine import Counters, EngineCounters
from tilewright.runtime.stats import LayerStats, RunStats
from tilewright.sim.timeline import EngineAccount


def counter_stats(compiled: CompiledGraph, counters: Sequence[Counters]) -> RunStats:
    """Make statistics of counters, one item per accelerator step.

    A board does not say which layer a cycle belongs to: each program is one layer. It does not say
    for whose token an engine waited either: all of them are listed under the engine that most of
    its instructions wait for.
    """
    remaining = iter(counters)
    layers: list[LayerStats] = []
    programs: list[Program] = []
    for step in compiled.steps:
        match step:
            case HostStep():
                pass
            case AcceleratorStep(program=program):
                layers.append(_layer(step, next(remaining), f"program {len(programs)}"))
                programs.append(program)
            case _:
                assert_never(step)
    return RunStats(
        cycles=sum(item.cycles for item in counters),
        clock_mhz=compiled.config.clock_mhz,
        macs_per_cycle=compiled.config.macs_per_cycle,
        dram_read_bytes=sum(_read_bytes(program) for program in programs),
        dram_write_bytes=sum(_written_bytes(program) for program in programs),
        engines=tuple(_sum([layer.waits[engine] for layer in layers]) for engine in Engine),
        layers=tuple(layers),
    )


def _layer(step: AcceleratorStep, counters: Counters, name: str) -> LayerStats:
    program = step.program
    return LayerStats(
        name=name,
        op="Program",
        device=Target.ACCELERATOR,
        cycles=counters.cycles,
        ideal_cycles=sum(layer.ideal_cycles for layer in step.layers),
        macs=sum(layer.macs for layer in step.layers),
        dram_bytes=_read_bytes(program) - _code_bytes(program) + _written_bytes(program),
        waits=tuple(
            _account(program, engine, counters.engines[engine], counters.cycles)
            for engine in Engine
        ),
    )


def _account(
    program: Program, engine: Engine, counted: EngineCounters, cycles: int
) -> EngineAccount:
    givers = Counter(
        giver
        for item in program.instructions
        if item.engine is engine
        for giver in Engine
        if item.wait & 1 << giver
    )
    usual = givers.most_common(1)[0][0] if givers else engine
    named = counted.busy + counted.memory_wait + counted.fetch_wait + counted.drain
    return EngineAccount(
        busy=counted.busy,
        memory_wait=counted.memory_wait,
        token_wait=tuple(counted.token_wait if giver is usual else 0 for giver in Engine),
        fetch_wait=counted.fetch_wait,
        drain=counted.drain,
        done=cycles - named - counted.token_wait,
    )


def _sum(accounts: Sequence[EngineAccount]) -> EngineAccount:
    return EngineAccount(
        busy=sum(account.busy for account in accounts),
        memory_wait=sum(account.memory_wait for account in accounts),
        token_wait=tuple(
            sum(account.token_wait[giver] for account in accounts) for giver in Engine
        ),
        fetch_wait=sum(account.fetch_wait for account in accounts),
        drain=sum(account.drain for account in accounts),
        done=sum(account.done for account in accounts),
    )


def _code_bytes(program: Program) -> int:
    return len(program.instructions) * instruction_bytes(program.config)


def _read_bytes(program: Program) -> int:
    """Bytes that a program reads, its own included."""
    loaded = sum(
        item.planes * item.rows * item.entries * _entry_bytes(item.memory, program)
        for item in program.instructions
        if isinstance(item, Load)
    )
    return loaded + _code_bytes(program)


def _written_bytes(program: Program) -> int:
    return sum(
        item.planes * item.rows * item.entries * _entry_bytes(Memory.OUT, program)
        for item in program.instructions
        if isinstance(item, Store)
    )


def _entry_bytes(memory: Memory, program: Program) -> int:
    return memory_shape(memory, program.config).entry_bytes
