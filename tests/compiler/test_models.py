"""The quantised networks of ../shared/models against the runtimes that published them."""

import runpy
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.evaluate_layers import compare_layers
from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import (
    Add,
    AveragePool2d,
    Conv2d,
    DataType,
    Dequantize,
    MaxPool2d,
    Quantize,
    Reinterpret,
    Reshape,
    Softmax,
    Transpose,
)

Array = npt.NDArray[Any]

ONNX_MODELS = (
    "mnist_cnn_qdq_u8s8.onnx",
    "resnet20_cifar10_qdq_s8s8_pc.onnx",
    "resnet20_cifar10_qop_u8u8_pt.onnx",
)
TFLITE_MODELS = (
    "resnet8_cifar10_int8.tflite",
    "kws_dscnn_int8.tflite",
    "mobilenet_v1_0.25_128_uint8.tflite",
    "mobilenet_v2_1.0_224_ptq.tflite",
    "vww_96_int8.tflite",
    "ad01_autoencoder_int8.tflite",
)
#: The golden outputs that the integer graph equals bit for bit, and the one that it does not.
EXACT = {name: "ort" for name in ONNX_MODELS} | {
    name: "xnnpack" for name in TFLITE_MODELS if "v2" not in name
}


def images_in_the_middle(graph: Graph) -> list[str]:
    """Return the nodes that would interrupt a chain of NHWC operators on an accelerator."""
    kinds = [type(node.op) for node in graph.nodes]
    computing = [i for i, kind in enumerate(kinds) if kind in (Conv2d, Add, AveragePool2d)]
    middle = graph.nodes[computing[0] : computing[-1] + 1]
    return [
        n.name for n in middle if not isinstance(n.op, Conv2d | Add | AveragePool2d | MaxPool2d)
    ]


@pytest.mark.parametrize("name", ONNX_MODELS)
@pytest.mark.parametrize("sample", range(2))
def test_each_layer_of_an_onnx_model_equals_onnxruntime(
    name: str,
    sample: int,
    shared_models: Path,
    integer_graph: Callable[[str], Graph],
    golden_inputs: Callable[[str], Array],
    run_onnxruntime: Callable[..., dict[str, Array]],
) -> None:
    onnx = pytest.importorskip("onnx")
    graph = integer_graph(name)
    sources = [t.source for t in graph.tensors.values() if t.dtype is DataType.INT8]
    names = tuple(dict.fromkeys(source.name for source in sources if source is not None))
    samples = golden_inputs(name)
    feeds = {graph.inputs[0]: samples[sample % len(samples) :][:1]}
    model = onnx.load(str(shared_models / "models" / name))
    differences = compare_layers(graph, feeds, run_onnxruntime(model, feeds, names))
    compared = {difference.node for difference in differences}
    layers = {n.name for n in graph.nodes if isinstance(n.op, Conv2d | Add | AveragePool2d)}
    assert {d.node for d in differences if d.max_step} == set()
    # The first pooling of mnist shares its tensor with the convolution in front of it.
    assert len(layers - compared) <= 1


@pytest.mark.parametrize("name", TFLITE_MODELS)
@pytest.mark.parametrize("sample", range(2))
def test_each_layer_of_a_tflite_model_is_within_a_step_of_the_reference_kernels(
    name: str,
    sample: int,
    shared_models: Path,
    integer_graph: Callable[[str], Graph],
    golden_inputs: Callable[[str], Array],
    run_litert: Callable[..., dict[str, Array]],
) -> None:
    graph = integer_graph(name)
    samples = golden_inputs(name)
    feeds = {graph.inputs[0]: samples[sample % len(samples) :][:1]}
    model = (shared_models / "models" / name).read_bytes()
    differences = compare_layers(graph, feeds, run_litert(model, feeds))
    compared = {difference.node for difference in differences}
    computing = Conv2d | Add | AveragePool2d | Softmax
    assert {node.name for node in graph.nodes if isinstance(node.op, computing)} <= compared
    assert {d.node: d.max_step for d in differences if d.max_step > 1} == {}
    total = sum(d.elements for d in differences)
    assert sum(d.differing for d in differences) / total < 0.015


