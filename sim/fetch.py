"""The clock of instruction fetch: when each instruction of a program arrives."""

from collections.abc import Sequence

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import instruction_bytes
from tilewright.isa.timing import fetch_burst_instructions


class FetchClock:
    """The fetch port. Instructions are asked for in program order.

    Parameters
    ----------
    config
        The machine.
    count
        Instructions of the program.
    """

    def __init__(self, config: AcceleratorConfig, count: int) -> None:
        self._burst = fetch_burst_instructions(config)
        self._entries = config.fetch_entries
        self._latency = config.dram.read_latency_cycles
        self._gap = config.dram.read_gap_cycles
        #: Beats from the first of a burst to the last of each of its instructions.
        self._offsets = [
            -(-(number + 1) * instruction_bytes(config) // config.port_bytes) - 1
            for number in range(self._burst)
        ]
        self._count = count
        self._address = -1
        self._first_beat = 0
        self._last_beat = -1 - self._gap

    def arrival(self, position: int, dispatched: Sequence[int]) -> int:
        """Cycle of the last beat of an instruction.

        `dispatched` holds the dispatch cycles of all instructions before it.
        """
        within = position % self._burst
        if within == 0:
            self._send(position, dispatched)
        return self._first_beat + self._offsets[within]

    def _send(self, position: int, dispatched: Sequence[int]) -> None:
        self._address += 1
        blocker = position + self._burst - self._entries - 1
        if blocker >= 0:
            self._address = max(self._address, dispatched[blocker] + 1)
        first = self._last_beat + self._gap + 1
        self._first_beat = max(self._address + self._latency, first)
        count = min(self._burst, self._count - position)
        self._last_beat = self._first_beat + self._offsets[count - 1]
