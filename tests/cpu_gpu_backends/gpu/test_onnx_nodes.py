"""The ONNX node tests on an OpenCL device: none is wrong, and none is refused by it alone."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from tilewright.cpu_gpu_backends.gpu.opencl_device import OpenClDevice

#: 535 of the node tests of onnx 1.23 pass on the graph itself.
FEWEST_PASSED = 500


@pytest.fixture
def script(opencl: OpenClDevice, repository: Path) -> dict[str, Any]:
    """The benchmark that knows the cases; it opens the device that `opencl` has found."""
    pytest.importorskip("onnx")
    return runpy.run_path(str(repository / "benchmarks" / "onnx_coverage.py"))


def test_node_tests_on_the_device(script: dict[str, Any]) -> None:
    cases = script["node_cases"]()
    passed = {v.case for v in script["judge"](cases) if v.outcome == "passed"}
    assert len(passed) > FEWEST_PASSED
    verdicts = list(script["judge"](cases, script["run_on_opencl"]))
    assert [(v.case, v.reason) for v in verdicts if v.outcome == "wrong"] == []
    assert [v for v in verdicts if v.case in passed and v.outcome != "passed"] == []
