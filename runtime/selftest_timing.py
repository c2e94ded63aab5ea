"""Latency and bandwidth of a device's memory, and the timing model that foretells them."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from tilewright.isa.config import MODEL_FIELDS, AcceleratorConfig
from tilewright.isa.errors import ConfigError
from tilewright.isa.memories import Memory
from tilewright.isa.program import Program
from tilewright.runtime.board_machine import Machine
from tilewright.runtime.selftest_programs import (
    STREAMED,
    empty_program,
    load_chain,
    store_chain,
    stream_bytes,
    stream_program,
)
from tilewright.runtime.selftest_report import Change, Measurement
from tilewright.sim.clockwork import simulate_timing

#: Transfers of a chain and of a stream; a number is that of the difference of two lengths.
_CHAIN = (4, 20)
_STREAM = (2, 10)
#: Runs of each program; their median counts, as a memory refreshes itself now and then.
_REPEATS = 3
#: Largest values of the fields of `DramModel` that are fitted.
_LATENCY_LIMIT, _GAP_LIMIT = 4095, 255

_Probe = Callable[[AcceleratorConfig, int], Program]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Difference:
    """Cycles of the last of two lengths of a program that the first does not have."""

    probe: _Probe
    lengths: tuple[int, int]

    @property
    def steps(self) -> int:
        """Transfers that make the difference."""
        return self.lengths[1] - self.lengths[0]

    def measure(self, machine: Machine, config: AcceleratorConfig) -> float:
        """On a device."""
        short, long = (_median_cycles(machine, self.probe(config, n)) for n in self.lengths)
        return long - short

    def foretell(self, config: AcceleratorConfig) -> float:
        """By the model."""
        short, long = (_model_cycles(self.probe(config, n)) for n in self.lengths)
        return long - short


_LOAD_CHAIN = _Difference(probe=load_chain, lengths=_CHAIN)
_STORE_CHAIN = _Difference(probe=store_chain, lengths=_CHAIN)
_LOADS = _Difference(probe=lambda c, n: stream_program(c, loads=n, stores=0), lengths=_STREAM)
_STORES = _Difference(probe=lambda c, n: stream_program(c, loads=0, stores=n), lengths=_STREAM)
_BOTH = _Difference(probe=lambda c, n: stream_program(c, loads=n, stores=n), lengths=_STREAM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What was measured, and what fits it."""

    measurements: tuple[Measurement, ...]
    changes: tuple[Change, ...]


def measure_timing(machine: Machine, config: AcceleratorConfig) -> Timing:
    """Time a device whose programs are made for a configuration, and fit its memory model."""
    differences = (_LOAD_CHAIN, _STORE_CHAIN, _LOADS, _STORES, _BOTH)
    loads, stores, load_stream, store_stream, both = (
        item.measure(machine, config) for item in differences
    )
    fitted = _fit(config, "read_latency_cycles", _LOAD_CHAIN, loads, _LATENCY_LIMIT)
    fitted = _fit(fitted, "write_latency_cycles", _STORE_CHAIN, stores, _LATENCY_LIMIT)
    fitted = _fit(fitted, "read_gap_cycles", _LOADS, load_stream, _GAP_LIMIT)
    fitted = _fit(fitted, "write_gap_cycles", _STORES, store_stream, _GAP_LIMIT)
    if both > _BOTH.foretell(fitted):
        # Side by side the ports are slower than alone: the model gives each its share for good.
        fitted = _fit(fitted, "read_gap_cycles", _BOTH, both, _GAP_LIMIT)
    read, written = (
        _STREAM[1] * stream_bytes(memory, config) * (1 - _STREAM[0] / _STREAM[1])
        for memory in (STREAMED, Memory.OUT)
    )
    megahertz = config.clock_mhz
    return Timing(
        measurements=(
            *_start_costs(machine, config),
            _per_step("load, each after the one before", _LOAD_CHAIN, loads, config),
            _per_step("store, each after the one before", _STORE_CHAIN, stores, config),
            _rate("bandwidth of loads", _LOADS, load_stream, read * megahertz, config),
            _rate("bandwidth of stores", _STORES, store_stream, written * megahertz, config),
            _rate("bandwidth of both", _BOTH, both, (read + written) * megahertz, config),
        ),
        changes=_changes(config, fitted),
    )


def _start_costs(machine: Machine, config: AcceleratorConfig) -> tuple[Measurement, ...]:
    program = empty_program(config)
    cycles = _median_cycles(machine, program)
    seconds = []
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        machine.run(program, [], [])
        seconds.append(time.perf_counter() - begin)
    host = statistics.median(seconds)
    return (
        Measurement(
            name="empty program",
            unit="cycles",
            measured=cycles,
            model=_model_cycles(program),
        ),
        Measurement(name="empty program, for the host", unit="ms", measured=1e3 * host, model=None),
    )


def _per_step(
    name: str, difference: _Difference, measured: float, config: AcceleratorConfig
) -> Measurement:
    model = difference.foretell(config)
    steps = difference.steps
    return Measurement(name=name, unit="cycles", measured=measured / steps, model=model / steps)


def _rate(
    name: str, difference: _Difference, measured: float, amount: float, config: AcceleratorConfig
) -> Measurement:
    """Make a rate of cycles; `amount` is bytes times MHz."""
    return Measurement(
        name=name,
        unit="MB/s",
        measured=amount / max(measured, 1),
        model=amount / difference.foretell(config),
    )


def _fit(
    config: AcceleratorConfig, name: str, difference: _Difference, measured: float, limit: int
) -> AcceleratorConfig:
    """Return the configuration with the value of a memory field that foretells best.

    More of any field never takes less time. Where several values foretell the same, as what they
    stand for is hidden behind something slower, the present one stays, or else the nearest to it.
    """
    field = f"dram.{name}"

    def error(value: int) -> float:
        return difference.foretell(config.replace(**{field: value})) - measured

    now = getattr(config.dram, name)
    if error(now) == 0:
        return config
    low, high = _least(config, field), limit
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if error(middle) >= 0 else (middle + 1, high)
    below = max(low - 1, _least(config, field))
    best = min((low, below), key=lambda value: abs(error(value)))
    return config.replace(**{field: best})


def _least(config: AcceleratorConfig, field: str) -> int:
    """Smallest value that a field may have."""
    for value in (0, 1, 2):
        try:
            config.replace(**{field: value})
        except ConfigError:
            continue
        return value
    raise AssertionError(f"no small value of {field} is legal")


def _changes(config: AcceleratorConfig, fitted: AcceleratorConfig) -> tuple[Change, ...]:
    names = ("read_latency_cycles", "write_latency_cycles", "read_gap_cycles", "write_gap_cycles")
    return tuple(
        Change(
            field=f"dram.{name}",
            now=getattr(config.dram, name),
            fitting=getattr(fitted.dram, name),
            needs_bitstream=f"dram.{name}" not in MODEL_FIELDS,
        )
        for name in names
        if getattr(config.dram, name) != getattr(fitted.dram, name)
    )


def _median_cycles(machine: Machine, program: Program) -> float:
    return statistics.median(machine.run(program, [], []).cycles for _ in range(_REPEATS))


def _model_cycles(program: Program) -> int:
    return simulate_timing(program).cycles
