"""Translation of ONNX operators that move or select values."""

import math
from collections.abc import Iterator

import numpy as np

from tilewright.compiler.graph import Array
from tilewright.compiler.operators import Concat, Expand, Gather, Pad, Reshape, Slice, Transpose
from tilewright.compiler.readers.onnx_file import OnnxNode
from tilewright.compiler.readers.onnx_translation import OnnxTranslation
from tilewright.isa.errors import ModelError


def identity(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Identity and Dropout, which do nothing in inference."""
    if state.has_input(node, 2) and state.constant(node, 2).any():
        raise ModelError(f"{node.label} drops values, as in training")
    name = node.inputs[0] if node.inputs else ""
    if name in state.constants:
        state.set_constant(node, state.constants[name])
    else:
        state.finish_copy(node, state.tensor(node))


def reshape(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Reshape: 0 keeps a size, -1 stands for the rest."""
    shape = state.shape(node)
    target = list(state.integers(node, 1))
    if not node.integer("allowzero", 0):
        if any(size == 0 and axis >= len(shape) for axis, size in enumerate(target)):
            raise ModelError(f"{node.label} keeps the size of an axis that its input lacks")
        target = [shape[axis] if size == 0 else size for axis, size in enumerate(target)]
    if target.count(-1) == 1:
        known = -math.prod(target)
        target[target.index(-1)] = math.prod(shape) // known if known else 0
    _finish_reshape(state, node, tuple(target))


def flatten(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Flatten."""
    shape = state.shape(node)
    axis = node.integer("axis", 1)
    axis = axis if axis == len(shape) else state.axis(node, axis, len(shape))
    _finish_reshape(state, node, (math.prod(shape[:axis]), math.prod(shape[axis:])))


def squeeze(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Squeeze; the axes are an attribute or, from opset 13 on, an input."""
    shape = state.shape(node)
    default = tuple(axis for axis, size in enumerate(shape) if size == 1)
    axes = {state.axis(node, axis, len(shape)) for axis in _axes(state, node, default)}
    if any(shape[axis] != 1 for axis in axes):
        raise ModelError(f"{node.label} removes an axis that is longer than 1")
    _finish_reshape(state, node, tuple(s for axis, s in enumerate(shape) if axis not in axes))


def unsqueeze(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Unsqueeze; the axes are an attribute or, from opset 13 on, an input."""
    shape = list(state.shape(node))
    axes = _axes(state, node, ())
    for axis in sorted(state.axis(node, axis, len(shape) + len(axes)) for axis in axes):
        shape.insert(axis, 1)
    _finish_reshape(state, node, tuple(shape))


def transpose(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Transpose."""
    default = tuple(reversed(range(len(state.shape(node)))))
    permutation = node.integers("perm", default)
    state.finish(node, Transpose(permutation=permutation), [state.tensor(node)])


def concat(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Concat."""
    axis = state.axis(node, node.integer("axis", 0), len(state.shape(node)))
    operands = [state.tensor(node, index) for index in range(len(node.inputs))]
    state.finish(node, Concat(axis=axis), operands)


def qlinear_concat(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate com.microsoft QLinearConcat: (s, z, then x, s, z per input)."""
    if len(node.inputs) < 5 or len(node.inputs) % 3 != 2:
        raise ModelError(f"{node.label} has {len(node.inputs)} inputs, not 2 and 3 per tensor")
    starts = range(2, len(node.inputs), 3)
    operands = [state.dequantized(node, start, f"x{start // 3}") for start in starts]
    axis = state.axis(node, node.integer("axis", 0), len(state.shape(node, 2)))
    state.finish_quantized(node, Concat(axis=axis), operands, (0, 1))


def split(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Split: one slice per output; the sizes are an attribute before opset 13."""
    shape = state.shape(node)
    axis = state.axis(node, node.integer("axis", 0), len(shape))
    outputs = len(node.outputs)
    if state.has_input(node, 1):
        sizes = state.integers(node, 1)
    elif "split" in node.attributes:
        sizes = node.integers("split", ())
    else:
        share = -(-shape[axis] // max(outputs, 1))
        sizes = tuple(min(share, shape[axis] - share * index) for index in range(outputs))
    if len(sizes) != outputs or sum(sizes) != shape[axis] or min(sizes, default=0) < 1:
        raise ModelError(f"{node.label} splits {shape[axis]} entries into {sizes}")
    start = 0
    for index, size in enumerate(sizes):
        begin = tuple(start if other == axis else 0 for other in range(len(shape)))
        end = tuple(start + size if other == axis else n for other, n in enumerate(shape))
        op = Slice(begin=begin, end=end, stride=(1,) * len(shape))
        if node.outputs[index]:
            state.finish_output(node, index, op, [state.tensor(node)])
        start += size


def slice_(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Slice; its bounds are attributes or, from opset 10 on, inputs."""
    shape = state.shape(node)
    begin, end, stride = [0] * len(shape), list(shape), [1] * len(shape)
    backwards: dict[int, range] = {}
    for start, stop, axis, step in _bounds(state, node):
        position = state.axis(node, axis, len(shape))
        if step == 0:
            raise ModelError(f"{node.label} has the step 0")
        indices = range(shape[position])[slice(start, stop, step)]
        if step < 0:
            backwards[position] = indices
        else:
            begin[position], end[position], stride[position] = indices.start, indices.stop, step
    x = state.tensor(node)
    for axis, indices in backwards.items():
        x = state.taken(node, x, np.array(indices, dtype=np.int32), axis, f"axis{axis}")
        end[axis] = len(indices)
    state.finish(node, Slice(begin=tuple(begin), end=tuple(end), stride=tuple(stride)), [x])


def _bounds(state: OnnxTranslation, node: OnnxNode) -> Iterator[tuple[int, int, int, int]]:
    """Return start, end, axis and step of each sliced axis."""
    if state.opset < 10:
        starts, ends = node.integers("starts", ()), node.integers("ends", ())
        axes = node.integers("axes", tuple(range(len(starts))))
        steps: tuple[int, ...] = (1,) * len(starts)
    else:
        starts, ends = state.integers(node, 1), state.integers(node, 2)
        default = tuple(range(len(starts)))
        axes = state.integers(node, 3) if state.has_input(node, 3) else default
        steps = state.integers(node, 4) if state.has_input(node, 4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ModelError(f"{node.label} has starts, ends, axes and steps of different lengths")
    return zip(starts, ends, axes, steps, strict=True)


def pad(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Pad; widths are an attribute before opset 11."""
    rank = len(state.shape(node))
    if state.opset < 11:
        widths, value = node.integers("pads", ()), node.real("value", 0.0)
    else:
        widths, value = state.integers(node, 1), _pad_value(state, node)
    axes = tuple(range(rank))
    if state.has_input(node, 3):
        axes = tuple(state.axis(node, axis, rank) for axis in state.integers(node, 3))
    if len(widths) != 2 * len(axes):
        raise ModelError(f"{node.label} needs {2 * len(axes)} padding widths, not {len(widths)}")
    before, after = [0] * rank, [0] * rank
    for index, axis in enumerate(axes):
        before[axis], after[axis] = widths[index], widths[index + len(axes)]
    mode = node.text("mode", "constant")
    x = _cropped(state, node, before, after)
    if mode == "constant":
        positive = [[max(width, 0) for width in widths] for widths in (before, after)]
        op = Pad(before=tuple(positive[0]), after=tuple(positive[1]), value=value)
        state.finish(node, op, [x])
        return
    for axis in range(rank):
        size = state.builder.tensor(x).shape[axis]
        indices = _mirrored(node, mode, size, max(before[axis], 0), max(after[axis], 0))
        if indices.size != size:
            x = state.taken(node, x, indices, axis, f"axis{axis}")
    state.finish_copy(node, x)


def _pad_value(state: OnnxTranslation, node: OnnxNode) -> float:
    if not state.has_input(node, 2):
        return 0.0
    values = state.constant(node, 2)
    if values.size != 1 or not np.isfinite(values).all():
        raise ModelError(f"{node.label} pads with what is not one finite number")
    return float(values.reshape(-1)[0])


def _cropped(state: OnnxTranslation, node: OnnxNode, before: list[int], after: list[int]) -> str:
    """Return the input without what negative widths cut off."""
    x, shape = state.tensor(node), state.shape(node)
    begin = tuple(max(-width, 0) for width in before)
    end = tuple(size + min(width, 0) for size, width in zip(shape, after, strict=True))
    if begin == (0,) * len(shape) and end == shape:
        return x
    return state.add(node, Slice(begin=begin, end=end, stride=(1,) * len(shape)), [x], "cropped")


def _mirrored(node: OnnxNode, mode: str, size: int, before: int, after: int) -> Array:
    """Return which entry of an axis each entry of the padded axis repeats."""
    positions = np.arange(-before, size + after)
    if mode == "edge":
        indices = np.clip(positions, 0, size - 1)
    elif mode == "wrap":
        indices = positions % size
    elif mode == "reflect" and (size > 1 or not before + after):
        period = max(2 * (size - 1), 1)
        folded = np.abs(positions) % period
        indices = np.minimum(folded, period - folded) if size > 1 else positions
    else:
        raise ModelError(f"{node.label} is not supported in mode {mode!r} on {size} entries")
    return indices.astype(np.int32)


def gather(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Gather; one constant index is a slice."""
    shape = state.shape(node)
    axis = state.axis(node, node.integer("axis", 0), len(shape))
    x = state.tensor(node)
    if node.inputs[1:2] and node.inputs[1] in state.constants:
        values = state.constants[node.inputs[1]]
        size = shape[axis]
        if values.dtype.kind not in "iu" or ((values < -size) | (values >= size)).any():
            raise ModelError(f"{node.label} takes entries that are not among the {size}")
        if values.ndim == 0:
            index = int(values) % size
            begin = tuple(index if other == axis else 0 for other in range(len(shape)))
            end = tuple(index + 1 if other == axis else n for other, n in enumerate(shape))
            one = Slice(begin=begin, end=end, stride=(1,) * len(shape))
            part = state.add(node, one, [x], "entry")
            state.finish(node, Reshape(shape=(*shape[:axis], *shape[axis + 1 :])), [part])
            return
        indices = state.builder.add_constant(f"{node.name}/indices", values.astype(np.int32))
        state.finish(node, Gather(axis=axis), [x, indices])
        return
    state.finish(node, Gather(axis=axis), [x, state.tensor(node, 1)])


def expand(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Expand: to what the tensor and the given shape broadcast to."""
    shape = state.shape(node)
    try:
        target = np.broadcast_shapes(shape, state.integers(node, 1))
    except ValueError as error:
        raise ModelError(f"{node.label} cannot expand {list(shape)}") from error
    state.finish(node, Expand(shape=target), [state.tensor(node)])


def tile(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Tile: each axis gets one of its own to repeat along, in front of it."""
    shape, repeats = state.shape(node), state.integers(node, 1)
    if len(repeats) != len(shape) or min(repeats, default=1) < 0:
        raise ModelError(f"{node.label} repeats {list(shape)} {repeats} times")
    pairs = list(zip(repeats, shape, strict=True))
    single = tuple(size for _, size in pairs for size in (1, size))
    split = state.add(node, Reshape(shape=single), [state.tensor(node)], "split")
    target = tuple(size for pair in pairs for size in pair)
    repeated = state.add(node, Expand(shape=target), [split], "repeated")
    state.finish(node, Reshape(shape=tuple(count * size for count, size in pairs)), [repeated])


def depth_to_space(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate DepthToSpace: channels become blocks of pixels."""
    batch, channels, height, width = _image(state, node)
    block, mode = node.integer("blocksize", 0), node.text("mode", "DCR")
    if block < 1 or channels % (block * block) or mode not in ("DCR", "CRD"):
        raise ModelError(f"{node.label} makes blocks of {block} from {channels} channels")
    depth = channels // (block * block)
    inner = (block, block, depth) if mode == "DCR" else (depth, block, block)
    order = (0, 1, 3, 2, 4, 5) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    split = state.add(
        node, Reshape(shape=(batch, height, width, *inner)), [state.channels_last(node)], "split"
    )
    turned = state.add(node, Transpose(permutation=order), [split], "turned")
    op = Reshape(shape=(batch, height * block, width * block, depth))
    state.finish_image(node, op, [turned])


def space_to_depth(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate SpaceToDepth: blocks of pixels become channels."""
    batch, channels, height, width = _image(state, node)
    block, mode = node.integer("blocksize", 0), node.text("mode", "DCR")
    if block < 1 or height % block or width % block or mode not in ("DCR", "CRD"):
        raise ModelError(f"{node.label} cannot cut {height} x {width} into blocks of {block}")
    rows, columns = height // block, width // block
    split = state.add(
        node,
        Reshape(shape=(batch, rows, block, columns, block, channels)),
        [state.channels_last(node)],
        "split",
    )
    order = (0, 1, 3, 2, 4, 5) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    turned = state.add(node, Transpose(permutation=order), [split], "turned")
    op = Reshape(shape=(batch, rows, columns, block * block * channels))
    state.finish_image(node, op, [turned])


def _image(state: OnnxTranslation, node: OnnxNode) -> tuple[int, int, int, int]:
    shape = state.shape(node)
    if len(shape) != 4:
        raise ModelError(f"{node.label} takes images NCHW only")
    return shape[0], shape[1], shape[2], shape[3]


def constant(state: OnnxTranslation, node: OnnxNode) -> None:
    """Translate Constant."""
    if "value" in node.attributes:
        value = node.attributes["value"]
        if isinstance(value, np.ndarray):
            state.set_constant(node, value)
            return
    if "value_ints" in node.attributes:
        state.set_constant(node, np.array(node.integers("value_ints", ()), dtype=np.int64))
    elif "value_int" in node.attributes:
        state.set_constant(node, np.array(node.integer("value_int", 0), dtype=np.int64))
    elif "value_floats" in node.attributes:
        values = node.attributes["value_floats"]
        state.set_constant(node, np.array(values, dtype=np.float32).reshape(-1))
    elif "value_float" in node.attributes:
        state.set_constant(node, np.array(node.real("value_float", 0.0), dtype=np.float32))
    else:
        raise ModelError(f"{node.label} states its value in a way that is not supported")


def _axes(state: OnnxTranslation, node: OnnxNode, default: tuple[int, ...]) -> tuple[int, ...]:
    if state.has_input(node, 1):
        return state.integers(node, 1)
    return node.integers("axes", default)


def _finish_reshape(state: OnnxTranslation, node: OnnxNode, shape: tuple[int, ...]) -> None:
    state.finish(node, Reshape(shape=shape), [state.tensor(node)])
