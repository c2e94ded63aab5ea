"""The float networks of ../shared/models against the runtimes that published them."""

from pathlib import Path

import numpy as np
import pytest
from published_models import OPEN_SHAPES

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.operators import Transpose
from tilewright.compiler.passes.pipeline import lower_to_integer
from tilewright.compiler.readers import read_model

#: Files, and the prefix of the golden outputs.
MODELS = {
    "mnist_cnn.onnx": "out0:",
    "resnet20_cifar10.onnx": "out0:",
    "efficientnet_lite0.onnx": "out0:",
    "ultraface_rfb320.onnx": "out0:",
    "ppocr_cls_v2.onnx": "out0:",
    "resnet8_cifar10_float.tflite": "xnnpack_out0:",
    "kws_dscnn_float.tflite": "xnnpack_out0:",
    "blazeface_short_range.tflite": "xnnpack_out0:",
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_outputs_are_near_the_golden_ones(name: str, shared_models: Path) -> None:
    prefix = MODELS[name]
    path = shared_models / "models" / name
    graph = lower_to_integer(read_model(path, OPEN_SHAPES.get(name)))
    golden = np.load(shared_models / "golden" / f"{name}.npz")
    if "input" in golden:
        (output,) = graph.outputs
        runtime = "ort_out" if name.endswith(".onnx") else "xnnpack_out"
        expected = {output: golden[runtime][:1]}
        inputs = {graph.inputs[0]: golden["input"][:1]}
    else:
        expected = {output: golden[f"{prefix}{output}"] for output in graph.outputs}
        inputs = {name: golden[f"in0:{name}"] for name in graph.inputs}
    found = evaluate(graph, inputs)
    for output, values in expected.items():
        largest = float(np.abs(values).max())
        difference = np.abs(found[output] - values.reshape(found[output].shape))
        assert difference.max() < 1e-4 * largest, output


@pytest.mark.parametrize("name", sorted(MODELS))
def test_images_are_turned_at_most_once(name: str, shared_models: Path) -> None:
    graph = lower_to_integer(read_model(shared_models / "models" / name, OPEN_SHAPES.get(name)))
    kinds = [type(node.op) for node in graph.nodes]
    assert kinds.count(Transpose) <= 1
