"""Operators on real numbers, as model files state them.

An integer graph holds none of them, except `FloatSoftmax` in front of an output.
"""

from dataclasses import dataclass
from enum import Enum

from tilewright.compiler.operators.integer import Padding, Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatConv2d:
    """Convolution of ``[N, H, W, C]``, zero padding.

    Inputs: x, weights ``[O, kh, kw, C / groups]``, and optionally bias ``[O]``.
    """

    stride: Pair = (1, 1)
    pads: Padding = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatDense:
    """``x @ weights.T + bias``.

    Inputs: x ``[N, K]``, weights ``[O, K]``, and optionally bias ``[O]``.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatAdd:
    """Sum of two tensors of one shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatBias:
    """``x + bias`` along the last axis. Inputs: x ``[..., C]``, bias ``[C]``."""


class Ties(Enum):
    """Which way a mean goes that lies half between two quantisation steps.

    ONNX rounds to even. TFLite rounds the stored uint8 values up, the stored int8 values away from
    zero (reference_ops::AveragePool, reference_integer_ops::AveragePool).
    """

    EVEN = "even"
    UP = "up"
    AWAY_FROM_ZERO = "away_from_zero"


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatAveragePool2d:
    """Mean over a window of ``[N, H, W, C]``.

    With `count_include_pad` padding counts as zeros; `ties` matters where the mean is quantised.
    """

    kernel: Pair
    stride: Pair
    pads: Padding = (0, 0, 0, 0)
    count_include_pad: bool = False
    ties: Ties = Ties.EVEN


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatClip:
    """``clip(x, low, high)``; relu is ``(0, inf)``."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatSoftmax:
    """``softmax(beta * x)`` over the last axis."""

    beta: float = 1.0


class Function(Enum):
    """A function of one real number, by name."""

    SIGMOID = "sigmoid"
    TANH = "tanh"
    HARD_SIGMOID = "hard_sigmoid"
    HARD_SWISH = "hard_swish"
    LEAKY_RELU = "leaky_relu"
    ELU = "elu"


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatUnary:
    """`function` of each element.

    `alpha` is the slope of leaky relu and hard sigmoid and the scale of elu; `beta` is the offset
    of hard sigmoid.
    """

    function: Function
    alpha: float = 0.0
    beta: float = 0.0
