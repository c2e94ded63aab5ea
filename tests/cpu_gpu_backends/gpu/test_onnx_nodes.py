"""The ONNX node tests on an OpenCL device: none is wrong, and none is refused by it alone."""

import runpy
from pathlib import Path

import pytest

from tilewright.cpu_gpu_backends.gpu.opencl_device import OpenClDevice


@pytest.mark.slow
def test_node_tests_on_the_device(opencl: OpenClDevice, repository: Path) -> None:
    pytest.importorskip("onnx")
    script = runpy.run_path(str(repository / "benchmarks" / "onnx_coverage.py"))
    cases = script["node_cases"]()
    passed = {v.case for v in script["judge"](cases) if v.outcome == "passed"}
    assert len(passed) > 100
    verdicts = list(script["judge"](cases, script["run_on_opencl"]))
    assert [(v.case, v.reason) for v in verdicts if v.outcome == "wrong"] == []
    assert [v for v in verdicts if v.case in passed and v.outcome != "passed"] == []
