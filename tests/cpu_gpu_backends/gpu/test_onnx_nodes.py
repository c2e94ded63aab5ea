"""The ONNX node tests on an OpenCL device: none is wrong, and none is refused by it alone."""

import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tilewright.cpu_gpu_backends.gpu.opencl_device import OpenClDevice


def check_cases(script: dict[str, Any], cases: Sequence[Any], fewest: int) -> None:
    passed = {v.case for v in script["judge"](cases) if v.outcome == "passed"}
    assert len(passed) > fewest
    verdicts = list(script["judge"](cases, script["run_on_opencl"]))
    assert [(v.case, v.reason) for v in verdicts if v.outcome == "wrong"] == []
    assert [v for v in verdicts if v.case in passed and v.outcome != "passed"] == []


@pytest.fixture
def script(opencl: OpenClDevice, repository: Path) -> dict[str, Any]:
    """The benchmark that knows the cases; it opens the device that `opencl` has found."""
    pytest.importorskip("onnx")
    return runpy.run_path(str(repository / "benchmarks" / "onnx_coverage.py"))


def test_a_case_of_every_operator_on_the_device(script: dict[str, Any]) -> None:
    by_operator = {case.model.graph.node[-1].op_type: case for case in script["node_cases"]()}
    check_cases(script, list(by_operator.values()), fewest=60)


@pytest.mark.slow
def test_node_tests_on_the_device(script: dict[str, Any]) -> None:
    check_cases(script, script["node_cases"](), fewest=100)
