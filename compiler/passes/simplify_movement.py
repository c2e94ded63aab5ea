"""Pass: remove movement that moves nothing.

Reshape(Reshape(x))                   ->  Reshape(x)
Reshape to the same shape             ->  x
Transpose of axes of size 1           ->  Reshape
Slice of everything, Pad by nothing   ->  x
Concat of one tensor                  ->  x
Clip to -128..127                     ->  x
MaxPool2d of single elements          ->  x
"""

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.operators import (
    INT8_MAX,
    INT8_MIN,
    Clip,
    Concat,
    MaxPool2d,
    Pad,
    Reshape,
    Slice,
    Transpose,
)
from tilewright.compiler.passes.rewrite import Rewrite


def simplify_movement(graph: Graph) -> Graph:
    """Return `graph` without movement that has no effect."""
    rewrite = Rewrite(graph)
    reshaped: dict[str, str] = {}
    for node in graph.nodes:
        source = rewrite.new(node.inputs[0])
        if _is_identity(graph, node):
            rewrite.replace_by(node, source)
            rewrite.share_source(node, reshaped.get(source, source))
        elif _is_reshape(graph, node):
            origin = reshaped.get(source, source)
            shape = graph.tensors[node.outputs[0]].shape
            rewrite.share_source(node, origin)
            if rewrite.builder.tensor(origin).shape == shape:
                rewrite.replace_by(node, origin)
            else:
                rewrite.emit(node, Reshape(shape=shape), [origin])
                reshaped[rewrite.new(node.outputs[0])] = origin
        else:
            rewrite.keep(node)
    return rewrite.finish()


def _is_reshape(graph: Graph, node: Node) -> bool:
    """Tell whether a node only changes the shape."""
    match node.op:
        case Reshape():
            return True
        case Transpose(permutation=permutation):
            shape = graph.tensors[node.inputs[0]].shape
            longer = [axis for axis in permutation if shape[axis] != 1]
            return longer == sorted(longer)
        case _:
            return False


def _is_identity(graph: Graph, node: Node) -> bool:
    """Tell whether a node returns its input."""
    if graph.tensors[node.inputs[0]].type != graph.tensors[node.outputs[0]].type:
        return False
    match node.op:
        case Reshape() | Slice() | Pad():
            return True
        case Transpose(permutation=permutation):
            return permutation == tuple(sorted(permutation))
        case Concat():
            return len(node.inputs) == 1
        case Clip(low=low, high=high):
            return (low, high) == (INT8_MIN, INT8_MAX)
        case MaxPool2d(kernel=kernel):
            return kernel == (1, 1)
        case _:
            return False
