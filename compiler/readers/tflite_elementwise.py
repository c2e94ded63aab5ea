"""Translation of TFLite functions of elements, reductions, softmax and resizing."""

import math
from collections.abc import Mapping

import numpy as np

from tilewright.compiler.operators import (
    BinaryFunction,
    FloatAveragePool2d,
    FloatBinary,
    FloatClip,
    FloatInterpolate,
    FloatReduce,
    FloatSoftmax,
    FloatUnary,
    Function,
    Reduction,
    Reshape,
    Upsample2d,
)
from tilewright.compiler.readers.resizing import AxisResize, Coordinates, Rounding
from tilewright.compiler.readers.tflite_file import TfliteOperator
from tilewright.compiler.readers.tflite_translation import TfliteTranslation
from tilewright.isa.errors import ModelError

BINARY: Mapping[str, BinaryFunction] = {
    "ADD": BinaryFunction.ADD,
    "DIV": BinaryFunction.DIVIDE,
    "MAXIMUM": BinaryFunction.MAXIMUM,
    "MINIMUM": BinaryFunction.MINIMUM,
    "MUL": BinaryFunction.MULTIPLY,
    "POW": BinaryFunction.POWER,
    "PRELU": BinaryFunction.PRELU,
    "SUB": BinaryFunction.SUBTRACT,
}
#: Operators with a fused activation, their first option.
FUSING = ("ADD", "DIV", "MUL", "SUB")
#: Operators of one number without options.
UNARY: Mapping[str, FloatUnary] = {
    "ABS": FloatUnary(function=Function.ABSOLUTE),
    "CEIL": FloatUnary(function=Function.CEIL),
    "ELU": FloatUnary(function=Function.ELU, alpha=1.0),
    "EXP": FloatUnary(function=Function.EXP),
    "FLOOR": FloatUnary(function=Function.FLOOR),
    "HARD_SWISH": FloatUnary(function=Function.HARD_SWISH),
    "LOG": FloatUnary(function=Function.LOG),
    "LOGISTIC": FloatUnary(function=Function.SIGMOID),
    "NEG": FloatUnary(function=Function.NEGATE),
    "ROUND": FloatUnary(function=Function.ROUND),
    "SQRT": FloatUnary(function=Function.SQRT),
    "TANH": FloatUnary(function=Function.TANH),
}
REDUCTIONS: Mapping[str, Reduction] = {
    "MEAN": Reduction.MEAN,
    "REDUCE_MAX": Reduction.MAXIMUM,
    "REDUCE_MIN": Reduction.MINIMUM,
    "REDUCE_PROD": Reduction.PRODUCT,
    "SUM": Reduction.SUM,
}
BOUNDS: Mapping[str, tuple[float, float]] = {
    "RELU": (0.0, math.inf),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}
MULTIPLY = FloatBinary(function=BinaryFunction.MULTIPLY)


