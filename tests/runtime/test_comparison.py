"""Devices side by side."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from tilewright.compiler.graph import Graph
from tilewright.cpu_gpu_backends.cpu.grouping import group_nodes
from tilewright.cpu_gpu_backends.gpu.device import DeviceError
from tilewright.isa.errors import InputError
from tilewright.runtime import comparison
from tilewright.runtime.comparison import compare
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.devices import Device
from tilewright.runtime.gpu_graphs import GpuGraphs
from tilewright.runtime.model import Model, compile_model
from tilewright.runtime.native_graphs import NativeGraphs


def test_devices_come_in_the_order_asked_for(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32]
) -> None:
    table = compare(compiled_digits, image, ["reference", "sim", "reference"])
    assert [run.device for run in table.runs] == [Device.REFERENCE, Device.SIM]
    assert table.equal
    ((name, difference),) = table.runs[1].differences
    assert (name, difference.differing, difference.elements) == ("logits", 0, 10)
    lines = str(table).splitlines()
    assert len(lines) == 3
    columns = ["device", "output", "differ", "at", "most", "by", "cycles", "ms", "seconds", "here"]
    assert lines[0].split() == columns
    stats = table.runs[1].result.stats
    cells = [
        "sim",
        "logits",
        "0",
        "of",
        "10",
        "0",
        f"{stats.cycles:,}",
        f"{stats.milliseconds:.3f}",
    ]
    assert lines[2].split()[:-1] == cells


def test_a_model_is_compiled_first(digits: Model, image: npt.NDArray[np.float32]) -> None:
    table = compare(digits, image)
    assert [run.device for run in table.runs] == [Device.SIM, Device.REFERENCE]
    assert table.runs[0].result.compiled.config.name == "pynq"


def test_a_difference_is_seen(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32]
) -> None:
    table = compare(compiled_digits, image, ["sim"])
    (run,) = table.runs
    ((name, difference),) = run.differences
    off = replace(difference, differing=1, maximum=2.0)
    changed = replace(table, runs=(replace(run, differences=((name, off),)),))
    assert not changed.equal
    assert "1 of 10" in str(changed)


def test_no_device_is_refused(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32]
) -> None:
    with pytest.raises(InputError) as caught:
        compare(compiled_digits, image, [])
    assert str(caught.value) == "name at least one device to compare"


def test_a_device_that_fails_does_not_keep_others_from_running(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object, **__: object) -> None:
        raise DeviceError("the GPU is lost")

    monkeypatch.setattr(GpuGraphs, "prepare", lost)
    table = compare(compiled_digits, image, ["cuda", "sim"])
    assert [run.device for run in table.runs] == [Device.SIM]
    ((device, error),) = ((one.device, str(one.error)) for one in table.failures)
    assert (device, error) == (Device.CUDA, "the GPU is lost")
    assert table.runs[0].equal
    assert not table.equal
    assert not table.agrees
    with pytest.raises(DeviceError, match=r"^the GPU is lost$"):
        compare(compiled_digits, image, ["cuda"])


def test_energy_is_a_column_only_where_it_is_counted(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    used = iter([1.0, 4.0])
    monkeypatch.setattr(comparison, "processor_meter", lambda: lambda: next(used))
    # One call is enough: the clock has gone on by then.
    clock = iter(range(1000))
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    table = compare(compiled_digits, image, ["cpu", "sim"])
    assert [run.joules for run in table.runs] == [3.0, None]
    assert table.table.columns[-1] == "joules"
    assert [row[-1] for row in table.table.rows] == ["3", "-"]
    monkeypatch.setattr(comparison, "processor_meter", lambda: None)
    table = compare(compiled_digits, image, ["cpu", "sim"])
    assert "joules" not in table.table.columns


def test_layers_of_all_devices_stand_side_by_side(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32]
) -> None:
    table = compare(compiled_digits, image, ["sim", "cpu", "reference"], layers=True)
    sim, cpu, reference = table.runs
    graph = compiled_digits.graph
    names = [name for node in graph.nodes for name in node.outputs]
    for run in table.runs:
        assert not any(layer.difference.difference.differing for layer in run.layers)
        places = [names.index(layer.difference.tensor) for layer in run.layers]
        assert places == sorted(places)
        assert {layer.difference.tensor for layer in run.layers} >= set(graph.outputs)
    assert [layer.difference.tensor for layer in reference.layers] == names
    convolutions = {node.name for node in graph.nodes if type(node.op).__name__ == "Conv2d"}
    assert {layer.difference.layer for layer in sim.layers} >= convolutions
    fused = {name for group in group_nodes(graph) for name in (group.output,)}
    assert {layer.difference.tensor for layer in cpu.layers} == fused
    assert all(layer.milliseconds is not None for layer in (*cpu.layers, *reference.layers))
    cycles = (
        sum(layer.milliseconds or 0 for layer in sim.layers)
        * 1e3
        * compiled_digits.config.clock_mhz
    )
    unfused = compile_model(compiled_digits, keep_intermediates=True).run(image, "sim")
    assert cycles == pytest.approx(unfused.stats.cycles)
    lines = table.layer_table.rows
    assert len(lines) == len(names)
    assert table.layer_table.columns == (
        "layer", "operator", "sim differ", "sim at most by", "sim ms",
        "cpu differ", "cpu at most by", "cpu ms", "reference ms",
    )  # fmt: skip


def test_a_layer_that_differs_is_seen(
    compiled_digits: CompiledModel,
    image: npt.NDArray[np.float32],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_layers = NativeGraphs.run_layers
    wrong = compiled_digits.graph.nodes[2].outputs[0]

    def changed(
        self: NativeGraphs, graph: Graph, inputs: dict[str, npt.NDArray[np.int8]]
    ) -> tuple[dict[str, npt.NDArray[np.int8]], dict[str, float]]:
        values, times = run_layers(self, graph, inputs)
        values[wrong] = values[wrong] + np.int8(3)
        return values, times

    monkeypatch.setattr(NativeGraphs, "run_layers", changed)
    (run,) = compare(compiled_digits, image, ["cpu"], layers=True).runs
    differing = [one.difference for one in run.layers if one.difference.difference.differing]
    assert [one.tensor for one in differing] == [wrong]
    assert differing[0].difference.maximum == 3
    assert run.equal, "the outputs are of a run of their own"
