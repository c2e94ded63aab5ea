from pathlib import Path

import numpy as np
import pytest
from integer_graphs import GraphBuilder
from published_models import OPEN_SHAPES

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph
from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu
from tilewright.cpu_gpu_backends.gpu.device import KernelDevice
from tilewright.cpu_gpu_backends.gpu.model import GpuModel
from tilewright.runtime.inputs import random_inputs
from tilewright.runtime.model import load

#: The published networks of integers and of real numbers; those that take long are marked slow.
INTEGER = (
    "mnist_cnn_qdq_u8s8.onnx",
    "ad01_autoencoder_int8.tflite",
    "kws_dscnn_int8.tflite",
    pytest.param("mobilenet_v1_0.25_128_uint8.tflite", marks=pytest.mark.slow),
    pytest.param("mobilenet_v2_1.0_224_ptq.tflite", marks=pytest.mark.slow),
    pytest.param("resnet20_cifar10_qdq_s8s8_pc.onnx", marks=pytest.mark.slow),
    pytest.param("resnet20_cifar10_qop_u8u8_pt.onnx", marks=pytest.mark.slow),
    pytest.param("resnet8_cifar10_int8.tflite", marks=pytest.mark.slow),
    pytest.param("vww_96_int8.tflite", marks=pytest.mark.slow),
)
REAL = (
    "mnist_cnn.onnx",
    "kws_dscnn_float.tflite",
    pytest.param("blazeface_short_range.tflite", marks=pytest.mark.slow),
    pytest.param("efficientnet_lite0.onnx", marks=pytest.mark.slow),
    pytest.param("ppocr_cls_v2.onnx", marks=pytest.mark.slow),
    pytest.param("resnet20_cifar10.onnx", marks=pytest.mark.slow),
    pytest.param("resnet8_cifar10_float.tflite", marks=pytest.mark.slow),
    pytest.param("ultraface_rfb320.onnx", marks=pytest.mark.slow),
)
#: Largest difference of a network of real numbers, relative to the largest output.
TOLERANCE = 2e-5


def check_equal(graph: Graph, inputs: dict[str, np.ndarray], device: KernelDevice) -> None:
    program = compile_for_gpu(graph, device.capability, device.dialect)
    model = GpuModel.load(program, device)
    expected = evaluate(graph, inputs)
    # Twice: the second run finds what the first one left in the workspace.
    for _ in range(2):
        for name, values in model.run(inputs).items():
            np.testing.assert_array_equal(values, expected[name], name)
    model.close()


def residual_network() -> GraphBuilder:
    """A network whose tails read what other groups have computed, and views of tensors."""
    builder = GraphBuilder(seed=5)
    x = builder.input(1, 6, 6, 8)
    y = builder.conv(x, 16, kernel=(3, 3), pads=(1, 1, 1, 1))
    z = builder.conv(builder.conv(y, 16, groups=16), 16)
    total = builder.clip(builder.add(y, z), -90, 90)
    pooled = builder.average_pool(total, (6, 6), (6, 6), (0, 0, 0, 0))
    flat = builder.reshape(pooled, 1, 16)
    builder.outputs = [total, flat, builder.lookup(flat)]
    return builder


@pytest.mark.parametrize("fuse", [True, False])
def test_a_network_with_and_without_fusion(gpu: KernelDevice, fuse: bool) -> None:
    builder = residual_network()
    graph = builder.build(*builder.outputs)
    program = compile_for_gpu(graph, gpu.capability, gpu.dialect, fuse=fuse)
    inputs = builder.values(graph)
    results = GpuModel.load(program, gpu).run(inputs)
    for name, values in evaluate(graph, inputs).items():
        np.testing.assert_array_equal(results[name], values, name)
    # The sum and its limits belong to the last convolution.
    layers = [launch.layer for launch in program.launches]
    assert ("Add3" in layers) is not fuse


def test_a_tail_reads_the_tile_that_its_block_computes(gpu: KernelDevice) -> None:
    """An axis of one image, read as element 0 by a sum, does not widen what a block keeps."""
    builder = GraphBuilder(seed=6)
    x = builder.input(1, 12, 12, 32)
    plain = builder.conv(x, 32, kernel=(3, 3), pads=(1, 1, 1, 1))
    graph = builder.build(builder.add(x, builder.conv(plain, 32, kernel=(3, 3), pads=(1, 1, 1, 1))))
    program = compile_for_gpu(graph, gpu.capability, gpu.dialect)
    alone, with_tail = (launch.kernel.shared_bytes for launch in program.launches)
    assert with_tail == alone


@pytest.mark.parametrize("name", INTEGER)
def test_a_model_equals_the_integer_graph(
    gpu: KernelDevice, shared_models: Path, name: str
) -> None:
    graph = load(shared_models / "models" / name).graph
    check_equal(graph, random_inputs(graph, seed=1), gpu)


@pytest.mark.parametrize("name", REAL)
def test_a_model_of_real_numbers_is_close(
    gpu: KernelDevice, shared_models: Path, name: str
) -> None:
    graph = load(shared_models / "models" / name, shapes=OPEN_SHAPES.get(name)).graph
    inputs = random_inputs(graph, seed=1)
    model = GpuModel.load(compile_for_gpu(graph, gpu.capability, gpu.dialect), gpu)
    results = model.run(inputs)
    for one, values in evaluate(graph, inputs).items():
        limit = TOLERANCE * np.abs(values).max()
        np.testing.assert_allclose(results[one], values, rtol=0, atol=limit, err_msg=one)
    model.close()


def test_every_published_model_runs_here(shared_models: Path) -> None:
    named = {getattr(one, "values", (one,))[0] for one in (*INTEGER, *REAL)}
    files = (shared_models / "models").iterdir()
    assert named == {file.name for file in files if file.suffix in (".onnx", ".tflite")}
