"""Random schedules of random expressions: machine code equals the interpreter."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tensor_reference import reference
from tensor_strategies import computations, random_inputs, schedule_randomly

from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.primitives import ScheduleError
from tilewright.compiler.tensor.printing import format_nest
from tilewright.cpu_gpu_backends.codegen.single_nest import compile_nest
from tilewright.cpu_gpu_backends.codegen.target import host_target

slow_inputs = [HealthCheck.too_slow, HealthCheck.data_too_large]


def check(draw: st.DrawFn, tensor: Tensor) -> None:
    """Compile a random schedule of `tensor` with bounds checks, run it, compare."""
    schedule = schedule_randomly(draw, tensor)
    inputs = random_inputs(tensor, seed=len(schedule.trace))
    try:
        nest = lower(schedule)
    except ScheduleError as error:
        # Threads or strides do not suit, which only lowering can see.
        assume(" binds " not in str(error) and "storage_align" not in str(error))
        raise
    expected = reference(tensor, inputs)
    for check_bounds in (True, False):
        compiled = compile_nest(nest, host_target(), check_bounds=check_bounds)
        (result,) = compiled.run(inputs).values()
        np.testing.assert_array_equal(result, expected, format_nest(nest))


@settings(max_examples=40, deadline=None, suppress_health_check=slow_inputs)
@given(data=st.data(), tensor=computations())
def test_machine_code_computes_what_the_nest_says(data: st.DataObject, tensor: Tensor) -> None:
    check(data.draw, tensor)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None, suppress_health_check=slow_inputs)
@given(data=st.data(), tensor=computations())
def test_machine_code_of_many_schedules(data: st.DataObject, tensor: Tensor) -> None:
    check(data.draw, tensor)
