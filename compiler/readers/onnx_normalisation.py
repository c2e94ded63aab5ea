"""Translation of ONNX operators along axes: softmax, reductions and normalisations."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.compiler.operators import (
    BinaryFunction,
    FloatAveragePool2d,
    FloatBinary,
    FloatClip,
    FloatLayerNorm,
    FloatReduce,
    FloatSoftmax,
    FloatUnary,
    Function,
    Reduction,
    Reshape,
    Transpose,
)
from tilewright.compiler.readers.onnx_file import OnnxNode
from tilewright.compiler.readers.onnx_translation import OnnxTranslation
from tilewright.isa.errors import ModelError

ADD = FloatBinary(function=BinaryFunction.ADD)
SUBTRACT = FloatBinary(function=BinaryFunction.SUBTRACT)
MULTIPLY = FloatBinary(function=BinaryFunction.MULTIPLY)
DIVIDE = FloatBinary(function=BinaryFunction.DIVIDE)

#: What happens to each element before a reduction, the reduction, and what to its result.
REDUCTIONS: Mapping[str, tuple[Function | None, Reduction, Function | None]] = {
    "ReduceL1": (Function.ABSOLUTE, Reduction.SUM, None),
    "ReduceLogSum": (None, Reduction.SUM, Function.LOG),
    "ReduceMax": (None, Reduction.MAXIMUM, None),
    "ReduceMean": (None, Reduction.MEAN, None),
    "ReduceMin": (None, Reduction.MINIMUM, None),
    "ReduceProd": (None, Reduction.PRODUCT, None),
    "ReduceSum": (None, Reduction.SUM, None),
}


def softmax(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Softmax and LogSoftmax; before opset 13 they cover all axes from `axis` on."""
    shape = state.shape(node)
    axis = state.axis(node, node.integer("axis", 1 if state.opset < 13 else -1), len(shape))
    op = FloatSoftmax(logarithm=node.op_type == "LogSoftmax")
    x = state.tensor(node)
    if state.opset < 13 and math.prod(shape[axis + 1 :]) != 1:
        matrix = (math.prod(shape[:axis]), math.prod(shape[axis:]))
        rows = state.add(node, Reshape(shape=matrix), [x], "rows")
        state.finish(node, Reshape(shape=shape), [state.add(node, op, [rows])])
    elif axis == len(shape) - 1:
        state.finish(node, op, [x])
    else:
        order = (*(other for other in range(len(shape)) if other != axis), axis)
        back = tuple(int(position) for position in np.argsort(order))
        moved = state.add(node, Transpose(permutation=order), [x], "axis_last")
        state.finish(node, Transpose(permutation=back), [state.add(node, op, [moved])])


