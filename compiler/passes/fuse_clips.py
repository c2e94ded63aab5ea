"""Pass: let the operator that requantises do the clipping too.

    Clip(f(x; low, high); a, b)  ->  f(x; clip(low, a, b), clip(high, a, b))

where f requantises and nothing else reads its result.
"""

from dataclasses import replace

from tilewright.compiler.graph import Graph, Node
from tilewright.compiler.operators import Add, AveragePool2d, Clip, Conv2d, Operator, Requantize
from tilewright.compiler.passes.rewrite import Rewrite


def fuse_clips(graph: Graph) -> Graph:
    """Return `graph` with clips merged into the operators in front of them."""
    consumers = graph.consumers()
    rewrite = Rewrite(graph)
    fused: set[str] = set()
    for node in graph.nodes:
        if node.name in fused:
            continue
        op, result = node.op, node.outputs[0]
        while (clip := _sole_clip(graph, consumers[result], result)) is not None:
            clipped = _clipped(op, clip)
            if clipped is None:
                break
            fused.add(consumers[result][0].name)
            op, result = clipped, consumers[result][0].outputs[0]
        rewrite.emit(node, op, [rewrite.new(name) for name in node.inputs], result=result)
    return rewrite.finish()


def _sole_clip(graph: Graph, readers: tuple[Node, ...], tensor: str) -> Clip | None:
    """Return the clip that alone reads `tensor`, None where there is none."""
    if len(readers) != 1 or tensor in graph.outputs:
        return None
    op = readers[0].op
    return op if isinstance(op, Clip) else None


def _clipped(op: Operator, clip: Clip) -> Operator | None:
    """Return `op` followed by `clip` as one operator, None where there is none."""
    match op:
        case Conv2d() | Add() | AveragePool2d() | Requantize() | Clip():
            low = min(max(op.low, clip.low), clip.high)
            high = max(min(op.high, clip.high), clip.low)
            return replace(op, low=low, high=high)
        case _:
            return None
