"""The Vivado script, run by a Tcl interpreter whose vendor commands check what they are given."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tilewright.boards.board import MEMORY_PORTS, Board
from tilewright.boards.catalogue import BOARDS, PYNQ_Z2
from tilewright.boards.vivado import constraints, script
from tilewright.boards.zynq import BLOCKS

tkinter = pytest.importorskip("tkinter", reason="needs Python's Tcl interpreter")

#: Per command the options that take a value, those that do not, and the number of arguments
#: (UG835, Vivado Tcl Command Reference).
COMMANDS: dict[str, tuple[set[str], set[str], range]] = {
    "create_project": ({"-part"}, {"-force", "-in_memory"}, range(3)),
    "read_verilog": ({"-library"}, {"-sv"}, range(1, 2)),
    "read_xdc": ({"-cells", "-ref"}, {"-unmanaged"}, range(1, 2)),
    "synth_design": ({"-top", "-part", "-flatten_hierarchy", "-directive"}, set(), range(1)),
    "opt_design": ({"-directive"}, set(), range(1)),
    "place_design": ({"-directive"}, set(), range(1)),
    "phys_opt_design": ({"-directive"}, set(), range(1)),
    "route_design": ({"-directive"}, set(), range(1)),
    "report_utilization": ({"-file"}, {"-hierarchical"}, range(1)),
    "report_timing_summary": ({"-file", "-max_paths"}, set(), range(1)),
    "write_checkpoint": (set(), {"-force"}, range(1, 2)),
    "write_bitstream": (set(), {"-force", "-bin_file"}, range(1, 2)),
    "write_cfgmem": (
        {"-format", "-interface", "-loadbit", "-size"},
        {"-force", "-disablebitswap"},
        range(1, 2),
    ),
    "get_cells": ({"-filter"}, {"-quiet", "-hierarchical"}, range(2)),
    "get_timing_paths": ({"-max_paths"}, {"-quiet", "-setup", "-hold"}, range(1)),
    "get_property": (set(), set(), range(2, 3)),
}
#: Commands that must come once each, in this order.
FLOW = ("synth_design", "opt_design", "place_design", "route_design")


@dataclass
class Vivado:
    """A stand-in: checks commands, notes them, and answers with slacks and cells."""

    setup: str = "0.125"
    hold: str = "0.031"
    calls: list[tuple[str, ...]] = field(default_factory=list)
    status: int = 0

    def command(self, name: str) -> Callable[..., str]:
        valued, flags, positional = COMMANDS[name]

        def call(*arguments: str) -> str:
            rest = list(arguments)
            free = []
            while rest:
                word = rest.pop(0)
                if word in valued:
                    assert rest, f"{name} {word} needs a value"
                    assert not rest.pop(0).startswith("-")
                elif word.startswith("-"):
                    assert word in flags, f"{name} has no option {word}"
                else:
                    free.append(word)
            assert len(free) in positional, f"{name} takes {positional}, not {free}"
            self.calls.append((name, *arguments))
            return self.answer(name, arguments)

        return call

    def answer(self, name: str, arguments: tuple[str, ...]) -> str:
        if name == "get_timing_paths":
            return "setup_path" if "-setup" in arguments else "hold_path"
        if name == "get_property":
            assert arguments[0] == "SLACK"
            return self.setup if arguments[1] == "setup_path" else self.hold
        if name == "get_cells":
            return "a b c" if "DSP48E*" in arguments[-1] else "a"
        return ""

    def run(self, path: Path) -> None:
        interpreter = tkinter.Tcl()
        for name in COMMANDS:
            interpreter.createcommand(name, self.command(name))
        # `exit` must end the script, not the test: an error that is caught here.
        interpreter.eval('proc exit {{status 0}} { error "exit $status" }')
        interpreter.eval(f"set failed [catch {{source {{{path}}}}} message]")
        if interpreter.getboolean(interpreter.getvar("failed")):
            message = interpreter.getvar("message")
            found = re.fullmatch(r"exit (\d+)", message)
            assert found, message
            self.status = int(found[1])

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script of the PYNQ-Z2; it changes the working directory, which is put back."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "build.tcl"
    path.write_text(script(PYNQ_Z2.config, PYNQ_Z2), encoding="utf-8")
    return path


def test_flow_makes_a_bitstream_and_reports(project: Path) -> None:
    vivado = Vivado()
    vivado.run(project)
    assert vivado.status == 0
    assert [name for name in vivado.names if name in FLOW] == list(FLOW)
    assert vivado.names[-2:] == ["write_bitstream", "write_cfgmem"]
    timing = json.loads((project.parent / "timing.json").read_text())
    assert timing == {
        "period_ns": 6.666,
        "setup_slack_ns": 0.125,
        "hold_slack_ns": 0.031,
        "reached_mhz": round(1000 / (6.666 - 0.125), 3),
    }
    use = json.loads((project.parent / "utilization.json").read_text())
    assert (use["dsp"], use["dsp_available"], use["lut"], use["lut_available"]) == (
        3,
        220,
        1,
        53200,
    )


@pytest.mark.parametrize(("setup", "hold"), [("-0.001", "0.1"), ("0.1", "-0.001")])
def test_flow_stops_where_timing_is_not_met(project: Path, setup: str, hold: str) -> None:
    vivado = Vivado(setup=setup, hold=hold)
    vivado.run(project)
    assert vivado.status == 1
    assert "write_bitstream" not in vivado.names
    timing = json.loads((project.parent / "timing.json").read_text())
    assert (timing["setup_slack_ns"], timing["hold_slack_ns"]) == (float(setup), float(hold))


def test_a_slack_of_nothing_is_met(project: Path) -> None:
    vivado = Vivado(setup="0.000", hold="0.000")
    vivado.run(project)
    assert vivado.status == 0


zynq = [board for board in BOARDS.values() if board.part.family in MEMORY_PORTS]


@pytest.mark.parametrize("board", zynq, ids=[board.name for board in zynq])
def test_every_board_has_a_script_and_constraints(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build.tcl").write_text(script(board.config, board), encoding="utf-8")
    vivado = Vivado()
    vivado.run(tmp_path / "build.tcl")
    assert ("create_project", "-in_memory", "-part", board.part.name) in vivado.calls
    text = constraints(board.config, board)
    pins = re.findall(r"get_pins \{processor/(\w+)\[0\]\}", text)
    block = BLOCKS[board.part.family]
    assert pins == [name for name in (block.clock, block.reset) if name]
    period = re.search(r"-period ([\d.]+)", text)
    assert period
    assert 0 <= 1000 / board.config.clock_mhz - float(period[1]) < 0.001
