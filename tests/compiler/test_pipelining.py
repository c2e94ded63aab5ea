"""Interleaving of depthwise convolutions with their neighbours."""

import pytest
from integer_graphs import GraphBuilder
from stepping import run_compiled

from tilewright.compiler.compile import compile_graph
from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph
from tilewright.isa.memories import Engine
from tilewright.isa.presets import PRESETS


def inverted_residual(builder: GraphBuilder, size: int, channels: int, stride: int = 1) -> Graph:
    x = builder.input(1, size, size, channels)
    y = builder.conv(x, 3 * channels)
    y = builder.conv(
        y,
        3 * channels,
        kernel=(3, 3),
        stride=(stride, stride),
        pads=(1, 1, 1, 1),
        groups=3 * channels,
    )
    y = builder.conv(y, channels)
    return builder.build(builder.add(x, y) if stride == 1 else y)


@pytest.mark.parametrize("machine", ["tiny", "ecp5", "pynq", "ultra96"])
@pytest.mark.parametrize("stride", [1, 2])
def test_interleaved_kernels_equal_the_integer_graph(machine: str, stride: int) -> None:
    builder = GraphBuilder(seed=stride)
    graph = inverted_residual(builder, 15, 10, stride)
    inputs = builder.values(graph)
    values, _ = run_compiled(compile_graph(graph, PRESETS[machine]), inputs)
    (name,) = graph.outputs
    assert (values[name] == evaluate(graph, inputs)[name]).all()


def test_array_and_vector_engine_work_side_by_side() -> None:
    builder = GraphBuilder(seed=9)
    graph = inverted_residual(builder, 56, 32)
    inputs = builder.values(graph)
    memory = {"dram.write_gap_cycles": 2}
    compiled = compile_graph(graph, PRESETS["pynq"].replace(**memory))
    _, (result,) = run_compiled(compiled, inputs)
    busy = {engine: result.timeline.account(engine).busy for engine in Engine}
    assert result.timeline.cycles < 0.9 * (busy[Engine.GEMM] + busy[Engine.VECTOR])
    assert result.timeline.cycles < 1.15 * max(busy.values())
