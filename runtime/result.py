"""What a run yields: outputs, cost, and the files that show it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tilewright.compiler.compiled import CompiledGraph
from tilewright.compiler.graph import Array
from tilewright.isa.errors import InputError
from tilewright.runtime.board_machine import Counters
from tilewright.runtime.board_stats import counter_stats
from tilewright.runtime.devices import AnyDevice, Device, counts_cycles
from tilewright.runtime.files import PathLike, write_atomically
from tilewright.runtime.report import render_report
from tilewright.runtime.stats import RunStats, run_stats
from tilewright.runtime.trace import render_trace
from tilewright.sim.timeline import Timeline


# Without slots: `cached_property` keeps its value in the instance's dictionary.
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RunResult:
    """Outputs and cost of one run of a compiled model on one device.

    Attributes
    ----------
    outputs
        Arrays under the model's own output names, in its layout and element type.
    timelines
        Timing of each program that ran; empty on a device that does not tell it.
    counters
        What the accelerator of a board has counted, per program; empty on other devices.
    wall_seconds
        Time that the run took on this computer.
    """

    compiled: CompiledGraph
    device: AnyDevice
    outputs: Mapping[str, Array]
    timelines: tuple[Timeline, ...]
    wall_seconds: float
    counters: tuple[Counters, ...] = ()

    @cached_property
    def stats(self) -> RunStats:
        """Cycles, traffic and waits.

        Raises
        ------
        InputError
            If the device counts no cycles.
        """
        self._require_cycles()
        if self.counters:
            return counter_stats(self.compiled, self.counters)
        return run_stats(self.compiled, self.timelines)

    def save_report(self, path: PathLike) -> None:
        """Write one HTML page with tables, time line and placement; it needs no other file."""
        self._require_timelines()
        write_atomically(path, render_report(self.compiled, self.timelines, self.stats).encode())

    def save_trace(self, path: PathLike) -> None:
        """Write a trace that opens in Perfetto."""
        self._require_timelines()
        trace = render_trace(self.compiled, self.timelines)
        write_atomically(path, trace.encode())

    def __repr__(self) -> str:
        graph, config = self.compiled.graph, self.compiled.config
        cycles = f"{self.stats.cycles:,} cycles, " if self.timelines or self.counters else ""
        outputs = ", ".join(
            f"{name} {values.dtype}{list(values.shape)}" for name, values in self.outputs.items()
        )
        return (
            f"<RunResult {graph.name} for {config.name} on {self.device.value}: {cycles}{outputs}>"
        )

    def _require_cycles(self) -> None:
        if not counts_cycles(self.device):
            raise InputError(
                f"device {self.device.value!r} counts no cycles",
                hint=f"run the model on device {Device.SIM.value!r}",
            )

    def _require_timelines(self) -> None:
        self._require_cycles()
        if self.counters:
            raise InputError(
                f"device {self.device.value!r} does not tell when each instruction ran",
                hint=f"run the model on device {Device.SIM.value!r}",
            )
