"""Runs programs on the hardware itself: the Verilated core beside its memory model."""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import DeadlockError, InputError, ProgramError
from tilewright.isa.memories import Engine, Memory, memory_shape
from tilewright.isa.program import Program, check_config
from tilewright.sim.rtl_build import build_bench, distinct_blocks
from tilewright.sim.rtl_timeline import Events, measured_timeline
from tilewright.sim.timeline import Timeline

Bytes: TypeAlias = npt.NDArray[np.uint8]
Cycles: TypeAlias = npt.NDArray[np.int64]

#: Cycles after which a run is given up.
CYCLE_LIMIT = 1 << 40

#: Kinds of events: dispatch, start and finish.
_EVENT_KINDS = 3
_DONE, _STANDS_STILL, _BAD_ADDRESS, _TIME_OUT = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class RtlCounts:
    """Counters of one engine; cycles as `tilewright.sim.timeline.EngineAccount` names them."""

    started: int
    finished: int
    busy: int
    memory_wait: int
    token_wait: int
    fetch_wait: int
    drain: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RtlResult:
    """What a run on the hardware left behind."""

    #: Made of the events of the run; see `tilewright.sim.rtl_timeline`.
    timeline: Timeline
    #: Contents of DRAM at the end.
    dram: Bytes
    #: Bytes of each scratchpad, (entries, bytes of an entry).
    scratchpads: Mapping[Memory, Bytes]
    #: What each engine did, as its counters say.
    counts: Mapping[Engine, RtlCounts]


def run_rtl(
    program: Program,
    dram: Bytes,
    *,
    config: AcceleratorConfig | None = None,
    trace: Path | None = None,
    cycle_limit: int = CYCLE_LIMIT,
) -> RtlResult:
    """Run a program with data on the Verilated hardware; builds it on first use.

    Parameters
    ----------
    program
        A legal program.
    dram
        As for `tilewright.sim.simulator.simulate`.
    config
        The machine to run on, where it may be another one than the program was made for.
    trace
        Where to write a VCD file of the run.
    cycle_limit
        Give up after so many cycles.

    Raises
    ------
    ConfigError
        If the program was made for another configuration than `config`.
    DeadlockError
        If no engine makes progress any more.
    InputError
        If `dram` does not fit the program.
    ProgramError
        If the program writes beyond DRAM or takes longer than `cycle_limit`.
    ToolError
        If Verilator or a C++ compiler is missing.
    """
    if config is not None:
        check_config(program, config)
    if dram.dtype != np.uint8 or dram.shape != (program.dram_bytes,):
        raise InputError(
            f"dram must be {program.dram_bytes} values of uint8,"
            f" not {dram.dtype} of shape {dram.shape}"
        )
    library = _load(build_bench(program.config, trace=trace is not None))
    machine = library.tilewright_make(str(trace).encode() if trace else None)
    try:
        after = dram.copy()
        cycles, events = _run(library, machine, program, after, cycle_limit)
        counts = _count(library, machine)
        scratchpads = _scratchpads(library, machine, program.config)
    finally:
        library.tilewright_free(machine)
    positions = [
        [number for number, item in enumerate(program.instructions) if item.engine is engine]
        for engine in Engine
    ]
    dispatch, start, finish = (_by_instruction(positions, kind, cycles) for kind in events)
    measured = Events(dispatch=dispatch, start=start, finish=finish, cycles=cycles)
    return RtlResult(
        timeline=measured_timeline(program, measured),
        dram=after,
        scratchpads=scratchpads,
        counts=counts,
    )


def _load(path: Path) -> Any:
    library = ctypes.CDLL(str(path))
    pointer, word, double = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    library.tilewright_make.argtypes = [ctypes.c_char_p]
    library.tilewright_make.restype = pointer
    library.tilewright_free.argtypes = [pointer]
    library.tilewright_free.restype = None
    library.tilewright_run.argtypes = [
        *(pointer, pointer, double),
        *(word, word, double),
        *(pointer, ctypes.c_int64, pointer),
    ]
    library.tilewright_run.restype = ctypes.c_int32
    library.tilewright_counts.argtypes = [pointer, pointer]
    library.tilewright_counts.restype = None
    library.tilewright_block.argtypes = [pointer, ctypes.c_int32, word, word, pointer]
    library.tilewright_block.restype = None
    return library


def _run(
    library: Any, machine: int, program: Program, dram: Bytes, cycle_limit: int
) -> tuple[int, Cycles]:
    """Run to the end; returns the cycles and the events, (kinds, engines, instructions)."""
    count = len(program.instructions)
    events = np.full((_EVENT_KINDS, len(Engine), count), -1, dtype=np.int64)
    cycles = ctypes.c_uint64()
    status = library.tilewright_run(
        machine,
        dram.ctypes.data,
        dram.size,
        program.code_address,
        count,
        cycle_limit,
        events.ctypes.data,
        count,
        ctypes.byref(cycles),
    )
    if status == _STANDS_STILL:
        raise DeadlockError(f"the program stands still in cycle {cycles.value}")
    if status == _BAD_ADDRESS:
        raise ProgramError("the program writes beyond its dram_bytes")
    if status == _TIME_OUT:
        raise ProgramError(f"the program takes more than {cycle_limit} cycles")
    return cycles.value, events


def _by_instruction(positions: Sequence[Sequence[int]], events: Cycles, cycles: int) -> Cycles:
    """Give the n-th event of an engine to its n-th instruction, and `cycles` to `Finish`."""
    result = np.full(events.shape[1], cycles, dtype=np.int64)
    for mine, of_engine in zip(positions, events, strict=True):
        result[mine] = of_engine[: len(mine)]
    return result


def _count(library: Any, machine: int) -> dict[Engine, RtlCounts]:
    """Read the counters of all engines."""
    names = [field.name for field in fields(RtlCounts)]
    counts = np.zeros((len(Engine), len(names)), dtype=np.uint32)
    library.tilewright_counts(machine, counts.ctypes.data)
    return {
        engine: RtlCounts(**dict(zip(names, counts[engine].tolist(), strict=True)))
        for engine in Engine
    }


def _scratchpads(library: Any, machine: int, config: AcceleratorConfig) -> dict[Memory, Bytes]:
    """Read all scratchpads."""
    result: dict[Memory, Bytes] = {}
    for number, (memory, _) in enumerate(distinct_blocks(config)):
        shape = memory_shape(memory, config)
        size = shape.entries * shape.entry_bytes // shape.banks
        width = config.port_bytes if memory is Memory.LUT else shape.entry_bytes
        words = np.zeros((size // width, width), dtype=np.uint8)
        library.tilewright_block(machine, number, *words.shape, words.ctypes.data)
        words = words.reshape(-1, shape.entry_bytes)
        result[memory] = np.concatenate([result[memory], words]) if memory in result else words
    return result
