"""Schedules tuned on OpenCL: what is measured is kept, used, and changes no result."""

from pathlib import Path

import numpy as np
import pytest
from integer_graphs import GraphBuilder

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph
from tilewright.compiler.tuning.measured import USUAL, network_digest, tune_measured
from tilewright.compiler.tuning.store import KernelRecord, NetworkRecord, StoredChoice, TuningStore
from tilewright.cpu_gpu_backends.choice_values import values_of
from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu, layers_of
from tilewright.cpu_gpu_backends.gpu.device import KernelDevice
from tilewright.cpu_gpu_backends.gpu.lowering import choices_of
from tilewright.cpu_gpu_backends.gpu.model import GpuModel
from tilewright.cpu_gpu_backends.gpu.tuning import (
    GpuTuning,
    layer_digest,
    machine_digest,
    tuned_chooser,
)


@pytest.fixture
def builder() -> GraphBuilder:
    return GraphBuilder(seed=8)


@pytest.fixture
def graph(builder: GraphBuilder) -> Graph:
    x = builder.input(1, 6, 6, 8)
    return builder.build(builder.clip(builder.conv(x, 16), -90, 90))


def test_what_is_measured_is_used_and_changes_no_result(
    gpu: KernelDevice, tmp_path: Path, graph: Graph, builder: GraphBuilder
) -> None:
    store = TuningStore(tmp_path / "cache")
    result = tune_measured(GpuTuning(graph=graph, device=gpu), store, budget=3, model=None)
    assert (result.problems, result.searched, result.measured) == (1, 1, 3)
    assert result.tuned_nanoseconds <= result.untuned_nanoseconds
    (layer,) = layers_of(graph).values()
    record = TuningStore(tmp_path / "cache").record(
        machine_digest(gpu.capability), layer_digest(layer)
    )
    assert record is not None
    kept = {values_of(choice) for choice in choices_of(layer, gpu.capability)[1:]}
    assert all(choice.values in kept for choice in record.choices if choice.values != USUAL)


def test_a_kept_choice_is_taken_in_its_network(
    gpu: KernelDevice, tmp_path: Path, graph: Graph, builder: GraphBuilder
) -> None:
    (layer,) = layers_of(graph).values()
    choices = choices_of(layer, gpu.capability)
    digest, machine = layer_digest(layer), machine_digest(gpu.capability)
    other = StoredChoice(cost=1, values=values_of(choices[-1]))
    usual = StoredChoice(cost=2, values=USUAL)
    store = TuningStore(tmp_path / "cache")
    assert tuned_chooser(graph, gpu.capability, store)(layer, choices) == choices[0]
    store.add(KernelRecord(machine=machine, kernels=digest, choices=(other, usual), budget=2))
    chooser = tuned_chooser(graph, gpu.capability, store)
    assert chooser(layer, choices) == choices[-1] != choices[0]
    program = compile_for_gpu(graph, gpu.capability, gpu.dialect, choose=chooser)
    inputs = builder.values(graph)
    results = GpuModel.load(program, gpu).run(inputs)
    for name, values in evaluate(graph, inputs).items():
        np.testing.assert_array_equal(results[name], values)
    # What was found for the whole network counts more.
    store.add(NetworkRecord(machine=machine, network=network_digest([digest]), choices={}))
    assert tuned_chooser(graph, gpu.capability, store)(layer, choices) == choices[0]


def test_without_files_the_default_is_taken(gpu: KernelDevice, graph: Graph) -> None:
    (layer,) = layers_of(graph).values()
    choices = choices_of(layer, gpu.capability)
    assert tuned_chooser(graph, gpu.capability, None)(layer, choices) == choices[0]
