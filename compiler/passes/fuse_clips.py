"""Pass: let the operator that requantises do the clipping too.

Clip(f(x; low, high); a, b)  ->  f(x; max(low, a), min(high, b))    f requantises, read only here
"""

from dataclasses import replace

from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import Add, AveragePool2d, Clip, Conv2d, Operator, Requantize
from tilewright.compiler.passes.rewrite import Rewrite


def fuse_clips(graph: Graph) -> Graph:
    """Return `graph` with clips merged into the operators in front of them."""
    producers = {node.outputs[0]: node for node in graph.nodes}
    consumers = graph.consumers()
    rewrite = Rewrite(graph)
    fused: dict[str, Operator] = {}
    for node in graph.nodes:
        producer = producers.get(node.inputs[0])
        sole = len(consumers[node.inputs[0]]) == 1 and node.inputs[0] not in graph.outputs
        if isinstance(node.op, Clip) and producer is not None and sole:
            op = _clipped(fused.get(producer.name, producer.op), node.op)
            if op is not None:
                rewrite.emit(node, op, [rewrite.new(name) for name in producer.inputs])
                fused[node.name] = op
                producers[node.outputs[0]] = replace(node, inputs=producer.inputs)
                continue
        rewrite.keep(node)
    return rewrite.finish()


def _clipped(op: Operator, clip: Clip) -> Operator | None:
    """Return `op` followed by `clip` as one operator, None where there is none."""
    match op:
        case Conv2d() | Add() | AveragePool2d() | Requantize() | Clip():
            low = min(max(op.low, clip.low), clip.high)
            high = max(min(op.high, clip.high), clip.low)
            return replace(op, low=low, high=high)
        case _:
            return None