def binary(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate a function of two tensors."""
    operator = FloatBinary(function=BINARY[op.op_type])
    activation = op.option(0, "<b") if op.op_type in FUSING else 0
    state.finish(op, operator, [state.real(op, 0), state.real(op, 1)], activation)


def squared_difference(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate SQUARED_DIFFERENCE."""
    subtract = FloatBinary(function=BinaryFunction.SUBTRACT)
    difference = state.add(op, subtract, [state.real(op, 0), state.real(op, 1)], "difference")
    state.finish(op, MULTIPLY, [difference, difference])


def square(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate SQUARE."""
    state.finish(op, MULTIPLY, [state.real(op), state.real(op)])


def rsqrt(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate RSQRT."""
    root = state.add(op, FloatUnary(function=Function.SQRT), [state.real(op)], "root")
    state.finish(op, FloatUnary(function=Function.RECIPROCAL), [root])


def relu(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate RELU, RELU6 and RELU_N1_TO_1."""
    low, high = BOUNDS[op.op_type]
    state.finish(op, FloatClip(low=low, high=high), [state.real(op)])


def unary(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate functions of one number without options."""
    state.finish(op, UNARY[op.op_type], [state.real(op)])


def leaky_relu(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate LEAKY_RELU."""
    operator = FloatUnary(function=Function.LEAKY_RELU, alpha=op.real_option(0, 0.0))
    state.finish(op, operator, [state.real(op)])


def gelu(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate GELU."""
    function = Function.GELU_TANH if op.option(0, "<b") else Function.GELU
    state.finish(op, FloatUnary(function=function), [state.real(op)])


def softmax(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate SOFTMAX and LOG_SOFTMAX over the last axis."""
    if op.op_type == "LOG_SOFTMAX":
        state.finish(op, FloatSoftmax(logarithm=True), [state.real(op)])
        return
    beta = op.real_option(0, 0.0)
    if beta < 0:
        raise ModelError(f"{op.label} has the negative beta {beta}")
    state.finish(op, FloatSoftmax(beta=beta), [state.real(op)])


def reduce(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate the reductions; the mean of an image is a pooling."""
    shape = state.operand(op, 0).shape
    axes = state.axes(op, 1, len(shape))
    if op.op_type == "MEAN" and len(shape) == 4 and axes == (1, 2):
        pool = FloatAveragePool2d(kernel=(shape[1], shape[2]), stride=(1, 1))
        state.finish_copy(op, state.add(op, pool, [state.real(op)], "pool"))
        return
    operator = FloatReduce(function=REDUCTIONS[op.op_type], axes=axes)
    state.finish_copy(op, state.add(op, operator, [state.real(op)], "reduced"))


def l2_normalization(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate L2_NORMALIZATION along the last axis; a norm of less than 1e-6 counts as that."""
    x, last = state.real(op), len(state.operand(op, 0).shape) - 1
    squares = state.add(op, MULTIPLY, [x, x], "squares")
    total = FloatReduce(function=Reduction.SUM, axes=(last,))
    norm = state.add(op, total, [squares], "total")
    norm = state.add(op, FloatUnary(function=Function.SQRT), [norm], "norm")
    norm = state.add(op, FloatClip(low=1e-6, high=math.inf), [norm], "positive")
    operator = FloatBinary(function=BinaryFunction.DIVIDE)
    state.finish(op, operator, [x, norm], op.option(0, "<b"))


def resize_nearest_neighbor(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate RESIZE_NEAREST_NEIGHBOR."""
    corners, centres = op.option(0, "<b"), op.option(1, "<b")
    rounding = Rounding.ROUND_PREFER_CEIL if corners else Rounding.FLOOR
    coordinates = Coordinates.TF_HALF_PIXEL_FOR_NN if centres else Coordinates.ASYMMETRIC
    axes = _resized(state, op, Coordinates.ALIGN_CORNERS if corners else coordinates)
    x, indices = state.real(op), [axis.nearest(rounding) for axis in axes]
    factors = [max(axis.result // axis.size, 1) for axis in axes]
    if all(
        np.array_equal(taken, np.repeat(np.arange(axis.size), factor))
        for taken, axis, factor in zip(indices, axes, factors, strict=True)
    ):
        state.finish(op, Upsample2d(factor=(factors[0], factors[1])), [x])
        return
    for number, taken in enumerate(indices, start=1):
        x = state.taken(op, x, taken, number, f"axis{number}")
    state.finish_copy(op, x)


def resize_bilinear(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate RESIZE_BILINEAR."""
    corners, centres = op.option(2, "<b"), op.option(3, "<b")
    coordinates = Coordinates.HALF_PIXEL if centres else Coordinates.ASYMMETRIC
    axes = _resized(state, op, Coordinates.ALIGN_CORNERS if corners else coordinates)
    x = state.real(op)
    for number, axis in enumerate(axes, start=1):
        indices, weights = axis.taps(cubic=None, antialias=False, exclude_outside=False)
        operands = [
            x,
            state.builder.add_constant(f"{op.name}/entries{number}", indices),
            state.builder.add_constant(f"{op.name}/weights{number}", weights),
        ]
        x = state.add(op, FloatInterpolate(axis=number), operands, f"axis{number}")
    state.finish(op, Reshape(shape=state.result(op).shape), [x])


def _resized(
    state: TfliteTranslation, op: TfliteOperator, coordinates: Coordinates
) -> tuple[AxisResize, AxisResize]:
    """Return rows and columns of a resize whose second input is the size of the result."""
    size, result = state.image_size(op), state.integers(op, 1)
    if len(result) != 2 or min(*size, *result) < 1:
        raise ModelError(f"{op.label} resizes {size} to {result}")
    rows, columns = (
        AxisResize(size=n, result=m, scale=m / n, coordinates=coordinates)
        for n, m in zip(size, result, strict=True)
    )
    if not (rows.is_possible and columns.is_possible):
        raise ModelError(f"{op.label} resizes {size} to {result}")
    return rows, columns