def reduce(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate the reductions; the mean of an image is a pooling."""
    shape = state.shape(node)
    axes = _reduced_axes(state, node, len(shape))
    if axes is None:
        state.finish_copy(node, state.tensor(node))
        return
    if node.op_type == "ReduceMean" and len(shape) == 4 and axes == (2, 3):
        _spatial_mean(state, node)
        return
    x = state.tensor(node)
    if node.op_type == "ReduceLogSumExp":
        _finish_reduced(state, node, _log_sum_exp(state, node, axes), axes)
        return
    before, reduction, after = _steps(node)
    if before is not None:
        x = state.add(node, FloatUnary(function=before), [x], "before")
    elif node.op_type in ("ReduceL2", "ReduceSumSquare"):
        x = state.add(node, MULTIPLY, [x, x], "squares")
    x = state.add(node, FloatReduce(function=reduction, axes=axes), [x], "reduced")
    if after is not None:
        x = state.add(node, FloatUnary(function=after), [x], "after")
    _finish_reduced(state, node, x, axes)


def _log_sum_exp(state: OnnxTranslation, node: OnnxNode, axes: tuple[int, ...]) -> str:
    """Return ``log(sum(exp(x - peak))) + peak``, which does not overflow."""
    x = state.tensor(node)
    peak = state.add(node, FloatReduce(function=Reduction.MAXIMUM, axes=axes), [x], "peak")
    below = state.add(node, SUBTRACT, [x, peak], "below")
    powers = state.add(node, FloatUnary(function=Function.EXP), [below], "powers")
    total = state.add(node, FloatReduce(function=Reduction.SUM, axes=axes), [powers], "total")
    logarithm = state.add(node, FloatUnary(function=Function.LOG), [total], "logarithm")
    return state.add(node, ADD, [logarithm, peak], "result")


def _finish_reduced(state: OnnxTranslation, node: OnnxNode, x: str, axes: tuple[int, ...]) -> None:
    """Let `x`, whose reduced axes have size 1, be the output, without them where it says so."""
    shape = state.builder.tensor(x).shape
    dropped = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    state.finish(node, Reshape(shape=shape if node.integer("keepdims", 1) else dropped), [x])


def _steps(node: OnnxNode) -> tuple[Function | None, Reduction, Function | None]:
    match node.op_type:
        case "ReduceL2":
            return None, Reduction.SUM, Function.SQRT
        case "ReduceSumSquare":
            return None, Reduction.SUM, None
        case kind:
            return REDUCTIONS[kind]


def _reduced_axes(state: OnnxTranslation, node: OnnxNode, rank: int) -> tuple[int, ...] | None:
    """Return the axes to reduce, ascending; None where nothing is to be done."""
    axes = state.integers(node, 1) if state.has_input(node, 1) else node.integers("axes", ())
    if not axes:
        return None if node.integer("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({state.axis(node, axis, rank) for axis in axes}))


def _spatial_mean(state: OnnxTranslation, node: OnnxNode) -> None:
    op = FloatAveragePool2d(kernel=state.image_size(node), stride=(1, 1))
    if node.integer("keepdims", 1):
        state.finish_image(node, op, [state.channels_last(node)])
        return
    mean = state.add(node, op, [state.channels_last(node)])
    batch, channels = state.shape(node)[:2]
    state.finish(node, Reshape(shape=(batch, channels)), [mean])


def batch_normalization(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate BatchNormalization of constants: one factor and one addend per channel."""
    if node.integer("training_mode", 0) or not node.integer("is_test", 1) or len(node.outputs) > 1:
        raise ModelError(f"{node.label} computes statistics, as in training")
    epsilon = node.real("epsilon", 1e-5)
    gain, offset, mean, variance = (
        state.constant(node, index).astype(np.float64) for index in range(1, 5)
    )
    channels = state.shape(node)[1:2]
    if any(values.shape != channels for values in (gain, offset, mean, variance)):
        raise ModelError(f"{node.label} needs one number of each kind per channel")
    with np.errstate(all="ignore"):
        factor = gain / np.sqrt(variance + epsilon)
        addend = offset - mean * factor
    if not np.isfinite(factor).all() or not np.isfinite(addend).all():
        raise ModelError(f"{node.label} divides by a variance that is not positive")
    scaled = state.add(
        node, MULTIPLY, [state.tensor(node), _per_channel(state, node, factor, "factor")], "scaled"
    )
    state.finish(node, ADD, [scaled, _per_channel(state, node, addend, "addend")])


def layer_normalization(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate LayerNormalization: (x, gain, offset), over all axes from `axis` on.

    Its further outputs are the mean and the reciprocal of the deviation.
    """
    shape = state.shape(node)
    axis = state.axis(node, node.integer("axis", -1), len(shape))
    count = math.prod(shape[axis:])
    epsilon = node.real("epsilon", 1e-5)
    parameters = [
        _vector(state, node, 1, shape[axis:], 1.0),
        _vector(state, node, 2, shape[axis:], 0.0),
    ]
    x = state.tensor(node)
    _statistics(state, node, tuple(range(axis, len(shape))), epsilon)
    if axis == len(shape) - 1:
        state.finish_output(node, 0, FloatLayerNorm(epsilon=epsilon), [x, *parameters])
        return
    rows = state.add(node, Reshape(shape=(*shape[:axis], count)), [x], "rows")
    normal = state.add(node, FloatLayerNorm(epsilon=epsilon), [rows, *parameters])
    state.finish_output(node, 0, Reshape(shape=shape), [normal])


def _statistics(
    state: OnnxTranslation, node: OnnxNode, axes: tuple[int, ...], epsilon: float
) -> None:
    """Add mean and reciprocal deviation where a layer normalisation hands them out."""
    if not any(node.outputs[1:]):
        return
    x, reduction = state.tensor(node), FloatReduce(function=Reduction.MEAN, axes=axes)
    mean = state.add(node, reduction, [x], "mean")
    centred = state.add(node, SUBTRACT, [x, mean], "centred")
    root = _deviation(state, node, centred, axes, epsilon)
    copy = Reshape(shape=state.builder.tensor(mean).shape)
    if node.outputs[1]:
        state.finish_output(node, 1, copy, [mean])
    if len(node.outputs) > 2 and node.outputs[2]:
        state.finish_output(node, 2, FloatUnary(function=Function.RECIPROCAL), [root])


def rms_normalization(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate RMSNormalization: ``x / sqrt(mean(x * x) + epsilon) * gain``."""
    _require_one_output(node)
    shape = state.shape(node)
    axis = state.axis(node, node.integer("axis", -1), len(shape))
    axes = tuple(range(axis, len(shape)))
    x = state.tensor(node)
    normal = _divided(state, node, x, x, axes, node.real("epsilon", 1e-5))
    state.finish(node, MULTIPLY, [normal, state.tensor(node, 1)])


def instance_normalization(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate InstanceNormalization: (x, gain, offset), over all axes behind the channels."""
    rank = len(state.shape(node))
    normal = _normalised(state, node, state.tensor(node), tuple(range(2, rank)))
    _finish_affine(state, node, normal)


def group_normalization(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate GroupNormalization; from opset 21 on, gain and offset are per channel."""
    shape = state.shape(node)
    groups = node.integer("num_groups", 1)
    if len(shape) < 2 or groups < 1 or shape[1] % groups or state.opset < 21:
        raise ModelError(f"{node.label} has {groups} groups for {list(shape)}")
    split = (shape[0], groups, math.prod(shape[1:]) // groups)
    grouped = state.add(node, Reshape(shape=split), [state.tensor(node)], "groups")
    normal = _normalised(state, node, grouped, (2,))
    _finish_affine(state, node, state.add(node, Reshape(shape=shape), [normal], "whole"))


def lp_normalization(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate LpNormalization: ``x / norm(x)`` along an axis."""
    axis = state.axis(node, node.integer("axis", -1), len(state.shape(node)))
    x, order = state.tensor(node), node.integer("p", 2)
    if order not in (1, 2):
        raise ModelError(f"{node.label} has the norm {order}; 1 and 2 are supported")
    if order == 1:
        sizes = state.add(node, FloatUnary(function=Function.ABSOLUTE), [x], "sizes")
    else:
        sizes = state.add(node, MULTIPLY, [x, x], "sizes")
    norm = state.add(node, FloatReduce(function=Reduction.SUM, axes=(axis,)), [sizes], "sum")
    if order == 2:
        norm = state.add(node, FloatUnary(function=Function.SQRT), [norm], "norm")
    # What is all 0 has no norm and stays 0.
    positive = FloatClip(low=float(np.finfo(np.float32).tiny), high=math.inf)
    state.finish(node, DIVIDE, [x, state.add(node, positive, [norm], "positive")])


def lrn(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate LRN: the channels become rows of an image, whose windows are averaged."""
    shape, size = state.shape(node), node.integer("size", 1)
    if len(shape) < 2 or size < 1:
        raise ModelError(f"{node.label} has windows of {size} channels for {list(shape)}")
    x = state.tensor(node)
    squares = state.add(node, MULTIPLY, [x, x], "squares")
    column = (shape[0], shape[1], math.prod(shape[2:]), 1)
    image = state.add(node, Reshape(shape=column), [squares], "column")
    above = (size - 1) // 2
    window = FloatAveragePool2d(
        kernel=(size, 1),
        stride=(1, 1),
        pads=(above, 0, size - 1 - above, 0),
        count_include_pad=True,
    )
    mean = state.add(node, window, [image], "mean")
    whole = state.add(node, Reshape(shape=shape), [mean], "whole")
    scaled = state.scaled(node, whole, node.real("alpha", 1e-4), "weighted")
    base = state.add(
        node, ADD, [scaled, state.number(node, node.real("bias", 1.0), "bias")], "base"
    )
    power = state.number(node, node.real("beta", 0.75), "beta")
    divisor = state.add(node, FloatBinary(function=BinaryFunction.POWER), [base, power], "divisor")
    state.finish(node, DIVIDE, [x, divisor])


def _normalised(state: OnnxTranslation, node: OnnxNode, x: str, axes: tuple[int, ...]) -> str:
    """Return ``(x - mean) / sqrt(variance + epsilon)`` over `axes`."""
    mean = state.add(node, FloatReduce(function=Reduction.MEAN, axes=axes), [x], "mean")
    centred = state.add(node, SUBTRACT, [x, mean], "centred")
    return _divided(state, node, centred, centred, axes, node.real("epsilon", 1e-5))


def _divided(
    state: OnnxTranslation,
    node: OnnxNode,
    x: str,
    deviation: str,
    axes: tuple[int, ...],
    epsilon: float,
) -> str:
    """Return ``x / sqrt(mean(deviation**2) + epsilon)``."""
    root = _deviation(state, node, deviation, axes, epsilon)
    return state.add(node, DIVIDE, [x, root], "normal")


def _deviation(
    state: OnnxTranslation, node: OnnxNode, deviation: str, axes: tuple[int, ...], epsilon: float
) -> str:
    """Return ``sqrt(mean(deviation**2) + epsilon)``."""
    squares = state.add(node, MULTIPLY, [deviation, deviation], "squares")
    mean = FloatReduce(function=Reduction.MEAN, axes=axes)
    variance = state.add(node, mean, [squares], "variance")
    raised = state.add(node, ADD, [variance, state.number(node, epsilon, "epsilon")], "raised")
    return state.add(node, FloatUnary(function=Function.SQRT), [raised], "root")


def _finish_affine(state: OnnxTranslation, node: OnnxNode, x: str) -> None:
    """Scale and shift `x` per channel by inputs 1 and 2."""
    rank, channels = len(state.shape(node)), state.shape(node)[1]
    shape = (channels, *(1,) * (rank - 2))
    factor, addend = (
        state.add(node, Reshape(shape=shape), [state.tensor(node, index)], f"channel{index}")
        for index in (1, 2)
    )
    state.finish(node, ADD, [state.add(node, MULTIPLY, [x, factor], "scaled"), addend])


def _per_channel(state: OnnxTranslation, node: OnnxNode, values: np.ndarray, part: str) -> str:
    rank = len(state.shape(node))
    shaped = values.astype(np.float32).reshape(-1, *(1,) * (rank - 2))
    return state.builder.add_constant(f"{node.name}/{part}", shaped)


def _vector(
    state: OnnxTranslation, node: OnnxNode, index: int, shape: Sequence[int], default: float
) -> str:
    """Return input `index` as one row of numbers, or a constant row where it is absent."""
    count = math.prod(shape)
    if not state.has_input(node, index):
        values = np.full(count, default, np.float32)
        return state.builder.add_constant(f"{node.name}/parameter{index}", values)
    if state.shape(node, index) == (count,):
        return state.tensor(node, index)
    return state.add(
        node, Reshape(shape=(count,)), [state.tensor(node, index)], f"parameter{index}"
    )


def _require_one_output(node: OnnxNode) -> None:
    if any(node.outputs[1:]):
        raise ModelError(f"{node.label} hands out its statistics, which is not supported")
