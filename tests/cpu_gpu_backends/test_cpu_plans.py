"""Plans of kernels: whatever a tuner chooses, the results stay."""

import itertools

import numpy as np
import pytest
from integer_graphs import GraphBuilder
from random_networks import random_graph

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph, Tensor
from tilewright.compiler.graph_builder import GraphBuilder as FloatBuilder
from tilewright.compiler.operators import DataType, FloatConv2d
from tilewright.cpu_gpu_backends.codegen.target import host_target
from tilewright.cpu_gpu_backends.cpu import chain_plans
from tilewright.cpu_gpu_backends.cpu.grouping import group_digest, group_nodes
from tilewright.cpu_gpu_backends.cpu.lower import chained_outputs, lower_graph
from tilewright.cpu_gpu_backends.cpu.native import load_program
from tilewright.cpu_gpu_backends.cpu.plan_space import plans_of
from tilewright.cpu_gpu_backends.cpu.plans import (
    DepthwisePlan,
    MatrixPlan,
    Outside,
    Plan,
    WinogradPlan,
)
from tilewright.cpu_gpu_backends.cpu.program import Kernel
from tilewright.cpu_gpu_backends.cpu.tuning import CpuTuning
from tilewright.runtime.inputs import random_inputs

MATRIX_PLANS = tuple(
    MatrixPlan(panel=panel, positions=positions, outside=outside, block=block, unroll=unroll)
    for (panel, unroll), positions, (outside, block) in itertools.product(
        ((16, 4), (24, 1), (48, 8)),
        (14, 3),
        ((Outside.PANELS, 1), (Outside.POSITIONS, 1), (Outside.POSITIONS, 4)),
    )
)


def results(
    graph: Graph, inputs: dict[str, np.ndarray], plan: Plan, *, check_bounds: bool = True
) -> dict[str, np.ndarray]:
    """Run a graph whose every group follows a plan."""
    target = host_target()
    plans = {group_digest(graph, group): plan for group in group_nodes(graph)}
    program = load_program(lower_graph(graph, target, plans), target, check_bounds=check_bounds)
    values = program.run([inputs[name] for name in graph.inputs], threads=2)
    return {
        name: value.reshape(graph.tensors[name].shape)
        for name, value in zip(graph.outputs, values, strict=True)
    }


@pytest.mark.parametrize(
    ("height", "width", "channels", "outputs", "kernel"),
    [(14, 14, 16, 40, 1), (9, 11, 8, 24, 3), (3, 14, 8, 24, 3)],
)
def test_matrix_plans_keep_every_bit(
    height: int, width: int, channels: int, outputs: int, kernel: int
) -> None:
    builder = GraphBuilder(height)
    x = builder.input(1, height, width, channels)
    y = builder.conv(x, outputs, kernel=(kernel, kernel), pads=(kernel // 2,) * 4)
    graph = builder.build(y)
    inputs = builder.values(graph)
    (expected,) = evaluate(graph, inputs).values()
    for plan in MATRIX_PLANS:
        (found,) = results(graph, inputs, plan).values()
        np.testing.assert_array_equal(found, expected, str(plan))


@pytest.mark.parametrize(("channels", "fetched"), [(16, set()), (512, {"weights"})])
def test_many_weights_are_fetched_ahead(channels: int, fetched: set[str]) -> None:
    builder = GraphBuilder(1)
    x = builder.input(1, 4, 4, channels)
    graph = builder.build(builder.conv(x, 64))
    steps = lower_graph(graph, host_target()).steps
    nests = [step.nest for step in steps if isinstance(step, Kernel)]
    assert {name for nest in nests for name, _ in nest.ahead} == fetched


@pytest.mark.parametrize("outside", Outside)
@pytest.mark.parametrize(("columns", "channels"), [(1, 8), (5, 16), (12, 32)])
def test_depthwise_plans_keep_every_bit(outside: Outside, columns: int, channels: int) -> None:
    builder = GraphBuilder(3)
    x = builder.input(2, 9, 11, 32)
    y = builder.conv(x, 32, kernel=(3, 3), pads=(1, 1, 1, 1), groups=32)
    graph = builder.build(y)
    inputs = builder.values(graph)
    (expected,) = evaluate(graph, inputs).values()
    plan = DepthwisePlan(columns=columns, channels=channels, outside=outside)
    (found,) = results(graph, inputs, plan).values()
    np.testing.assert_array_equal(found, expected)


FLOAT_PLANS = (
    WinogradPlan(outputs=2, block_bytes=32 << 10, panel=16, positions=6, unroll=2),
    WinogradPlan(outputs=4, block_bytes=64 << 10, panel=32, positions=12, unroll=4),
    WinogradPlan(outputs=4, block_bytes=4 << 20, panel=24, positions=14, unroll=1),
    MatrixPlan(panel=32, positions=9, outside=Outside.POSITIONS, block=2, unroll=2),
)


@pytest.mark.parametrize("plan", FLOAT_PLANS, ids=lambda plan: type(plan).__name__)
def test_plans_of_a_float_convolution_stay_within_the_tolerance(plan: Plan) -> None:
    rng = np.random.default_rng(7)
    builder = FloatBuilder("net")
    builder.add_input(Tensor(name="x", shape=(1, 19, 22, 24), dtype=DataType.FLOAT32))
    weights = rng.standard_normal((40, 3, 3, 24)).astype(np.float32)
    operands = ["x", builder.add_constant("weights", weights)]
    y = builder.add(FloatConv2d(pads=(1, 1, 1, 1)), operands, node="conv")
    graph = builder.build([y])
    inputs = {"x": rng.standard_normal((1, 19, 22, 24)).astype(np.float32)}
    (expected,) = evaluate(graph, inputs).values()
    (found,) = results(graph, inputs, plan).values()
    assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize("seed", range(40, 46))
def test_random_plans_of_random_graphs_keep_every_bit(seed: int) -> None:
    graph, target, rng = random_graph(seed), host_target(), np.random.default_rng(seed)
    plans: dict[str, Plan] = {}
    for group in group_nodes(graph):
        if found := plans_of(graph, group, target):
            plans[group_digest(graph, group)] = found[rng.integers(len(found))]
    program = load_program(lower_graph(graph, target, plans), target, check_bounds=True)
    inputs = random_inputs(graph, seed)
    expected = evaluate(graph, inputs)
    values = program.run([inputs[name] for name in graph.inputs], threads=2)
    for name, found_values in zip(graph.outputs, values, strict=True):
        np.testing.assert_array_equal(found_values.reshape(expected[name].shape), expected[name])


def test_layers_that_run_in_bands_follow_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_plans, "_FEWEST_BYTES", 0)
    builder, target = GraphBuilder(9), host_target()
    x = builder.input(1, 16, 9, 24)
    y = builder.conv(x, 40)
    y = builder.conv(y, 40, kernel=(3, 3), pads=(1, 1, 1, 1), groups=40)
    graph = builder.build(builder.conv(y, 24))
    assert len(chained_outputs(graph, target)) == 3
    assert CpuTuning(graph=graph, target=target, threads=1).spaces() == []
    plans = {
        group_digest(graph, group): plans_of(graph, group, target)[-1]
        for group in group_nodes(graph)
    }
    usual, planned = lower_graph(graph, target), lower_graph(graph, target, plans)
    assert [type(step) for step in planned.steps] == [type(step) for step in usual.steps]
    inputs = builder.values(graph)
    (expected,) = evaluate(graph, inputs).values()
    program = load_program(planned, target, check_bounds=True)
    (found,) = program.run([inputs[name] for name in graph.inputs], threads=2)
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)
