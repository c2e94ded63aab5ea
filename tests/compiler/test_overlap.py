"""Weights that are loaded ahead, and programs in which nothing overlaps."""

from integer_graphs import GraphBuilder
from stepping import run_compiled

from tilewright.compiler.compile import compile_graph
from tilewright.compiler.compiled import AcceleratorStep
from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph
from tilewright.isa.instructions import Load
from tilewright.isa.memories import Memory
from tilewright.isa.presets import ECP5
from tilewright.sim.clockwork import simulate_timing


def classifier() -> tuple[Graph, GraphBuilder]:
    """A convolution, the mean of its result, and a dense layer."""
    builder = GraphBuilder(seed=2)
    x = builder.conv(builder.input(1, 20, 20, 8), 16, kernel=(3, 3), pads=(1, 1, 1, 1))
    x = builder.average_pool(x, (20, 20), (1, 1))
    return builder.build(builder.conv(x, 40)), builder


def step_of(graph: Graph, *, latency_hiding: bool = True) -> AcceleratorStep:
    (step,) = compile_graph(graph, ECP5, latency_hiding=latency_hiding).steps
    assert isinstance(step, AcceleratorStep)
    return step


def test_weights_come_before_a_pooling_that_waits() -> None:
    graph, _ = classifier()
    program = step_of(graph).program
    memories = [
        (layer, instruction.memory)
        for layer, instruction in zip(
            program.layer_of_instruction, program.instructions, strict=True
        )
        if isinstance(instruction, Load)
    ]
    names = [name.split("+")[0] for name in program.layers]
    pool, dense = (names.index(name) for name in names[-2:])
    assert memories.index((dense, Memory.WGT)) < memories.index((pool, Memory.VEC))


def test_overlapping_saves_cycles_and_changes_no_result() -> None:
    graph, builder = classifier()
    inputs = builder.values(graph)
    (name,) = graph.outputs
    cycles = []
    for latency_hiding in (True, False):
        compiled = compile_graph(graph, ECP5, latency_hiding=latency_hiding)
        values, _ = run_compiled(compiled, inputs)
        assert (values[name] == evaluate(graph, inputs)[name]).all()
        step = step_of(graph, latency_hiding=latency_hiding)
        cycles.append(simulate_timing(step.program).cycles)
    assert cycles[0] < cycles[1]
