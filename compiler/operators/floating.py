"""Operators on real numbers, as model files state them.

In an integer graph the host computes them: before the first quantisation, after the last, and where
an operator has no integer form. Arithmetic is float32; a graph of them has images NHWC, as an
integer graph has, and everything else in the layout of the model file.
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
class FloatConvTranspose2d:
    """Transposed convolution of ``[N, H, W, C]``; attributes as of `ConvTranspose2d`.

    Inputs: x, weights ``[O, kh, kw, C / groups]``, and optionally bias ``[O]``.
    """

    stride: Pair = (1, 1)
    pads: Padding = (0, 0, 0, 0)
    extra: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatDense:
    """``x @ weights.T + bias``.

    Inputs: x ``[..., K]``, weights ``[O, K]``, and optionally bias ``[O]``. Output: ``[..., O]``.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatMatMul:
    """``a @ b`` of ``[..., M, K]`` and ``[..., K, N]``; the leading axes broadcast as in numpy."""


class BinaryFunction(Enum):
    """A function of two real numbers, by name; `PRELU` is ``a`` where positive, else ``a * b``."""

    ADD = "add"
    SUBTRACT = "subtract"
    MULTIPLY = "multiply"
    DIVIDE = "divide"
    POWER = "power"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    PRELU = "prelu"


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatBinary:
    """`function` of the elements of two tensors, whose shapes broadcast as in numpy."""

    function: BinaryFunction


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


class Reduction(Enum):
    """How elements of an axis become one."""

    MEAN = "mean"
    SUM = "sum"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"
    PRODUCT = "product"


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatReduce:
    """`function` over `axes`, ascending; they are kept with size 1."""

    function: Reduction
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatSoftmax:
    """``softmax(beta * x)`` over the last axis, or its logarithm."""

    beta: float = 1.0
    logarithm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatLayerNorm:
    """``(x - mean) / sqrt(variance + epsilon) * gain + offset`` over the last axis.

    Inputs: x ``[..., n]``, gain ``[n]``, offset ``[n]``.
    """

    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatInterpolate:
    """Weighted sums of entries along `axis`: any resizing, one axis at a time.

    Entry ``i`` of the result is ``sum(weights[i, t] * x[indices[i, t]] for t)``.

    Inputs: x; constants indices int32 ``[size, taps]`` and weights float32 ``[size, taps]``.
    """

    axis: int


class Function(Enum):
    """A function of one real number, by name."""

    SIGMOID = "sigmoid"
    TANH = "tanh"
    HARD_SIGMOID = "hard_sigmoid"
    HARD_SWISH = "hard_swish"
    LEAKY_RELU = "leaky_relu"
    ELU = "elu"
    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    SOFTPLUS = "softplus"
    MISH = "mish"
    EXP = "exp"
    LOG = "log"
    SQRT = "sqrt"
    RECIPROCAL = "reciprocal"
    NEGATE = "negate"
    ABSOLUTE = "absolute"
    ERF = "erf"
    FLOOR = "floor"
    CEIL = "ceil"
    ROUND = "round"
    SIGN = "sign"


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatUnary:
    """`function` of each element.

    `alpha` is the slope of leaky relu and hard sigmoid and the scale of elu; `beta` is the offset
    of hard sigmoid. ``GELU`` is ``x * (1 + erf(x / sqrt(2))) / 2``, ``GELU_TANH`` its approximation
    ``x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2``, ``SILU`` ``x * sigmoid(x)``,
    ``MISH`` ``x * tanh(softplus(x))``; ``ROUND`` goes half to even.
    """

    function: Function
    alpha: float = 0.0
    beta: float = 0.0
