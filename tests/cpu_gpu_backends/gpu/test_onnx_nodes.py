"""The ONNX node tests on a GPU device: none is wrong, and none is refused by it alone."""

import runpy
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tilewright.cpu_gpu_backends.gpu.device import KernelDevice

#: 535 of the node tests of onnx 1.23 pass on the graph itself.
FEWEST_PASSED = 500


def test_node_tests_on_the_device(gpu: KernelDevice, repository: Path) -> None:
    pytest.importorskip("onnx")
    script: dict[str, Any] = runpy.run_path(str(repository / "benchmarks" / "onnx_coverage.py"))
    cases = script["node_cases"]()
    passed = {v.case for v in script["judge"](cases) if v.outcome == "passed"}
    assert len(passed) > FEWEST_PASSED
    verdicts = list(script["judge"](cases, partial(script["run_as_kernels"], gpu)))
    assert [(v.case, v.reason) for v in verdicts if v.outcome == "wrong"] == []
    assert [v for v in verdicts if v.case in passed and v.outcome != "passed"] == []
