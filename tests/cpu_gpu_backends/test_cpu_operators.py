"""Every operator as machine code against the graph's evaluation; exact ones in every bit."""

import numpy as np
import pytest
from operator_cases import OperatorCase, operator_cases

from tilewright.compiler.evaluate import evaluate
from tilewright.cpu_gpu_backends.codegen.target import host_target
from tilewright.cpu_gpu_backends.cpu.exact import is_exact
from tilewright.cpu_gpu_backends.cpu.lower import lower_graph
from tilewright.cpu_gpu_backends.cpu.native import load_program

CASES = operator_cases()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_an_operator_equals_the_graph(case: OperatorCase) -> None:
    graph, target = case.graph, host_target()
    (result,) = load_program(lower_graph(graph, target), target).run(list(case.inputs.values()))
    (expected,) = evaluate(graph, case.inputs).values()
    if is_exact(case.op):
        np.testing.assert_array_equal(result.reshape(expected.shape), expected)
    else:
        np.testing.assert_allclose(
            result.reshape(expected.shape), expected, max(case.tolerance, 2e-6), 2e-5
        )
