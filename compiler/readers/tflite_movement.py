"""Translation of the TFLite operators that move or select values."""

import math

import numpy as np

from tilewright.compiler.operators import (
    Concat,
    Expand,
    Gather,
    Pad,
    Reshape,
    Slice,
    Transpose,
)
from tilewright.compiler.readers.tflite_file import TfliteOperator
from tilewright.compiler.readers.tflite_translation import TfliteTranslation
from tilewright.isa.errors import ModelError


def reshape(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate RESHAPE, SQUEEZE and EXPAND_DIMS: the declared output has the shape."""
    state.finish(op, Reshape(shape=state.result(op).shape), [state.real(op)])


def transpose(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate TRANSPOSE."""
    state.finish(op, Transpose(permutation=state.integers(op, 1)), [state.real(op)])


def concatenation(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate CONCATENATION."""
    axes = len(state.operand(op, 0).shape)
    axis = op.option(0)
    if not -axes <= axis < axes:
        raise ModelError(f"{op.label} names axis {axis} of {axes}")
    operands = [state.real(op, position) for position in range(len(op.inputs))]
    state.finish(op, Concat(axis=axis % axes), operands, op.option(1, "<b"))


def pad(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate PAD and PADV2; the value of PADV2 is quantised as its input is."""
    widths = state.integers(op, 1)
    if len(widths) != 2 * len(state.operand(op, 0).shape):
        raise ModelError(f"{op.label} has {len(widths)} padding widths")
    value = 0.0
    if state.has_operand(op, 2):
        tensor = state.operand(op, 2)
        if tensor.constant is None or tensor.constant.size != 1 or tensor.scale.size > 1:
            raise ModelError(f"{op.label} pads with what is not one constant")
        steps = tensor.constant.reshape(-1)[0]
        value = float(steps)
        if tensor.scale.size:
            value = float((int(steps) - int(tensor.zero_point[0])) * tensor.scale[0])
    if not math.isfinite(value):
        raise ModelError(f"{op.label} pads with {value}")
    operator = Pad(before=widths[::2], after=widths[1::2], value=value)
    state.finish(op, operator, [state.real(op)])


def slice_(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate SLICE; a size of -1 reaches to the end."""
    shape = state.operand(op, 0).shape
    begin, size = state.integers(op, 1), state.integers(op, 2)
    if not len(begin) == len(size) == len(shape):
        raise ModelError(f"{op.label} needs a begin and a size per axis")
    end = tuple(
        length if extent == -1 else start + extent
        for start, extent, length in zip(begin, size, shape, strict=True)
    )
    operator = Slice(begin=begin, end=end, stride=(1,) * len(shape))
    state.finish(op, operator, [state.real(op)])


def strided_slice(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate STRIDED_SLICE; fields 0 and 1 are the masks of bounds that do not count."""
    shape = state.operand(op, 0).shape
    bounds = [state.integers(op, position) for position in (1, 2, 3)]
    if any(len(values) != len(shape) for values in bounds):
        raise ModelError(f"{op.label} needs a begin, an end and a stride per axis")
    if any(op.option(field) for field in (2, 3)) or min(bounds[2], default=1) < 1:
        raise ModelError(f"{op.label} has an ellipsis, a new axis or runs backwards")
    ranges = []
    for axis, (start, stop, step) in enumerate(zip(*bounds, strict=True)):
        first = None if op.option(0) >> axis & 1 else start
        last = None if op.option(1) >> axis & 1 else stop
        if op.option(4) >> axis & 1:
            first, last = start, start + 1 if start != -1 else None
        ranges.append(slice(first, last, step).indices(shape[axis]))
    begin, end, stride = (tuple(values) for values in zip(*ranges, strict=True))
    part = state.add(op, Slice(begin=begin, end=end, stride=stride), [state.real(op)], "part")
    state.finish(op, Reshape(shape=state.result(op).shape), [part])


def split(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate SPLIT, (axis, x), into equal parts, and SPLIT_V, (x, sizes, axis)."""
    equal = op.op_type == "SPLIT"
    source = 1 if equal else 0
    shape = state.operand(op, source).shape
    (axis,) = state.axes(op, 0 if equal else 2, len(shape)) or (0,)
    parts = len(op.outputs)
    sizes = (shape[axis] // max(parts, 1),) * parts if equal else state.integers(op, 1)
    if sum(sizes) != shape[axis] or len(sizes) != parts or min(sizes, default=0) < 1:
        raise ModelError(f"{op.label} splits {shape[axis]} entries into {sizes}")
    start = 0
    for index, size in enumerate(sizes):
        begin = tuple(start if other == axis else 0 for other in range(len(shape)))
        end = tuple(start + size if other == axis else n for other, n in enumerate(shape))
        operator = Slice(begin=begin, end=end, stride=(1,) * len(shape))
        state.finish(op, operator, [state.real(op, source)], output=index)
        start += size


def pack(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate PACK: tensors of one shape along a new axis."""
    result = state.result(op).shape
    axis = state.axis(op, op.option(1), len(result))
    single = tuple(1 if other == axis else size for other, size in enumerate(result))
    parts = [
        state.add(op, Reshape(shape=single), [state.real(op, position)], f"part{position}")
        for position in range(len(op.inputs))
    ]
    state.finish(op, Concat(axis=axis), parts)


def unpack(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate UNPACK: one output per entry of an axis, which is dropped."""
    shape = state.operand(op, 0).shape
    axis = state.axis(op, op.option(1), len(shape))
    if len(op.outputs) != shape[axis]:
        raise ModelError(f"{op.label} makes {len(op.outputs)} tensors of {shape[axis]} entries")
    for index in range(len(op.outputs)):
        begin = tuple(index if other == axis else 0 for other in range(len(shape)))
        end = tuple(index + 1 if other == axis else n for other, n in enumerate(shape))
        entry = Slice(begin=begin, end=end, stride=(1,) * len(shape))
        part = state.add(op, entry, [state.real(op)], f"entry{index}")
        state.finish(op, Reshape(shape=state.result(op, index).shape), [part], output=index)


def tile(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate TILE: each axis gets one of its own to repeat along, in front of it."""
    shape, repeats = state.operand(op, 0).shape, state.integers(op, 1)
    if len(repeats) != len(shape) or min(repeats, default=1) < 1:
        raise ModelError(f"{op.label} repeats {list(shape)} {repeats} times")
    single = tuple(n for size in shape for n in (1, size))
    split_axes = state.add(op, Reshape(shape=single), [state.real(op)], "split")
    target = tuple(n for pair in zip(repeats, shape, strict=True) for n in pair)
    repeated = state.add(op, Expand(shape=target), [split_axes], "repeated")
    state.finish_copy(op, repeated)


def broadcast_to(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate BROADCAST_TO: the declared output has the shape."""
    state.finish(op, Expand(shape=state.result(op).shape), [state.real(op)])


def gather(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate GATHER."""
    if op.option(1):
        raise ModelError(f"{op.label} gathers in batches, which is not supported")
    axis = state.axis(op, op.option(0), len(state.operand(op, 0).shape))
    state.finish(op, Gather(axis=axis), [state.real(op), state.plain(op, 1)])


def mirror_pad(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate MIRROR_PAD: mode 0 leaves the border out, mode 1 repeats it."""
    shape, widths = state.operand(op, 0).shape, state.integers(op, 1)
    mode = op.option(0, "<b")
    if len(widths) != 2 * len(shape) or mode not in (0, 1) or min(widths, default=0) < 0:
        raise ModelError(f"{op.label} has padding {widths} in mode {mode}")
    x = state.real(op)
    for axis, size in enumerate(shape):
        before, after = widths[2 * axis], widths[2 * axis + 1]
        if max(before, after) > size - 1 + mode:
            raise ModelError(f"{op.label} mirrors {max(before, after)} of {size} entries")
        if before or after:
            positions = np.arange(-before, size + after)
            positions = np.where(positions < 0, -positions - mode, positions)
            last = size - 1
            indices = np.where(positions > last, 2 * last - positions + mode, positions)
            x = state.taken(op, x, indices.astype(np.int32), axis, f"axis{axis}")
    state.finish_copy(op, x)


def depth_to_space(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate DEPTH_TO_SPACE: channels become blocks of pixels."""
    batch, height, width, channels = state.image(op)
    block = op.option(0)
    if block < 1 or channels % (block * block):
        raise ModelError(f"{op.label} makes blocks of {block} from {channels} channels")
    split_shape = (batch, height, width, block, block, channels // (block * block))
    parts = state.add(op, Reshape(shape=split_shape), [state.real(op)], "split")
    turned = state.add(op, Transpose(permutation=(0, 1, 3, 2, 4, 5)), [parts], "turned")
    state.finish_copy(op, turned)


def space_to_depth(state: TfliteTranslation, op: TfliteOperator) -> None:
    """Translate SPACE_TO_DEPTH: blocks of pixels become channels."""
    batch, height, width, channels = state.image(op)
    block = op.option(0)
    if block < 1 or height % block or width % block:
        raise ModelError(f"{op.label} cannot cut {height} x {width} into blocks of {block}")
    split_shape = (batch, height // block, block, width // block, block, channels)
    parts = state.add(op, Reshape(shape=split_shape), [state.real(op)], "split")
    turned = state.add(op, Transpose(permutation=(0, 1, 3, 2, 4, 5)), [parts], "turned")
    state.finish_copy(op, turned)
