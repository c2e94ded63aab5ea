"""Scales and zero points of tensors, and constants in 8 and 32 bits."""

from dataclasses import dataclass

import numpy as np

from tilewright.compiler.graph import Array
from tilewright.compiler.operators import INT8_MAX, INT8_MIN, DataType
from tilewright.compiler.quantisation.calibration import Range

#: Weights use as many steps below 0 as above.
WEIGHT_MAX = 127
#: The smallest scale: smaller ones are not normal numbers when multiplied with each other.
SMALLEST_SCALE = 1e-12


@dataclass(frozen=True, slots=True)
class Scale:
    """Scale, a float32 number, and zero point of an int8 tensor."""

    scale: float
    zero_point: int

    @classmethod
    def of(cls, span: Range) -> "Scale":
        """Return the steps that cover a range, 0 being one of them exactly."""
        scale = max((span.high - span.low) / (INT8_MAX - INT8_MIN), SMALLEST_SCALE)
        zero_point = round(INT8_MIN - span.low / scale)
        return cls(float(np.float32(scale)), min(max(zero_point, INT8_MIN), INT8_MAX))


@dataclass(frozen=True, slots=True)
class QuantisedConstant:
    """Integers, a scale for all or for each entry of axis 0, and zero points of 0."""

    values: Array
    scale: Array

    @property
    def real(self) -> Array:
        """What the integers stand for, float64."""
        shape = (-1, *(1,) * (self.values.ndim - 1)) if self.scale.size > 1 else ()
        numbers: Array = self.values.astype(np.float64) * self.scale.astype(np.float64).reshape(
            shape
        )
        return numbers


def quantised_weights(weights: Array, *, per_channel: bool = True) -> QuantisedConstant:
    """Return weights as int8 in -127..127, each output channel, along axis 0, with its scale."""
    rows = weights.reshape(weights.shape[0], -1) if per_channel else weights.reshape(1, -1)
    largest = np.abs(rows).max(axis=1, initial=0.0)
    scale = np.maximum(largest / WEIGHT_MAX, SMALLEST_SCALE).astype(np.float32)
    steps = np.rint(rows / scale.astype(np.float64)[:, np.newaxis])
    values = np.clip(steps, -WEIGHT_MAX, WEIGHT_MAX).astype(np.int8)
    return QuantisedConstant(values.reshape(weights.shape), scale)


def quantised_bias(bias: Array, x_scale: float, weight_scale: Array) -> QuantisedConstant:
    """Return a bias in units of the accumulator, int32."""
    scale = (np.float32(x_scale) * weight_scale).astype(np.float32)
    low, high = DataType.INT32.limits
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.nan_to_num(np.rint(bias.astype(np.float64) / scale.astype(np.float64)))
    # Half the range stays free for the zero point's part and the sum itself.
    values = np.clip(steps, low // 2, high // 2).astype(np.int32)
    return QuantisedConstant(values, np.broadcast_to(scale, bias.shape).copy())
