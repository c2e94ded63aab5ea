"""Running declared tensors in tests."""

from collections.abc import Mapping

import numpy as np

from tilewright.compiler.tensor.expressions import Tensor
from tilewright.compiler.tensor.interpreter import interpret
from tilewright.compiler.tensor.lower import lower
from tilewright.compiler.tensor.schedule import Schedule


def run(schedule: Schedule, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Lower and interpret a schedule with one output."""
    (result,) = interpret(lower(schedule), inputs).values()
    return result


def evaluate_tensor(tensor: Tensor, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Compute a tensor with the schedule that does nothing."""
    return run(Schedule(tensor), inputs)
