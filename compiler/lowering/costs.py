"""Estimated cycles of the parts of a schedule, by the same rules as the timing of the machine."""

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import instruction_bytes
from tilewright.isa.timing import ISSUE_START_CYCLES, LOAD_START_CYCLES, STORE_START_CYCLES

#: Load, gemm, vector, store.
_INSTRUCTIONS_PER_TILE = 4


def load_cycles(
    rows: int, row_bytes: int, padding_entries: int, config: AcceleratorConfig
) -> float:
    """Cycles that a load of `rows` rows occupies the port or the write stage, latency hidden."""
    if not rows or not row_bytes:
        return padding_entries
    bursts = rows * -(-row_bytes // config.burst_bytes)
    beats = rows * -(-row_bytes // config.port_bytes)
    in_flight = config.load_bursts * config.burst_beats
    latency_bound = 1.0
    if config.dram.read_latency_cycles > in_flight:
        latency_bound = config.dram.read_latency_cycles / in_flight
    return (
        beats * latency_bound
        + bursts * config.dram.read_gap_cycles
        + padding_entries
        + LOAD_START_CYCLES
    )


def store_cycles(rows: int, row_bytes: int, config: AcceleratorConfig) -> float:
    """Cycles that a store of `rows` rows occupies the port, responses hidden."""
    bursts = rows * -(-row_bytes // config.burst_bytes)
    beats = rows * -(-row_bytes // config.port_bytes)
    return beats + bursts * config.dram.write_gap_cycles + STORE_START_CYCLES


def issue_cycles(steps: int, instructions: int) -> float:
    """Cycles that `instructions` gemm or vector instructions with `steps` steps in all occupy."""
    return steps + instructions * ISSUE_START_CYCLES


def overlapped(
    engines: tuple[float, ...],
    tiles: int,
    config: AcceleratorConfig,
    *,
    single_buffered: bool,
) -> float:
    """Total cycles of engines that work on `tiles` tiles one behind the other.

    With double buffering the slowest engine sets the pace and the others show only in the first
    and the last tile; without, they take turns. A tile also costs the fetch of its instructions.
    """
    latency = config.dram.read_latency_cycles + config.dram.write_latency_cycles
    if single_buffered:
        return sum(engines) + latency * tiles
    slowest = max(engines)
    hand_over = _INSTRUCTIONS_PER_TILE * instruction_bytes(config) / config.port_bytes
    return slowest + (sum(engines) - slowest) / tiles + latency + hand_over * tiles
