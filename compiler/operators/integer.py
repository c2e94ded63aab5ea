"""Operators of the integer graph that compute: int8 in, int8 out, defined bit for bit.

All activations are int8; images are NHWC. Every operator below ends in the requantisation of
`tilewright.isa.integers.requantize`::

    clip(round_half_even((accumulator + bias) * multiplier * 2**-shift) + zero_point, low, high)

with ``0 <= multiplier < 2**24``, ``0 <= shift < 64``; ``low`` and ``high`` hold a fused activation.
"""

from dataclasses import dataclass
from typing import TypeAlias

Pair: TypeAlias = tuple[int, int]
#: Rows above, columns left, rows below, columns right.
Padding: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2d:
    """Two-dimensional convolution with requantisation per output channel.

    The accumulator is the plain sum of ``x * weights`` over the window, with positions outside the
    image reading `input_zero_point`; the bias already holds ``-input_zero_point * sum(weights)``.
    ``groups == C`` is the depthwise convolution, output channel ``o`` reading input channel
    ``o // (O // C)``. A dense layer is a 1x1 convolution of a ``[N, 1, 1, C]`` tensor.

    Inputs: x int8 ``[N, H, W, C]``; then constants: weights ``[O, kh, kw, C / groups]``, int8, or
    int16 with values in -255..255 where the source's weights had a zero point; bias int32 ``[O]``;
    multiplier int32 ``[O]``; shift int32 ``[O]``. Output: int8 ``[N, H', W', O]``.
    """

    stride: Pair = (1, 1)
    pads: Padding = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    input_zero_point: int
    zero_point: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvTranspose2d:
    """Two-dimensional transposed convolution with requantisation per output channel.

    Pixel ``(i, j)`` of x adds ``(x - input_zero_point) * weights`` at rows
    ``i * stride[0] + k * dilation[0] - pads[0]`` and columns alike; `pads` are cut off the full
    result, `extra` rows below and columns to the right are added to it before. The bias is plain:
    it does not hold the zero point, as the number of taps varies from pixel to pixel.

    Inputs: x int8 ``[N, H, W, C]``; then constants as for `Conv2d`: weights
    ``[O, kh, kw, C / groups]``, bias, multiplier, shift. Output: int8 ``[N, H', W', O]`` with
    ``H' = (H - 1) * stride + (kh - 1) * dilation + 1 - top - bottom + extra``.
    """

    stride: Pair = (1, 1)
    pads: Padding = (0, 0, 0, 0)
    extra: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    input_zero_point: int
    zero_point: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MatMul:
    """Product of two quantised activations: ``(a - a_zero_point) @ (b - b_zero_point)``.

    Inputs: a int8 ``[..., M, K]``, b int8 ``[..., K, N]``; the leading axes broadcast as in numpy.
    Output: int8 ``[..., M, N]``. The bias of the requantisation is 0.
    """

    a_zero_point: int
    b_zero_point: int
    multiplier: int
    shift: int
    zero_point: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mul:
    """Product element by element: ``(a - a_zero_point) * (b - b_zero_point)``, bias 0.

    Distance from the rounded real product: at most one step, and only where that is half between
    two steps.

    Inputs: a and b, int8; shapes broadcast as in numpy. Output: int8 of the common shape.
    """

    a_zero_point: int
    b_zero_point: int
    multiplier: int
    shift: int
    zero_point: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """Sum of two quantised tensors; a difference is a sum with a negative coefficient.

    The accumulator is ``a * a_coefficient + b * b_coefficient``; the coefficients are int16 and
    their ratio is the best rational approximation of ``a_scale / b_scale``; ``bias`` is
    ``-(a_zero_point * a_coefficient + b_zero_point * b_coefficient)``.

    Distance from the rounded real sum: at most one step. With scales drawn at random over five
    decades, and a result scale within a factor of 3 of the larger one, 4 of a million results
    differ on average, and 0.4 % at the worst pair of scales (tests/compiler/test_evaluate.py).

    Inputs: a and b, int8; shapes broadcast as in numpy. Output: int8 of the common shape.
    """

    a_coefficient: int
    b_coefficient: int
    bias: int
    multiplier: int
    shift: int
    zero_point: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BorderScale:
    """The scale of the windows of an average pooling that hold `count` elements."""

    count: int
    multiplier: int
    shift: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AveragePool2d:
    """Mean over a window; over the whole image it is the global average.

    The accumulator is the sum of ``x - input_zero_point`` over the window's positions inside the
    image. ``multiplier * 2**-shift`` is ``x_scale / (kh * kw * y_scale)``. Where padding does not
    count, a window that overlaps it has fewer elements: then `border` holds the scale of each such
    count, ascending. With an empty `border` every window uses `multiplier` and `shift`.

    Distance from the rounded real mean: at most one step, and only where the real mean is half
    between two steps: in one of a million results with random scales. TFLite breaks such ties
    another way than to even; a multiplier one unit off then does so too (see `Ties`).

    Input: x int8 ``[N, H, W, C]``. Output: int8 ``[N, H', W', C]``.
    """

    kernel: Pair
    stride: Pair
    pads: Padding = (0, 0, 0, 0)
    input_zero_point: int
    multiplier: int
    shift: int
    border: tuple[BorderScale, ...] = ()
    zero_point: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Requantize:
    """A change of scale and zero point: accumulator ``x``, bias ``-x_zero_point``.

    Input: x int8, any shape. Output: int8 of that shape.
    """

    bias: int
    multiplier: int
    shift: int
    zero_point: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """``clip(x, low, high)`` without a change of scale; int8, any shape."""

    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """Any function of one int8 value: ``table[x + 128]``.

    Inputs: x int8, any shape; table int8 ``[256]``, constant. Output: int8 of x's shape.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax:
    """Softmax over the last axis, from a table of exponentials.

    With ``e = table[max(x) - x]`` the result is
    ``clip(round_half_even(e / sum(e) / scale) + zero_point, -128, 127)``, divisions in float64.

    Inputs: x int8, any shape; table int32 ``[256]``, constant: entry k is
    ``round(2**30 * exp(-k * x_scale * beta))``. Output: int8 of x's shape.
    """

    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNorm:
    """Normalisation over the last axis, of ``n`` elements, then gain and offset per channel.

    With the integers ``d = n * x - sum(x)`` and ``v = n * sum(x * x) - sum(x)**2``, both exact, the
    result is ``clip(round_half_even(d / sqrt(v + floor) * gain + offset) + zero_point, low, high)``
    in float64, each operation rounded by itself; where ``v + floor`` is 0, so is the quotient.

    `floor` is ``n**2 * epsilon / x_scale**2``. Inputs: x int8 ``[..., n]``, then constants float32
    ``[n]``: gain, the source's divided by the scale of y, and offset, likewise. Output: int8.
    """

    floor: float
    zero_point: int
    low: int
    high: int