@pytest.mark.parametrize("name", sorted(EXACT))
def test_outputs_equal_the_golden_ones(
    name: str,
    shared_models: Path,
    integer_graph: Callable[[str], Graph],
    golden_inputs: Callable[[str], Array],
) -> None:
    golden = np.load(shared_models / "golden" / f"{name}.npz")
    graph = integer_graph(name)
    inputs = golden_inputs(name)
    output = evaluate(graph, {graph.inputs[0]: inputs})[graph.outputs[0]]
    runtime = EXACT[name]
    if f"{runtime}_out" in golden:
        expected = golden[f"{runtime}_out"][: len(inputs)]
    else:
        keys = [key for key in golden if key.startswith(f"{runtime}_out")]
        expected = np.concatenate([golden[key] for key in keys])
    assert np.array_equal(output, expected)


def test_mobilenet_v2_agrees_with_the_golden_classes(
    shared_models: Path,
    integer_graph: Callable[[str], Graph],
    golden_inputs: Callable[[str], Array],
) -> None:
    name = "mobilenet_v2_1.0_224_ptq.tflite"
    golden = np.load(shared_models / "golden" / f"{name}.npz")
    graph = integer_graph(name)
    inputs = golden_inputs(name)
    output = evaluate(graph, {graph.inputs[0]: inputs})[graph.outputs[0]]
    assert np.array_equal(
        output.argmax(axis=1), golden["xnnpack_out"][: len(inputs)].argmax(axis=1)
    )


@pytest.mark.parametrize("name", ONNX_MODELS + TFLITE_MODELS)
def test_a_network_is_one_chain_of_image_operators_between_host_operators(
    name: str, integer_graph: Callable[[str], Graph]
) -> None:
    graph = integer_graph(name)
    assert images_in_the_middle(graph) == []
    host = (Quantize, Dequantize, Reinterpret, Reshape, Softmax, Transpose)
    rest = [
        n for n in graph.nodes if not isinstance(n.op, Conv2d | Add | AveragePool2d | MaxPool2d)
    ]
    assert all(isinstance(node.op, host) for node in rest)
    assert len(rest) <= 5


def test_shortcuts_of_resnet20_are_convolutions(integer_graph: Callable[[str], Graph]) -> None:
    for name in ("resnet20_cifar10_qdq_s8s8_pc.onnx", "resnet20_cifar10_qop_u8u8_pt.onnx"):
        graph = integer_graph(name)
        kernels = [
            graph.constants[node.inputs[1]] for node in graph.nodes if isinstance(node.op, Conv2d)
        ]
        selections = [kernel for kernel in kernels if set(np.unique(kernel)) == {0, 1}]
        assert [kernel.shape for kernel in selections] == [(32, 1, 1, 16), (64, 1, 1, 32)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ONNX_MODELS + TFLITE_MODELS)
def test_accuracy_is_that_of_a_published_runtime_and_samples_simulate_to_the_same_bits(
    name: str, shared_models: Path, repository: Path
) -> None:
    script = runpy.run_path(str(repository / "benchmarks" / "accuracy.py"))
    (case,) = (case for case in script["CASES"] if case.model == name)
    assert script["run"](case, shared_models, 16, "pynq")


def test_mobilenet_v2_evaluates_in_less_than_a_second(
    integer_graph: Callable[[str], Graph], golden_inputs: Callable[[str], Array]
) -> None:
    name = "mobilenet_v2_1.0_224_ptq.tflite"
    graph = integer_graph(name)
    feeds = {graph.inputs[0]: golden_inputs(name)[:1]}
    times = []
    for _ in range(3):
        start = process_time()
        evaluate(graph, feeds)
        times.append(process_time() - start)
    assert min(times) < 1.0
