"""Plans tuned on the processor at hand: spaces, features, what is kept and what is used."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from integer_graphs import GraphBuilder

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph
from tilewright.compiler.tuning.cost_model import learned_model
from tilewright.compiler.tuning.measured import USUAL, tune_measured
from tilewright.compiler.tuning.store import KernelRecord, StoredChoice, TuningStore
from tilewright.cpu_gpu_backends.choice_values import find_choice, values_of
from tilewright.cpu_gpu_backends.codegen.clock import COUNTER, nanoseconds_per_tick
from tilewright.cpu_gpu_backends.codegen.engine import compile_object
from tilewright.cpu_gpu_backends.codegen.target import CORTEX_A53, host_target
from tilewright.cpu_gpu_backends.cpu.grouping import group_digest, group_nodes
from tilewright.cpu_gpu_backends.cpu.lower import lower_graph
from tilewright.cpu_gpu_backends.cpu.native import load_program
from tilewright.cpu_gpu_backends.cpu.plan_space import plans_of
from tilewright.cpu_gpu_backends.cpu.plans import DepthwisePlan, MatrixPlan
from tilewright.cpu_gpu_backends.cpu.tuning import CpuTuning, machine_digest, tuned_plans


@pytest.fixture
def builder() -> GraphBuilder:
    return GraphBuilder(seed=6)


@pytest.fixture
def graph(builder: GraphBuilder) -> Graph:
    x = builder.input(1, 12, 10, 16)
    y = builder.conv(x, 32, kernel=(3, 3), pads=(1, 1, 1, 1))
    y = builder.conv(y, 32, kernel=(3, 3), pads=(1, 1, 1, 1), groups=32)
    y = builder.max_pool(y, (2, 2), (2, 2))
    return builder.build(builder.conv(y, 24))


def test_tuned_networks_keep_every_bit(graph: Graph, builder: GraphBuilder, tmp_path: Path) -> None:
    path, target = tmp_path / "cache", host_target()
    tuning = CpuTuning(graph=graph, target=target, threads=2)
    model = learned_model(0)
    result = tune_measured(tuning, TuningStore(path), budget=5, jobs=2, model=model)
    assert (result.problems, result.searched, result.measured) == (3, 3, 15)
    assert result.tuned_nanoseconds <= result.untuned_nanoseconds
    plans = tuned_plans(graph, target, 2, TuningStore(path))
    program = load_program(lower_graph(graph, target, plans), target, check_bounds=True)
    inputs = builder.values(graph)
    (found,) = program.run([inputs[name] for name in graph.inputs], 2)
    ((name, expected),) = evaluate(graph, inputs).items()
    np.testing.assert_array_equal(found.reshape(expected.shape), expected, name)


def test_kept_plans_are_used_for_their_processor_and_threads(graph: Graph, tmp_path: Path) -> None:
    target = host_target()
    store = TuningStore(tmp_path / "cache")
    group = group_nodes(graph)[0]
    plan = plans_of(graph, group, target)[-1]
    digest = group_digest(graph, group)
    choices = (
        StoredChoice(cost=10, values=values_of(plan)),
        StoredChoice(cost=20, values=USUAL),
    )
    machine = machine_digest(target, 2)
    store.add(KernelRecord(machine=machine, kernels=digest, choices=choices, budget=2))
    assert tuned_plans(graph, target, 2, store) == {digest: plan}
    assert tuned_plans(graph, target, 1, store) == {}
    assert tuned_plans(graph, replace(target, cpu="another"), 2, store) == {}
    unknown = (StoredChoice(cost=1, values=("MatrixPlan", 1, 2)), choices[1])
    store.add(KernelRecord(machine=machine, kernels=digest, choices=unknown, budget=2))
    assert tuned_plans(graph, target, 2, store) == {}


def test_values_find_their_plan(graph: Graph) -> None:
    target = host_target()
    kinds = set()
    for group in group_nodes(graph):
        plans = plans_of(graph, group, target)
        kinds |= {type(plan) for plan in plans}
        assert len({values_of(plan) for plan in plans}) == len(plans)
        for plan in plans[:: max(1, len(plans) // 9)]:
            assert find_choice(plans, values_of(plan)) == plan
    assert kinds == {MatrixPlan, DepthwisePlan}


def test_a_digest_depends_on_shapes_and_not_on_values() -> None:
    digests = []
    for seed, channels in ((1, 16), (2, 16), (1, 24)):
        builder = GraphBuilder(seed)
        graph = builder.build(builder.conv(builder.input(1, 6, 6, 8), channels))
        (group,) = group_nodes(graph)
        digests.append(group_digest(graph, group))
    assert digests[0] == digests[1] != digests[2]


def test_features_see_what_a_plan_changes(graph: Graph) -> None:
    """Half the columns of a tile: weights are read about twice as often, registers halve."""
    (space, *_) = CpuTuning(graph=graph, target=host_target(), threads=1).spaces()
    values = [
        values
        for values in space.choices()
        if values[0] == "MatrixPlan" and values[3:] == ("panels", 1, 4)
    ]
    wide = max(values, key=lambda one: (one[1], one[2]))
    narrow = min((one for one in values if one[1] == wide[1]), key=lambda one: one[2])
    first, second = space.describe([wide, narrow])
    assert first is not None
    assert second is not None
    assert first.code != second.code
    assert first.features[0] == pytest.approx(second.features[0], rel=0.05), "the same work"
    assert second.features[2] > first.features[2], "more reads"
    assert second.features[9] < first.features[9], "fewer registers"


def test_the_counter_runs_and_arm_reads_one_that_programs_may_read() -> None:
    assert 0.01 < nanoseconds_per_tick(host_target()) < 1000
    read = f"call i64 @{COUNTER}()"
    text = f"declare i64 @{COUNTER}()\ndefine i64 @now() {{\n %t = {read}\n ret i64 %t\n}}\n"
    # mrs x0, cntvct_el0: ARM Architecture Reference Manual, C5.2.
    assert (0xD53BE040).to_bytes(4, "little") in compile_object(text, CORTEX_A53)
