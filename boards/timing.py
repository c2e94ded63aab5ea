"""The fastest clock of a configuration on an ECP5, as nextpnr places and routes it."""

import json
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """A step of a path: through a cell, or along a net."""

    #: ``clk-to-q``, ``source``, ``logic``, ``routing`` or ``setup``.
    kind: str
    #: Where it ends: cell and port, by path.
    to: str
    delay_ns: float


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
        """Where the longest path begins."""
        return self.path[0].to

    @property
    def end(self) -> str:
        """Where it ends."""
        return self.path[-1].to

    @property
    def levels(self) -> int:
        """Cells of logic on it."""
        return sum(step.kind == "logic" for step in self.path)


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


def _read_report(
    text: str, config: AcceleratorConfig, tools: tuple[str, str], seed: int
) -> TimingReport:
    report: dict[str, Any] = json.loads(text)
    (clock,) = report["fmax"].values()
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
        mhz=clock["achieved"],
        path=tuple(
            PathStep(
                kind=step["type"],
                to=f"{step['to']['cell']}.{step['to']['port']}",
                delay_ns=step["delay"],
            )
            for step in longest
        ),
        use={
            name: (item["used"], item["available"]) for name, item in report["utilization"].items()
        },
    )
