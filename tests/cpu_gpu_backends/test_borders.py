"""Borders that are filled once: whose places nobody else writes to, run after run."""

import numpy as np
import pytest
from integer_graphs import GraphBuilder as IntegerBuilder
from random_networks import random_graph

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph, Tensor
from tilewright.compiler.graph_builder import GraphBuilder as FloatBuilder
from tilewright.compiler.operators import DataType, FloatConv2d
from tilewright.cpu_gpu_backends.codegen.target import host_target
from tilewright.cpu_gpu_backends.cpu.lower import lower_graph
from tilewright.cpu_gpu_backends.cpu.memory_plan import plan_buffers
from tilewright.cpu_gpu_backends.cpu.native import load_program
from tilewright.cpu_gpu_backends.cpu.program import CpuProgram, Home
from tilewright.runtime.inputs import random_inputs


def padded_layers(*sides: int) -> Graph:
    """Return convolutions of one shape of image, with borders of some rows and columns."""
    rng = np.random.default_rng(3)
    build = FloatBuilder("layers")
    x = build.add_input(Tensor(name="x", shape=(1, 9, 9, 8), dtype=DataType.FLOAT32))
    for number, side in enumerate(sides):
        weights = rng.standard_normal((8, 2 * side + 1, 2 * side + 1, 8)).astype(np.float32)
        operands = [x, build.add_constant(f"w{number}", weights)]
        x = build.add(FloatConv2d(pads=(side,) * 4), operands, node=f"conv{number}")
    return build.build([x])


def bordered(program: CpuProgram) -> set[str]:
    borders = plan_buffers(program, keeps_borders=True).borders
    return {name for kernel in borders for name in kernel.writes}


@pytest.mark.parametrize("seed", [0, 1, 4, 6, 10])
def test_nobody_else_writes_where_a_border_is_kept(seed: int) -> None:
    program = lower_graph(random_graph(seed), host_target())
    plan, kept = plan_buffers(program, keeps_borders=True), bordered(program)
    assert len(kept) > 1
    spans = {
        name: (plan.offsets[name], plan.offsets[name] + buffer.size_bytes)
        for name, buffer in program.buffers.items()
        if buffer.home is Home.WORKSPACE
    }
    for name in kept:
        begin, end = spans[name]
        for other, (first, last) in spans.items():
            same_place = other in kept and (first, last) == (begin, end)
            assert other == name or same_place or last <= begin or end <= first, (name, other)


def test_layers_of_one_shape_and_border_share_two_places() -> None:
    program = lower_graph(padded_layers(2, 2, 2, 2, 2, 2), host_target())
    plan, kept = plan_buffers(program, keeps_borders=True), bordered(program)
    assert len(kept) == 6
    assert len({plan.offsets[name] for name in kept}) == 2


def test_borders_that_differ_have_places_of_their_own() -> None:
    program = lower_graph(padded_layers(2, 2, 2, 3, 3, 3), host_target())
    plan, kept = plan_buffers(program, keeps_borders=True), bordered(program)
    assert len(kept) == 6
    assert len({plan.offsets[name] for name in kept}) == 4


def test_without_a_workspace_of_its_own_a_program_keeps_nothing() -> None:
    program = lower_graph(padded_layers(2, 3, 2), host_target())
    kept, shared = plan_buffers(program, keeps_borders=True), plan_buffers(program)
    assert kept.borders
    assert not shared.borders
    assert shared.workspace_bytes <= kept.workspace_bytes


def test_every_run_finds_its_borders() -> None:
    build = IntegerBuilder(3)
    x = build.input(1, 9, 9, 16)
    for _ in range(5):
        x = build.conv(x, 16, kernel=(3, 3), pads=(1, 1, 1, 1))
    graph = build.build(x)
    program = load_program(lower_graph(graph, host_target()), host_target())
    for seed in range(4):
        inputs = random_inputs(graph, seed)
        (expected,) = evaluate(graph, inputs).values()
        (found,) = program.run([inputs[name] for name in graph.inputs], threads=1 + seed % 2)
        np.testing.assert_array_equal(found.reshape(expected.shape), expected)
