"""The ONNX node tests of every operator that the reader knows: passed, refused, none wrong."""

import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tilewright.compiler.readers.onnx_reader import HANDLERS

#: Operators without a node test that passes, and why.
WITHOUT = {
    "Cast": "its tests hold values that are not a number",
    "ReduceLogSumExp": "its tests are in double precision",
}


@pytest.fixture(scope="module")
def verdicts(repository: Path) -> list[Any]:
    """Judge all cases once."""
    pytest.importorskip("onnx")
    script = runpy.run_path(str(repository / "benchmarks" / "onnx_coverage.py"))
    return list(script["judge"](script["node_cases"]()))


def test_no_result_is_wrong(verdicts: list[Any]) -> None:
    assert [(v.case, v.reason) for v in verdicts if v.outcome == "wrong"] == []


def test_refusals_are_one_line_that_names_the_place(verdicts: list[Any]) -> None:
    refused = [verdict for verdict in verdicts if verdict.outcome == "refused"]
    for verdict in refused:
        assert "\n" not in verdict.reason
        assert verdict.reason.startswith(("node '", "input '", "output '", "tensor '", "the ONNX"))


def test_every_operator_has_a_case_that_passes(verdicts: list[Any]) -> None:
    passed = Counter(verdict.operator for verdict in verdicts if verdict.outcome == "passed")
    assert HANDLERS.keys() - passed.keys() <= WITHOUT.keys()
