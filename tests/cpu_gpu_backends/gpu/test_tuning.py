import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from integer_graphs import GraphBuilder

from tilewright.compiler.evaluate import evaluate
from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu, layers_of
from tilewright.cpu_gpu_backends.gpu.lowering import choices_of
from tilewright.cpu_gpu_backends.gpu.model import GpuModel
from tilewright.cpu_gpu_backends.gpu.opencl_device import OpenClDevice
from tilewright.cpu_gpu_backends.gpu.tuning import tune_graph, tuned_chooser


def test_what_is_measured_is_used_and_changes_no_result(
    opencl: OpenClDevice, tmp_path: Path
) -> None:
    builder = GraphBuilder(seed=8)
    x = builder.input(1, 6, 6, 8)
    graph = builder.build(builder.clip(builder.conv(x, 16), -90, 90))
    file = tmp_path / "gpu.tuning"
    (tuned,) = tune_graph(graph, opencl, budget=2, path=file)
    assert tuned.best.seconds <= tuned.default.seconds
    (layer,) = layers_of(graph).values()
    choices = choices_of(layer, opencl.capability)
    assert tuned.best.choice in choices[:2]
    chooser = tuned_chooser(opencl.capability, file)
    assert chooser(layer, choices) == tuned.best.choice
    # A later line counts; a damaged one does not.
    other = next(choice for choice in choices if choice != tuned.best.choice)
    record = json.loads(file.read_text())
    record["choice"] = {"kind": type(other).__name__, **asdict(other)}
    file.write_text(f"{file.read_text()}{json.dumps(record)}\nno line\n")
    chooser = tuned_chooser(opencl.capability, file)
    assert chooser(layer, choices) == other
    program = compile_for_gpu(graph, opencl.capability, opencl.dialect, choose=chooser)
    inputs = builder.values(graph)
    results = GpuModel.load(program, opencl).run(inputs)
    for name, values in evaluate(graph, inputs).items():
        np.testing.assert_array_equal(results[name], values)


def test_without_a_file_the_default_is_taken(opencl: OpenClDevice, tmp_path: Path) -> None:
    builder = GraphBuilder(seed=8)
    graph = builder.build(builder.conv(builder.input(1, 6, 6, 8), 16))
    (layer,) = layers_of(graph).values()
    choices = choices_of(layer, opencl.capability)
    assert tuned_chooser(opencl.capability, tmp_path / "none")(layer, choices) == choices[0]
