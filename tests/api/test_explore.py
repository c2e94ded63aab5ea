"""Exploration of hardware sizes."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tilewright.boards.parts import XC7Z020
from tilewright.cli import main
from tilewright.compiler.compile import compile_graph
from tilewright.compiler.networks import Network, build_network
from tilewright.exploration import Point, candidates, mark_best, shape_bound
from tilewright.isa.presets import PYNQ

GRID = {"block_in": ("8", "16", "20"), "block_out": ("8", "64"), "lane_multipliers": ("3",)}


def test_candidates_fit_and_the_fastest_bound_comes_first() -> None:
    graph = build_network(Network.RESNET_20)
    found, illegal, too_large = candidates(PYNQ, GRID, XC7Z020, [graph], limit=1.0)
    # 20 bytes are no whole beats; 64 lanes take 192 multipliers besides those of the array.
    assert (illegal, too_large) == (2, 2)
    assert [(one.config.block_in, one.config.block_out) for one in found] == [(16, 8), (8, 8)]
    assert [one.bounds for one in found] == sorted(one.bounds for one in found)


def test_a_limit_leaves_room() -> None:
    graph = build_network(Network.RESNET_20)
    base = {"block_in": ("16",)}
    (whole,), _, _ = candidates(PYNQ, base, XC7Z020, [graph], limit=1.0)
    largest = whole.shares.largest
    assert not candidates(PYNQ, base, XC7Z020, [graph], limit=largest - 0.01)[0]
    assert candidates(PYNQ, base, XC7Z020, [graph], limit=largest)[0]


@pytest.mark.parametrize("network", [Network.RESNET_20, Network.RESNET_18])
def test_the_bound_is_that_of_the_compiler(network: Network) -> None:
    graph = build_network(network)
    (step,) = compile_graph(graph, PYNQ).steps
    assert shape_bound(graph, PYNQ) == sum(layer.ideal_cycles for layer in step.layers)


def test_the_best_are_beaten_by_none() -> None:
    graph = build_network(Network.RESNET_20)
    found, _, _ = candidates(PYNQ, GRID, XC7Z020, [graph], limit=1.0)
    large, small = found
    fast, slow = 100, 200
    assert [
        p.is_best
        for p in mark_best(
            [Point(candidate=large, cycles=(fast,)), Point(candidate=small, cycles=(slow,))]
        )
    ] == [True, True]
    assert [
        p.is_best
        for p in mark_best(
            [Point(candidate=large, cycles=(slow,)), Point(candidate=small, cycles=(fast,))]
        )
    ] == [True, False]


def explore(*words: str) -> int:
    return main(["explore", "resnet20_cifar", "--config", "pynq", *words])


def test_the_command_prints_writes_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot, record = tmp_path / "front.svg", tmp_path / "record.json"
    words = ["--grid", "block_in=16,20", "block_out=8", "--plot", str(plot), "--json", str(record)]
    assert explore(*words) == 0
    out = capsys.readouterr().out
    assert "block_in=16 block_out=8" in out
    assert "2 configurations: 1 not allowed, 0 too large, 0 with worse bounds not simulated" in out
    result: dict[str, Any] = json.loads(record.read_text())
    (point,) = result["points"]
    assert point["best"]
    assert point["images_per_second"] == [PYNQ.clock_mhz * 1e6 / point["cycles"][0]]
    assert point["area"]["multipliers"] == 16 * 8 // 2 + 3 * 8
    root = ET.fromstring(plot.read_text())
    assert root.tag.endswith("svg")
    assert len([item for item in root if item.tag.endswith("circle")]) == 1


def test_the_best_are_tuned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    record = tmp_path / "record.json"
    words = ["--grid", "block_in=16", "block_out=8", "--json", str(record)]
    assert explore(*words) == 0
    (untuned,) = json.loads(record.read_text())["points"]
    assert not untuned["tuned"]
    assert explore(*words, "--tune", "1") == 0
    (tuned,) = json.loads(record.read_text())["points"]
    assert tuned["tuned"]
    assert tuned["cycles"][0] <= untuned["cycles"][0]
    # What was found is kept: the next exploration uses it.
    assert explore(*words) == 0
    assert json.loads(record.read_text())["points"][0]["cycles"] == tuned["cycles"]
    assert "best  configuration" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--grid", "speed=1"], "tilewright: a configuration has no field 'speed'"),
        (["--grid", "block_in"], "tilewright: --grid takes field=value,value..., not 'block_in'"),
        (
            ["--limit", "0"],
            "tilewright: argument --limit: must be above 0 and at most 100, not '0'",
        ),
        (
            ["--tune", "none"],
            "tilewright: argument --tune: must be a whole number from 1 on, not 'none'",
        ),
    ],
)
def test_wrong_words(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert explore(*words) == 2
    assert capsys.readouterr().err.splitlines()[0] == message
