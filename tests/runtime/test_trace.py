"""The trace is what Perfetto reads: complete events on one track per engine, none overlapping."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.isa.memories import Engine
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.result import RunResult


@pytest.fixture(scope="module")
def result(compiled_digits: CompiledModel) -> RunResult:
    return compiled_digits.run(np.zeros((1, 1, 16, 16), np.float32))


@pytest.fixture
def events(result: RunResult, tmp_path: Path) -> list[dict[str, Any]]:
    result.save_trace(tmp_path / "trace.json")
    trace: dict[str, list[dict[str, Any]]] = json.loads((tmp_path / "trace.json").read_text())
    return trace["traceEvents"]


def test_tracks_are_named(events: list[dict[str, Any]]) -> None:
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert list(names.values())[1:] == ["load", "gemm", "vector", "store"]


def test_slices_of_a_track_do_not_overlap(events: list[dict[str, Any]]) -> None:
    for track in range(5):
        slices = sorted(
            (event["args"]["cycle"], event["args"]["cycles"])
            for event in events
            if event["ph"] == "X" and event["tid"] == track
        )
        assert slices
        assert all(first + length <= second for (first, length), (second, _) in pairwise(slices))


def test_times_are_microseconds_at_the_clock(events: list[dict[str, Any]]) -> None:
    for event in events:
        if event["ph"] == "X":
            assert event["ts"] == pytest.approx(event["args"]["cycle"] / 150)
            assert event["dur"] == pytest.approx(event["args"]["cycles"] / 150)


def test_waits_and_busy_cycles_add_up(result: RunResult, events: list[dict[str, Any]]) -> None:
    for engine in Engine:
        mine = [event for event in events if event["ph"] == "X" and event["tid"] == 1 + engine]
        waits = {
            giver: sum(
                event["args"]["cycles"]
                for event in mine
                if event["name"] == f"wait for {giver.name.lower()}"
            )
            for giver in Engine
        }
        account = result.stats.engines[engine]
        assert tuple(waits.values()) == account.token_wait
        assert sum(event["args"].get("busy", 0) for event in mine) == account.busy


def test_arrows_lead_from_a_slice_to_a_slice_of_another_engine(
    events: list[dict[str, Any]],
) -> None:
    ends: dict[int, dict[str, dict[str, Any]]] = {}
    for event in events:
        if event["ph"] in "sf":
            ends.setdefault(event["id"], {})[event["ph"]] = event
            assert any(
                other["ph"] == "X"
                and other["tid"] == event["tid"]
                and other["ts"] <= event["ts"] <= other["ts"] + other["dur"]
                for other in events
            )
    assert ends
    for pair in ends.values():
        assert pair["s"]["ts"] < pair["f"]["ts"]
        assert pair["s"]["tid"] != pair["f"]["tid"]


def test_layers_cover_the_run(result: RunResult, events: list[dict[str, Any]]) -> None:
    layers = [event for event in events if event["ph"] == "X" and event["tid"] == 0]
    assert sum(event["args"]["cycles"] for event in layers) == result.stats.cycles
