"""The recurrences of the load and the store engine: when each burst of a transfer moves.

Both are functions of the bursts and of the engine's state relative to the start of the
instruction, where everything so long ago that it cannot matter any more looks the same. So each
function value is computed once and remembered with the transfer: in a network nearly all transfers
meet an engine in a state that another transfer of the same shape has met before.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.timing import LOAD_START_CYCLES, STORE_DATA_CYCLES, STORE_START_CYCLES
from tilewright.sim.transfers import Transfer, TransferKey, make_transfer

#: Shapes of transfers, and states per shape, that are remembered.
_REMEMBERED = 1 << 14


class PortState(NamedTuple):
    """State of a transfer engine after an instruction; all cycles count from its start."""

    #: Last step of each of the latest bursts, oldest first, as many as may be in flight.
    bursts: tuple[int, ...]
    #: Last beat of the latest burst on the port.
    beat: int
    #: Last step of the engine.
    step: int
    #: Last address sent; of no meaning for a store.
    address: int


@dataclass(slots=True, kw_only=True, eq=False)
class _Remembered:
    transfer: Transfer
    after: dict[PortState, PortState] = field(default_factory=dict)


class LoadPort:
    """Address stage, port, data buffer and write stage of the load engine."""

    def __init__(self, config: AcceleratorConfig) -> None:
        self._config = config
        self._latency = config.dram.read_latency_cycles
        self._gap = config.dram.burst_gap_cycles
        self._known: dict[TransferKey, _Remembered] = {}
        # cycles, counted from the start, up to which an earlier event changes nothing
        self._old_step = LOAD_START_CYCLES - 1
        self._old_beat = LOAD_START_CYCLES + self._latency - self._gap - 1
        #: State of an engine that has been idle for long.
        self.idle = PortState(
            (self._old_step,) * config.load_bursts, self._old_beat, self._old_step, 0
        )

    def transfer(self, key: TransferKey) -> _Remembered:
        """Look up or make the bursts of a load."""
        return _look_up(self._known, key, self._config)

    def run(self, shape: _Remembered, before: PortState, elapsed: int) -> PortState:
        """Return the state after a load that starts `elapsed` cycles after the one before it."""
        step, beat = before.step - elapsed, before.beat - elapsed
        old_step, old_beat = self._old_step, self._old_beat
        if step <= old_step and beat <= old_beat:
            state = self.idle
        else:
            state = PortState(
                tuple([max(cycle - elapsed, old_step) for cycle in before.bursts]),
                max(beat, old_beat),
                max(step, old_step),
                0,
            )
        after = shape.after.get(state)
        if after is None:
            after = _remember(shape, state, self._compute(shape.transfer, state))
        return after

    def _compute(self, transfer: Transfer, state: PortState) -> PortState:
        bursts, (beat, step) = list(state.bursts), state[1:3]
        limit, slot = len(bursts), 0
        latency, gap = self._latency, self._gap
        address = LOAD_START_CYCLES - 1
        for padding, beats, steps in transfer.bursts:
            address = max(address, bursts[slot]) + 1
            beat = max(address + latency, beat + gap + 1) + beats - 1
            first_beat = beat - beats + 1
            step = max(step + padding, first_beat) + steps
            bursts[slot] = step
            slot = slot + 1 if slot + 1 < limit else 0
        step += transfer.padding_after
        return PortState(tuple(bursts[slot:] + bursts[:slot]), beat, step, address)


class StorePort:
    """Read stage and port of the store engine."""

    def __init__(self, config: AcceleratorConfig) -> None:
        self._config = config
        #: Cycles from the last step of a burst to its response.
        self._latency = STORE_DATA_CYCLES + config.dram.write_latency_cycles
        self._gap = config.dram.burst_gap_cycles
        self._known: dict[TransferKey, _Remembered] = {}
        self._old_burst = STORE_START_CYCLES - 1 - self._latency
        self._old_step = STORE_START_CYCLES - 1 - self._gap
        #: State of an engine that has been idle for long.
        self.idle = PortState((self._old_burst,) * config.store_bursts, 0, self._old_step, 0)

    def transfer(self, key: TransferKey) -> _Remembered:
        """Look up or make the bursts of a store."""
        return _look_up(self._known, key, self._config)

    def run(self, shape: _Remembered, before: PortState, elapsed: int) -> PortState:
        """Return the state after a store that starts `elapsed` cycles after the one before it."""
        step = before.step - elapsed
        old_burst = self._old_burst
        if step <= self._old_step and step <= old_burst:
            state = self.idle
        else:
            bursts = tuple([max(cycle - elapsed, old_burst) for cycle in before.bursts])
            state = PortState(bursts, 0, max(step, self._old_step), 0)
        after = shape.after.get(state)
        if after is None:
            after = _remember(shape, state, self._compute(shape.transfer, state))
        return after

    def _compute(self, transfer: Transfer, state: PortState) -> PortState:
        bursts, step = list(state.bursts), state.step
        limit, slot = len(bursts), 0
        latency, gap = self._latency, self._gap
        for _, _, steps in transfer.bursts:
            step = max(step + gap, bursts[slot] + latency) + steps
            bursts[slot] = step
            slot = slot + 1 if slot + 1 < limit else 0
        return PortState(tuple(bursts[slot:] + bursts[:slot]), 0, step, 0)


def _look_up(
    known: dict[TransferKey, _Remembered], key: TransferKey, config: AcceleratorConfig
) -> _Remembered:
    shape = known.get(key)
    if shape is None:
        if len(known) >= _REMEMBERED:
            known.clear()
        shape = known[key] = _Remembered(transfer=make_transfer(key, config))
    return shape


def _remember(shape: _Remembered, state: PortState, after: PortState) -> PortState:
    if len(shape.after) >= _REMEMBERED:
        shape.after.clear()
    shape.after[state] = after
    return after


@lru_cache(maxsize=64)
def load_port(config: AcceleratorConfig) -> LoadPort:
    """The load port of a configuration, shared by all runs so that they share what it remembers."""
    return LoadPort(config)


@lru_cache(maxsize=64)
def store_port(config: AcceleratorConfig) -> StorePort:
    """The store port of a configuration, shared by all runs."""
    return StorePort(config)
