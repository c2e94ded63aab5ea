import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from loop_nests import evaluate_tensor
from tensor_reference import reference
from tensor_strategies import INTRINSICS, computations, random_inputs, schedule_randomly

from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.interpreter import interpret
from tilewright.compiler.tensor.lower import lowering_stages
from tilewright.compiler.tensor.primitives import (
    ScheduleError,
    trace_from_json,
    trace_to_json,
)
from tilewright.compiler.tensor.printing import format_nest
from tilewright.compiler.tensor.schedule import Schedule

slow_inputs = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=60, deadline=None, suppress_health_check=slow_inputs)
@given(tensor=computations(), seed=st.integers(0, 99))
def test_the_interpreter_agrees_with_whole_arrays(tensor: Tensor, seed: int) -> None:
    inputs = random_inputs(tensor, seed)
    np.testing.assert_array_equal(evaluate_tensor(tensor, inputs), reference(tensor, inputs))


def check_every_pass(draw: st.DrawFn, tensor: Tensor) -> None:
    """No pass of lowering changes what a random schedule of `tensor` computes."""
    schedule = schedule_randomly(draw, tensor)
    inputs = random_inputs(tensor, seed=len(schedule.trace))
    try:
        passes = lowering_stages(schedule)
    except ScheduleError as error:
        # Threads or strides do not suit, which only lowering can see.
        assume(" binds " not in str(error) and "storage_align" not in str(error))
        raise
    expected = reference(tensor, inputs)
    for name, nest in passes:
        (result,) = interpret(nest, inputs).values()
        np.testing.assert_array_equal(result, expected, f"{name}\n{format_nest(nest)}")


@settings(max_examples=60, deadline=None, suppress_health_check=slow_inputs)
@given(data=st.data(), tensor=computations())
def test_no_schedule_changes_a_result_after_any_pass(data: st.DataObject, tensor: Tensor) -> None:
    check_every_pass(data.draw, tensor)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None, suppress_health_check=slow_inputs)
@given(data=st.data(), tensor=computations())
def test_no_schedule_of_many_changes_a_result(data: st.DataObject, tensor: Tensor) -> None:
    check_every_pass(data.draw, tensor)


@settings(max_examples=30, deadline=None, suppress_health_check=slow_inputs)
@given(data=st.data(), tensor=computations())
def test_a_saved_trace_gives_the_same_schedule(data: st.DataObject, tensor: Tensor) -> None:
    schedule = schedule_randomly(data.draw, tensor)
    trace = trace_from_json(trace_to_json(schedule.trace))
    assert trace == schedule.trace
    replayed = Schedule(tensor, intrinsics=INTRINSICS)
    replayed.apply(*trace)
    assert str(replayed) == str(schedule)
    assert [stage.loops for stage in replayed.state] == [stage.loops for stage in schedule.state]
