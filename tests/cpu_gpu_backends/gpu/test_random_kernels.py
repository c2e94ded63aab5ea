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
from tilewright.cpu_gpu_backends.gpu.device import KernelDevice
from tilewright.cpu_gpu_backends.gpu.kernels import KernelError
from tilewright.cpu_gpu_backends.gpu.nest_run import run_nest

loose = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def check_on_device(draw: st.DrawFn, tensor: Tensor, device: KernelDevice) -> None:
    """A random schedule of `tensor` runs on the device and yields what whole arrays do."""
    schedule = schedule_randomly(draw, tensor)
    inputs = random_inputs(tensor, seed=len(schedule.trace))
    try:
        nest = lower(schedule)
        (result,) = run_nest(nest, inputs, device).values()
    except (ScheduleError, KernelError) as error:
        # Threads or blocks that do not suit are refused; which ones, the messages say.
        seen_late = (" binds ", "a loop over block", "storage_align")
        assume(not any(text in str(error) for text in seen_late))
        raise
    np.testing.assert_array_equal(result, reference(tensor, inputs), format_nest(nest))


@settings(loose, max_examples=40)
@given(data=st.data(), tensor=computations())
def test_random_schedules_on_the_device(
    gpu: KernelDevice, data: st.DataObject, tensor: Tensor
) -> None:
    check_on_device(data.draw, tensor, gpu)


@pytest.mark.slow
@settings(loose, max_examples=1500)
@given(data=st.data(), tensor=computations())
def test_many_random_schedules_on_the_device(
    gpu: KernelDevice, data: st.DataObject, tensor: Tensor
) -> None:
    check_on_device(data.draw, tensor, gpu)
