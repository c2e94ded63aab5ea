from typing import get_args

import numpy as np
import pytest
from operator_cases import OperatorCase, operator_cases

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.operators import Operator
from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu
from tilewright.cpu_gpu_backends.gpu.device import KernelDevice
from tilewright.cpu_gpu_backends.gpu.model import GpuModel

CASES = operator_cases()


def test_every_operator_has_a_case() -> None:
    assert {type(case.op) for case in CASES} == set(get_args(Operator))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_an_operator_equals_the_graph(gpu: KernelDevice, case: OperatorCase) -> None:
    graph = case.graph
    program = compile_for_gpu(graph, gpu.capability, gpu.dialect)
    model = GpuModel.load(program, gpu)
    (result,) = model.run(case.inputs).values()
    (expected,) = evaluate(graph, case.inputs).values()
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    if case.tolerance:
        np.testing.assert_allclose(result, expected, case.tolerance, case.tolerance)
    else:
        np.testing.assert_array_equal(result, expected)
