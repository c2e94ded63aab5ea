"""Pass: a dense layer behind a flattened image becomes a convolution over the whole image.

Conv2d 1x1 (Reshape [N,1,1,HWC] (x))                ->  Conv2d HxW (x), weights reshaped
Conv2d 1x1 (Reshape [N,1,1,CHW] (Transpose (x)))    ->  the same, weights permuted as well
"""

import numpy as np

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.operators import Conv2d, Reshape, Transpose
from tilewright.compiler.passes.rewrite import Rewrite
from tilewright.compiler.passes.sink_transposes import inverse


def fold_flatten(graph: Graph) -> Graph:
    """Return `graph` without the flattening in front of dense layers."""
    producers = {node.outputs[0]: node for node in graph.nodes}
    rewrite = Rewrite(graph)
    for node in graph.nodes:
        flatten = _flatten(graph, node, producers)
        if flatten is None:
            rewrite.keep(node)
        else:
            _emit(rewrite, node, flatten, producers)
    return rewrite.finish()


def _flatten(graph: Graph, node: Node, producers: dict[str, Node]) -> Node | None:
    """Return the reshape of an image in front of a dense layer, None where there is none."""
    if not isinstance(node.op, Conv2d) or node.op.groups != 1:
        return None
    reshape = producers.get(node.inputs[0])
    if reshape is None or not isinstance(reshape.op, Reshape):
        return None
    image, pixel = graph.tensors[reshape.inputs[0]].shape, graph.tensors[node.inputs[0]].shape
    if pixel[1:3] != (1, 1) or len(image) != 4 or image[0] != pixel[0] or any(node.op.pads):
        return None
    return reshape


def _emit(rewrite: Rewrite, node: Node, flatten: Node, producers: dict[str, Node]) -> None:
    graph = rewrite.graph
    image = flatten.inputs[0]
    weights = graph.constants[node.inputs[1]]
    kernels = weights.reshape(weights.shape[0], *graph.tensors[image].shape[1:])
    transpose = producers.get(image)
    if transpose is not None and isinstance(transpose.op, Transpose):
        permutation = transpose.op.permutation
        if permutation[0] == 0:
            image = transpose.inputs[0]
            kernels = np.ascontiguousarray(kernels.transpose(inverse(permutation)))
    constant = rewrite.builder.add_constant(node.inputs[1], kernels)
    assert isinstance(node.op, Conv2d)
    op = Conv2d(
        input_zero_point=node.op.input_zero_point,
        zero_point=node.op.zero_point,
        low=node.op.low,
        high=node.op.high,
    )
    parameters = [rewrite.new(name) for name in node.inputs[2:]]
    rewrite.emit(node, op, [rewrite.new(image), constant, *parameters])
