"""The fastest clock of a configuration on an ECP5, as nextpnr places and routes it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.boards.netlist import rtlil_of
from tilewright.boards.parts import LFE5U_85F, Part
from tilewright.boards.serial_pins import SerialPins
from tilewright.boards.yosys import Tool, cached_run, find_nextpnr, find_yosys
from tilewright.isa.config import AcceleratorConfig

#: The part: LFE5U-85F in its slowest speed grade.
PART: Part = LFE5U_85F
_PART_OPTIONS = ("--85k", "--package", "CABGA381", "--speed", "6")
_TOP = "serial_pins"
#: What nextpnr works towards.
GOAL_MHZ = 90

#: Modules around the units, which their names begin with.
_AROUND = re.compile(r"^(?:accelerator\.)+(?:core\.)?")
#: What Yosys and nextpnr append to the name of a signal to name a cell that drives it.
_PRIMITIVE = re.compile(
    r"(?:_(?:TRELLIS_FF|TRELLIS_DPR16X4|CCU2C|LUT4|PFUMX|L6MUX21|MULT18X18D|DP16KD)_|\$).*"
)
#: Output of a cell by which a carry chain goes on.
_CARRY_OUT = "FCO"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """A step of a path: through a cell, or along a net."""

    #: ``clk-to-q``, ``source``, ``logic``, ``routing`` or ``setup``.
    kind: str
    #: Cell and port where it ends, by path.
    cell: str
    port: str
    delay_ns: float

    @property
    def signal(self) -> str:
        """The signal that the cell drives, named from the unit of the accelerator downwards."""
        return _AROUND.sub("", _PRIMITIVE.sub("", self.cell))

    @property
    def unit(self) -> str:
        """The unit that the signal belongs to; empty for one of no unit."""
        return self.signal.rpartition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingReport:
    """The clock of a placed and routed configuration."""

    config: AcceleratorConfig
    #: Versions of Yosys and nextpnr.
    tools: tuple[str, str]
    seed: int
    mhz: float
    #: The longest path between two registers.
    path: tuple[PathStep, ...]
    #: Of primitives of the part, how many are used and how many there are.
    use: Mapping[str, tuple[int, int]]

    @property
    def begin(self) -> str:
        """The register where the longest path begins."""
        return self.path[0].signal

    @property
    def end(self) -> str:
        """The register where it ends."""
        return self.path[-1].signal

    @property
    def units(self) -> tuple[str, ...]:
        """The units that it goes through, in order."""
        return tuple(dict.fromkeys(step.unit for step in self.path if step.unit))

    @property
    def delay_ns(self) -> float:
        """How long it takes."""
        return sum(step.delay_ns for step in self.path)

    @property
    def levels(self) -> int:
        """Cells of logic on it; a carry chain counts as one."""
        return sum(step.kind == "logic" and step.port != _CARRY_OUT for step in self.path)


def measure_timing(
    config: AcceleratorConfig,
    *,
    seed: int = 1,
    yosys: Tool | None = None,
    nextpnr: Tool | None = None,
) -> TimingReport:
    """Place and route a configuration, or find what an equal run returned.

    Takes minutes the first time.

    Raises
    ------
    SynthesisError
        If a tool is missing or fails, for example because the part is too small.
    """
    yosys, nextpnr = yosys or find_yosys(), nextpnr or find_nextpnr()
    script = f"read_rtlil top.il\nsynth_ecp5 -top {_TOP} -json netlist.json\n"
    inputs = {"top.il": rtlil_of(SerialPins(config), _TOP), "map.ys": script}
    netlist, _ = cached_run(yosys, ["-q", "-s", "map.ys"], inputs, "netlist.json")
    words = [
        *_PART_OPTIONS,
        *("--json", "netlist.json", "--report", "report.json", "--seed", str(seed)),
        *("--freq", str(GOAL_MHZ), "--lpf-allow-unconstrained", "--timing-allow-fail", "--quiet"),
    ]
    report, _ = cached_run(nextpnr, words, {"netlist.json": netlist}, "report.json")
    return _read_report(report, config, (yosys.version, nextpnr.version), seed)


def routed_mhz(report: str) -> float:
    """Return the clock that nextpnr reports; of several, that of the tightest constraint."""
    clocks: dict[str, Any] = json.loads(report)["fmax"]
    clock = max(clocks.values(), key=lambda clock: clock["constraint"])
    mhz: float = clock["achieved"]
    return mhz


def _read_report(
    text: str, config: AcceleratorConfig, tools: tuple[str, str], seed: int
) -> TimingReport:
    report: dict[str, Any] = json.loads(text)
    inside = [
        path["path"]
        for path in report["critical_paths"]
        if path["from"] == path["to"] and path["from"].startswith("posedge")
    ]
    longest = max(inside, key=lambda path: sum(step["delay"] for step in path))
    return TimingReport(
        config=config,
        tools=tools,
        seed=seed,
        mhz=routed_mhz(text),
        path=tuple(
            PathStep(
                kind=step["type"],
                cell=step["to"]["cell"],
                port=step["to"]["port"],
                delay_ns=step["delay"],
            )
            for step in longest
        ),
        use={
            name: (item["used"], item["available"]) for name, item in report["utilization"].items()
        },
    )
