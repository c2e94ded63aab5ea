"""The integer form of each real operator: scales and zero points folded into integer parameters."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from typing_extensions import assert_never

from tilewright.compiler.evaluate_pooling import axis_counts
from tilewright.compiler.graph import Array, Node
from tilewright.compiler.operators import (
    INT8_MAX,
    INT8_MIN,
    Add,
    AveragePool2d,
    BorderScale,
    Clip,
    Conv2d,
    ConvTranspose2d,
    DataType,
    FloatAveragePool2d,
    FloatClip,
    FloatConv2d,
    FloatConvTranspose2d,
    Pad,
    Pair,
    Requantize,
    Ties,
)
from tilewright.isa.errors import ModelError
from tilewright.isa.integers import MAX_SHIFT, MULTIPLIER_BITS, split_scale

#: Coefficients of `Add` are int16.
COEFFICIENT_MAX = DataType.INT16.limits[1]


@dataclass(frozen=True, slots=True)
class Quantisation:
    """Meaning of an int8 tensor: ``(q - zero_point) * scale``; the scale is a float32 number."""

    scale: float
    zero_point: int

    @classmethod
    def of(cls, scale: float, zero_point: int, dtype: DataType) -> "Quantisation":
        """Return the int8 form of what a tensor of type `dtype` means."""
        offset = 128 if dtype is DataType.UINT8 else 0
        return cls(float(np.float32(scale)), zero_point - offset)

    def steps(self, value: float) -> int:
        """Return the int8 value nearest to a real number."""
        steps = value / self.scale + self.zero_point
        return round(min(max(steps, INT8_MIN), INT8_MAX))


@dataclass(frozen=True, slots=True)
class WeightValues:
    """Constant integers and what they mean, per tensor or per channel along `axis`."""

    values: Array
    scale: Array
    zero_point: Array
    axis: int

    @classmethod
    def of_floats(cls, values: Array) -> "WeightValues":
        """Return real constants, which are their own integers times 1."""
        return cls(values, np.ones(1, np.float32), np.zeros(1, np.int32), 0)

    @property
    def is_eight_bit(self) -> bool:
        """Whether the integers have 8 bits, as weights have."""
        return self.values.dtype in (np.int8, np.uint8)

    @property
    def is_quantised_tensor(self) -> bool:
        """Whether they have 8 bits and one scale, as activations have."""
        return self.is_eight_bit and self.scale.size == 1

    def real(self) -> Array:
        """Return the real numbers, float32."""
        if self.values.dtype == np.float32:
            return self.values
        shape = [1] * self.values.ndim
        if self.scale.size > 1:
            shape[self.axis] = self.scale.size
        return (self.centred() * self.scale.reshape(shape)).astype(np.float32)

    def reshaped(self, shape: tuple[int, ...]) -> "WeightValues":
        """Return the weights with axes of size 1 added behind the first."""
        return replace(self, values=self.values.reshape(shape))

    def centred(self) -> Array:
        """Return the integers less their zero points, as int64."""
        shape = [1] * self.values.ndim
        if self.zero_point.size > 1:
            shape[self.axis] = self.zero_point.size
        return self.values.astype(np.int64) - self.zero_point.reshape(shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionConstants:
    """The constant operands of a `Conv2d`."""

    weights: Array
    bias: Array
    multiplier: Array
    shift: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductParameters:
    """The attributes that `Mul` and `MatMul` have in common."""

    a_zero_point: int
    b_zero_point: int
    multiplier: int
    shift: int
    zero_point: int
    low: int
    high: int


def convolution_parts(
    op: FloatConv2d,
    x: Quantisation,
    weights: WeightValues,
    bias: WeightValues | None,
    target: Quantisation,
    node: Node,
) -> tuple[Conv2d, ConvolutionConstants]:
    """Return the integer form of a convolution and its constants."""
    centred, constants = _weighted_sums(x, weights, bias, target, node)
    sums = centred.reshape(centred.shape[0], -1).sum(axis=1)
    total = constants.bias - x.zero_point * sums
    low, high = DataType.INT32.limits
    if (total < low).any() or (total > high).any():
        raise ModelError(f"{node.label} has a bias beyond 32 bits")
    integer = Conv2d(
        stride=op.stride,
        pads=op.pads,
        dilation=op.dilation,
        groups=op.groups,
        input_zero_point=x.zero_point,
        zero_point=target.zero_point,
        low=INT8_MIN,
        high=INT8_MAX,
    )
    return integer, replace(constants, bias=total.astype(np.int32))


def transposed_parts(
    op: FloatConvTranspose2d,
    x: Quantisation,
    weights: WeightValues,
    bias: WeightValues | None,
    target: Quantisation,
    node: Node,
) -> tuple[ConvTranspose2d, ConvolutionConstants]:
    """Return the integer form of a transposed convolution and its constants."""
    _, constants = _weighted_sums(x, weights, bias, target, node)
    integer = ConvTranspose2d(
        stride=op.stride,
        pads=op.pads,
        extra=op.extra,
        dilation=op.dilation,
        groups=op.groups,
        input_zero_point=x.zero_point,
        zero_point=target.zero_point,
        low=INT8_MIN,
        high=INT8_MAX,
    )
    return integer, replace(constants, bias=constants.bias.astype(np.int32))


def _weighted_sums(
    x: Quantisation,
    weights: WeightValues,
    bias: WeightValues | None,
    target: Quantisation,
    node: Node,
) -> tuple[Array, ConvolutionConstants]:
    """Return centred weights, and the constants of sums of them; the bias is still int64."""
    where = node.label
    if weights.scale.size > 1 and weights.axis != 0:
        raise ModelError(f"{where} has weights quantised along axis {weights.axis}")
    centred = weights.centred()
    outputs = centred.shape[0]
    product = np.float32(x.scale) * weights.scale.astype(np.float32)
    multiplier, shift = _split(product / np.float32(target.scale), where)
    constants = ConvolutionConstants(
        weights=_narrow(centred),
        bias=_bias(bias, product, outputs, where),
        multiplier=np.broadcast_to(multiplier, outputs).astype(np.int32),
        shift=np.broadcast_to(shift, outputs).astype(np.int32),
    )
    return centred, constants


def product_parameters(
    a: Quantisation, b: Quantisation, target: Quantisation, node: Node
) -> ProductParameters:
    """Return the parameters of a product of two activations."""
    real = np.float32(a.scale) * np.float32(b.scale) / np.float32(target.scale)
    multiplier, shift = _split(real, node.label)
    return ProductParameters(
        a_zero_point=a.zero_point,
        b_zero_point=b.zero_point,
        multiplier=int(multiplier),
        shift=int(shift),
        zero_point=target.zero_point,
        low=INT8_MIN,
        high=INT8_MAX,
    )


def add_operator(
    a: Quantisation, b: Quantisation, target: Quantisation, node: Node, *, sign: int = 1
) -> Add:
    """Return the integer form of ``a + sign * b``.

    The coefficients are the best rational approximation of ``a.scale / b.scale``; the scale is
    taken from the operand with the larger one, whose own contribution is then exact.
    """
    swapped = a.scale > b.scale
    small, large = (b, a) if swapped else (a, b)
    ratio = Fraction(small.scale) / Fraction(large.scale)
    best = ratio.limit_denominator(COEFFICIENT_MAX)
    small_coefficient, large_coefficient = best.numerator, best.denominator
    real = np.float32(large.scale) / (np.float32(large_coefficient) * np.float32(target.scale))
    multiplier, shift = _split(real, node.label)
    coefficients = (small_coefficient, large_coefficient)
    a_coefficient, b_coefficient = reversed(coefficients) if swapped else coefficients
    b_coefficient *= sign
    return Add(
        a_coefficient=a_coefficient,
        b_coefficient=b_coefficient,
        bias=-(a.zero_point * a_coefficient + b.zero_point * b_coefficient),
        multiplier=int(multiplier),
        shift=int(shift),
        zero_point=target.zero_point,
        low=INT8_MIN,
        high=INT8_MAX,
    )


def average_operator(
    op: FloatAveragePool2d, size: Pair, x: Quantisation, target: Quantisation, node: Node
) -> AveragePool2d:
    """Return the integer form of an average over windows of an image of `size`.

    Where ties do not go to even, the multiplier is one unit of its last place off: enough to tip an
    exact half, too little to move any other mean of less than 2**14 elements across one.
    """
    whole = op.kernel[0] * op.kernel[1]
    nudge = _nudge(op.ties, x.zero_point)

    def scale(count: int) -> Pair:
        real = np.float32(x.scale) / (np.float32(target.scale) * np.float32(count))
        multiplier, shift = _split(real, node.label)
        return _nudged(int(multiplier), int(shift), nudge)

    border: tuple[BorderScale, ...] = ()
    if not op.count_include_pad:
        rows, columns = (set(np.unique(axis).tolist()) for axis in axis_counts(op, size))
        counts = {row * column for row in rows for column in columns} - {whole}
        border = tuple(
            BorderScale(count=count, multiplier=scale(count)[0], shift=scale(count)[1])
            for count in sorted(counts)
        )
    multiplier, shift = scale(whole)
    return AveragePool2d(
        kernel=op.kernel,
        stride=op.stride,
        pads=op.pads,
        input_zero_point=x.zero_point,
        multiplier=multiplier,
        shift=shift,
        border=border,
        zero_point=target.zero_point,
        low=INT8_MIN,
        high=INT8_MAX,
    )


def _nudge(ties: Ties, zero_point: int) -> int:
    """Return by how many units to change the multiplier of a mean, which is of ``x - zero_point``.

    A larger multiplier tips halves away from the zero point, a smaller one towards it. The choice
    is right for means on the larger side of the range: above the zero point, and for int8 below 0
    where the zero point is low, as it is after a relu.
    """
    match ties:
        case Ties.EVEN:
            return 0
        case Ties.UP:
            return 1 if zero_point < 0 else -1
        case Ties.AWAY_FROM_ZERO:
            return -1 if zero_point < INT8_MIN // 2 else 1
        case _:
            assert_never(ties)


def _nudged(multiplier: int, shift: int, nudge: int) -> Pair:
    """Return ``multiplier + nudge`` with its shift, the multiplier kept to 24 significant bits."""
    if nudge < 0 and multiplier == 1 << (MULTIPLIER_BITS - 1) and shift < MAX_SHIFT:
        return 2 * multiplier + nudge, shift + 1
    if nudge > 0 and multiplier == (1 << MULTIPLIER_BITS) - 1 and shift > 0:
        return (multiplier + nudge) // 2, shift - 1
    return max(multiplier + nudge, 0), shift


def requantize_operator(x: Quantisation, target: Quantisation, where: str) -> Requantize:
    """Return the integer form of a change of scale."""
    multiplier, shift = _split(np.float32(x.scale) / np.float32(target.scale), where)
    return Requantize(
        bias=-x.zero_point,
        multiplier=int(multiplier),
        shift=int(shift),
        zero_point=target.zero_point,
        low=INT8_MIN,
        high=INT8_MAX,
    )


def clip_operator(op: FloatClip, quantisation: Quantisation) -> Clip:
    """Return the integer form of a clip: its bounds rounded to steps."""
    return Clip(low=quantisation.steps(op.low), high=quantisation.steps(op.high))


def quantised_pad(op: Pad, quantisation: Quantisation | None, node: Node, *, offset: int) -> Pad:
    """Return a padding of int8; without meaning, the value is an integer less `offset`."""
    if quantisation is None:
        steps = op.value - offset
    else:
        steps = quantisation.steps(op.value)
        exact = (steps - quantisation.zero_point) * quantisation.scale
        if not math.isclose(exact, op.value, rel_tol=1e-6, abs_tol=0.0):
            raise ModelError(f"{node.label} pads with {op.value}, which is no quantised value")
    if steps != int(steps) or not INT8_MIN <= steps <= INT8_MAX:
        raise ModelError(f"{node.label} pads with {op.value}, which is no 8-bit integer")
    return replace(op, value=float(steps))


def _bias(bias: WeightValues | None, product: Array, outputs: int, where: str) -> Array:
    """Return a bias in units of the accumulator, int64 ``[O]``."""
    if bias is None:
        return np.zeros(outputs, dtype=np.int64)
    integer = bias.values.dtype == np.int32
    if integer and np.allclose(bias.scale, product, rtol=1e-3, atol=0.0):
        return bias.centred()
    if not product.all():
        raise ModelError(f"{where} has scales whose product is 0 in float32")
    real = bias.centred() if integer else bias.values.astype(np.float64)
    steps = np.rint(real * bias.scale.astype(np.float64) / product.astype(np.float64))
    low, high = DataType.INT32.limits
    if not np.isfinite(steps).all() or (steps < low).any() or (steps > high).any():
        raise ModelError(f"{where} has a bias beyond 32 bits")
    return steps.astype(np.int64)


def _narrow(weights: Array) -> Array:
    """Return centred weights as int8 where they fit, else as int16."""
    low, high = DataType.INT8.limits
    fits = not weights.size or (weights.min() >= low and weights.max() <= high)
    return weights.astype(np.int8 if fits else np.int16)


def _split(scale: Array | np.float32, where: str) -> tuple[Array, Array]:
    try:
        return split_scale(scale)
    except ValueError as error:
        largest = float(np.max(scale))
        raise ModelError(f"{where} changes scales by {largest:g}, out of range") from error
