"""The machine that runs programs on the Verilated hardware."""

from collections.abc import Sequence
from pathlib import Path

from tilewright.isa.program import Program
from tilewright.runtime.board_machine import MachineRun, Patch, Region, check_places
from tilewright.sim.simulator import Progress


class RtlMachine:
    """The hardware, Verilated and beside its memory model: equals the simulator in every cycle.

    Parameters
    ----------
    vcd
        Where to write the waveforms of a run; further runs add a number to the name.
    """

    def __init__(self, vcd: Path | None = None) -> None:
        self._vcd = vcd
        self._runs = 0

    @property
    def description(self) -> str:
        """What it is, in one line."""
        return "the Verilated hardware"

    @property
    def config(self) -> None:
        """It runs programs of every configuration."""

    def check_registers(self) -> None:
        """Its bench has none."""

    def run(
        self,
        program: Program,
        patches: Sequence[Patch],
        regions: Sequence[Region],
        progress: Progress | None = None,
    ) -> MachineRun:
        """Run a legal program once; see `Machine.run`. The first one on a machine builds it.

        Raises
        ------
        ToolError
            If Verilator or a C++ compiler is missing; says how to install it.
        """
        from tilewright.sim.rtl import run_rtl  # needs amaranth, which other devices do without

        check_places(program, patches, regions)
        dram = program.initial_dram()
        for patch in patches:
            dram[patch.address : patch.address + patch.data.size] = patch.data
        result = run_rtl(program, dram, trace=self._next_vcd())
        if progress is not None:
            progress(len(program.instructions), len(program.instructions))
        return MachineRun(
            regions=tuple(
                result.dram[region.address : region.address + region.size_bytes].copy()
                for region in regions
            ),
            cycles=result.timeline.cycles,
            timeline=result.timeline,
        )

    def _next_vcd(self) -> Path | None:
        self._runs += 1
        if self._vcd is None or self._runs == 1:
            return self._vcd
        return self._vcd.with_name(f"{self._vcd.stem}.{self._runs}{self._vcd.suffix}")

    def close(self) -> None:
        """Nothing is held."""
