"""A trace can be drawn: slices of a track do not overlap, and arrows begin and end in slices."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import tilewright


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> list[dict]:
    model = tilewright.load(repository / "api/demo/digits.onnx")
    compiled = tilewright.compile(model, config=tilewright.presets["pynq"])
    (name,) = compiled.graph.inputs
    image = np.zeros(compiled.graph.tensors[name].shape, np.float32)
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    compiled.run(image, device="sim").save_trace(path)
    return json.loads(path.read_text())["traceEvents"]


@pytest.fixture(scope="module")
def slices(events: list[dict]) -> dict[int, list[tuple[float, float]]]:
    """Begin and end of the slices of each track."""
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    return {track: sorted(items) for track, items in tracks.items()}


def test_slices_of_a_track_do_not_overlap(slices: dict[int, list[tuple[float, float]]]) -> None:
    assert len(slices) == 5
    for items in slices.values():
        assert all(first[1] <= second[0] + 1e-9 for first, second in pairwise(items))


def test_arrows_connect_slices(
    events: list[dict], slices: dict[int, list[tuple[float, float]]]
) -> None:
    ends = defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            ends[event["id"]][event["ph"]] = event
            inside = [begin <= event["ts"] <= end for begin, end in slices[event["tid"]]]
            assert any(inside), event
    assert ends
    for pair in ends.values():
        assert pair["s"]["ts"] < pair["f"]["ts"]
        assert pair["s"]["tid"] != pair["f"]["tid"]
