"""The recurrences of the load and the store engine: when each burst of a transfer moves.

What an engine does with a transfer depends on the transfer's shape and on the engine's state
relative to the start of the instruction, where everything so long ago that it cannot matter any
more looks the same. So it is computed once and remembered: in a network nearly every transfer meets
its engine in a state in which a transfer of the same shape has met it before.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.timing import LOAD_START_CYCLES, STORE_DATA_CYCLES, STORE_START_CYCLES
from tilewright.sim.transfers import Transfer, TransferKey, make_transfer

#: Shapes of transfers that are remembered per configuration, and states per shape.
_MAX_SHAPES = 1 << 12
_MAX_STATES = 1 << 8


class PortState(NamedTuple):
    """State of a transfer engine after an instruction; all cycles count from its start."""

    #: Last step of each of the latest bursts, oldest first, as many as may be in flight.
    bursts: tuple[int, ...]
    #: Last cycle of the latest burst: its last beat for a load, its last step for a store.
    port: int
    #: Last step of the engine.
    step: int
    #: Last address sent; the last step for a store.
    address: int


_Recurrence: TypeAlias = Callable[[Transfer, PortState, AcceleratorConfig], PortState]


@dataclass(slots=True, kw_only=True, eq=False)
class Shape:
    """A transfer, and the states that are known to follow it."""

    transfer: Transfer
    after: dict[PortState, PortState] = field(default_factory=dict)


class TransferPort:
    """What load or store engines of one configuration do, and what is remembered of it.

    Parameters
    ----------
    config
        The machine.
    idle
        State of an engine that has been idle for long; each of its cycles is the latest, counted
        from the start of an instruction, at which an event does not delay anything.
    recurrence
        Computes the state after a transfer.
    """

    def __init__(self, config: AcceleratorConfig, idle: PortState, recurrence: _Recurrence) -> None:
        self.idle = idle
        self._config = config
        self._recurrence = recurrence
        self._shapes: dict[TransferKey, Shape] = {}

    def shape(self, key: TransferKey) -> Shape:
        """Look up or make the bursts of a transfer."""
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= _MAX_SHAPES:
                self._shapes.clear()
            shape = self._shapes[key] = Shape(transfer=make_transfer(key, self._config))
        return shape

    def run(self, shape: Shape, before: PortState, elapsed: int) -> PortState:
        """Return the state after a transfer that starts `elapsed` cycles after the one before."""
        state = self._from_start(before, elapsed)
        after = shape.after.get(state)
        if after is None:
            if len(shape.after) >= _MAX_STATES:
                shape.after.clear()
            after = self._recurrence(shape.transfer, state, self._config)
            shape.after[state] = after
        return after

    def _from_start(self, before: PortState, elapsed: int) -> PortState:
        """Count a state from the next start, forgetting what has no effect any more."""
        old, old_port, old_step, _ = self.idle
        port, step = before.port - elapsed, before.step - elapsed
        if port <= old_port and step <= old_step and before.bursts[-1] - elapsed <= old[0]:
            return self.idle
        return PortState(
            tuple([max(burst - elapsed, old[0]) for burst in before.bursts]),
            max(port, old_port),
            max(step, old_step),
            0,
        )


@lru_cache(maxsize=64)
def load_port(config: AcceleratorConfig) -> TransferPort:
    """Address stage, port, data buffer and write stage of the load engines of a configuration."""
    step = LOAD_START_CYCLES - 1
    first_beat = LOAD_START_CYCLES + config.dram.read_latency_cycles
    port = first_beat - config.dram.read_gap_cycles - 1
    idle = PortState((step,) * config.load_bursts, port, step, 0)
    return TransferPort(config, idle, _after_load)


@lru_cache(maxsize=64)
def store_port(config: AcceleratorConfig) -> TransferPort:
    """Read stage and port of the store engines of a configuration."""
    step = STORE_START_CYCLES - 1
    port = step - config.dram.write_gap_cycles
    idle = PortState((step - response_cycles(config),) * config.store_bursts, port, step, 0)
    return TransferPort(config, idle, _after_store)


def response_cycles(config: AcceleratorConfig) -> int:
    """Cycles from the last step of a store burst to its response."""
    return STORE_DATA_CYCLES + config.dram.write_latency_cycles


def _after_load(transfer: Transfer, state: PortState, config: AcceleratorConfig) -> PortState:
    bursts, port, step = list(state.bursts), state.port, state.step
    in_flight, slot = len(bursts), 0
    latency, gap = config.dram.read_latency_cycles, config.dram.read_gap_cycles
    address = LOAD_START_CYCLES - 1
    shapes = zip(transfer.paddings, transfer.beats, transfer.data_steps, strict=True)
    for padding, beats, steps in shapes:
        # conditions instead of max: this is the innermost loop of the simulator
        left = bursts[slot]
        address = (left if left > address else address) + 1
        first_beat = port + gap + 1
        if address + latency > first_beat:
            first_beat = address + latency
        port = first_beat + beats - 1
        step += padding
        step = (first_beat if first_beat > step else step) + steps
        bursts[slot] = step
        slot = slot + 1 if slot + 1 < in_flight else 0
    step += transfer.padding_after
    return PortState(tuple(bursts[slot:] + bursts[:slot]), port, step, address)


def _after_store(transfer: Transfer, state: PortState, config: AcceleratorConfig) -> PortState:
    bursts, step = list(state.bursts), state.port
    in_flight, slot = len(bursts), 0
    response, gap = response_cycles(config), config.dram.write_gap_cycles
    for steps in transfer.data_steps:
        answered = bursts[slot] + response
        step += gap
        step = (answered if answered > step else step) + steps
        bursts[slot] = step
        slot = slot + 1 if slot + 1 < in_flight else 0
    return PortState(tuple(bursts[slot:] + bursts[:slot]), step, step, step)
