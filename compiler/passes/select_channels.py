"""Pass: strided slices padded with channels become convolutions that select channels.

    Requantize?(Pad(Slice(x)))  ->  Conv2d(x) with 0/1 weights, 1x1, the slice's stride

This is the shortcut of ResNets without projection. The channels added hold the zero point.
"""

from dataclasses import dataclass

import numpy as np

from tilewright.compiler.graph import Graph, Node, Tensor
from tilewright.compiler.operators import INT8_MAX, INT8_MIN, Conv2d, Pad, Requantize, Slice
from tilewright.compiler.passes.rewrite import Rewrite

#: Largest selection matrix: beyond it, moving data costs less than multiplying.
MAX_WEIGHTS = 1 << 20
#: Multiplier and shift of the scale 1.
UNITY = (1 << 23, 23)


@dataclass(frozen=True, slots=True)
class _Selection:
    """A slice, the padding behind it, and a change of scale where there is one."""

    slice_node: Node
    slice: Slice
    pad: Pad
    requantize: Requantize | None


def select_channels(graph: Graph) -> Graph:
    """Return `graph` with padded slices turned into convolutions."""
    producers = {node.outputs[0]: node for node in graph.nodes}
    rewrite = Rewrite(graph)
    for node in graph.nodes:
        selection = _match(node, producers)
        if selection is not None and _is_selection(graph, node, selection):
            _emit(rewrite, node, selection)
        else:
            rewrite.keep(node)
    return rewrite.finish()


def _match(node: Node, producers: dict[str, Node]) -> _Selection | None:
    requantize = node.op if isinstance(node.op, Requantize) else None
    pad = producers.get(node.inputs[0]) if requantize is not None else node
    if pad is None or not isinstance(pad.op, Pad):
        return None
    source = producers.get(pad.inputs[0])
    if source is None or not isinstance(source.op, Slice):
        return None
    return _Selection(source, source.op, pad.op, requantize)


def _is_selection(graph: Graph, node: Node, selection: _Selection) -> bool:
    """Tell whether images are sliced along height and width and padded along channels only."""
    source = graph.tensors[selection.slice_node.inputs[0]]
    cut, pad = selection.slice, selection.pad
    if len(source.shape) != 4 or source.zero_point is None:
        return False
    whole = all(
        (cut.begin[a], cut.end[a], cut.stride[a]) == (0, source.shape[a], 1) for a in (0, 3)
    )
    channels_only = not any((*pad.before[:3], *pad.after[:3]))
    outputs = graph.tensors[node.outputs[0]].shape[3]
    return (
        whole
        and channels_only
        and _reaches_the_end(cut, source.shape)
        and pad.value == source.zero_point
        and (selection.requantize is None or selection.requantize.bias == -source.zero_point)
        and outputs * source.shape[3] <= MAX_WEIGHTS
    )


def _reaches_the_end(cut: Slice, shape: tuple[int, ...]) -> bool:
    """Tell whether height and width are sliced from 0 up to the last element of the stride."""
    return all(
        cut.begin[axis] == 0 and -(-cut.end[axis] // step) == -(-shape[axis] // step)
        for axis, step in ((1, cut.stride[1]), (2, cut.stride[2]))
    )


def _emit(rewrite: Rewrite, node: Node, selection: _Selection) -> None:
    source: Tensor = rewrite.graph.tensors[selection.slice_node.inputs[0]]
    assert source.zero_point is not None
    cut = selection.slice
    channels, outputs = source.shape[3], rewrite.graph.tensors[node.outputs[0]].shape[3]
    weights = np.zeros((outputs, 1, 1, channels), dtype=np.int8)
    first = selection.pad.before[3]
    weights[first : first + channels, 0, 0, :] = np.eye(channels, dtype=np.int8)
    bias = (-source.zero_point * weights.sum(axis=(1, 2, 3), dtype=np.int64)).astype(np.int32)
    change = selection.requantize
    multiplier, shift = (change.multiplier, change.shift) if change is not None else UNITY
    operands = [
        rewrite.new(selection.slice_node.inputs[0]),
        rewrite.builder.add_constant(f"{node.name}.weights", weights),
        rewrite.builder.add_constant(f"{node.name}.bias", bias),
        rewrite.builder.add_constant(
            f"{node.name}.multiplier", np.full(outputs, multiplier, dtype=np.int32)
        ),
        rewrite.builder.add_constant(f"{node.name}.shift", np.full(outputs, shift, dtype=np.int32)),
    ]
    op = Conv2d(
        stride=(cut.stride[1], cut.stride[2]),
        input_zero_point=source.zero_point,
        zero_point=change.zero_point if change is not None else source.zero_point,
        low=change.low if change is not None else INT8_MIN,
        high=change.high if change is not None else INT8_MAX,
    )
    rewrite.emit(node, op, operands)
