"""Float networks as machine code against onnxruntime and LiteRT."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from convolutions import CASES, convolution
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.compiler.evaluate import evaluate
from tilewright.cpu_gpu_backends.codegen.target import host_target
from tilewright.cpu_gpu_backends.cpu.lower import lower_graph
from tilewright.cpu_gpu_backends.cpu.native import load_program
from tilewright.runtime.inputs import random_inputs

#: Largest difference, relative to the largest output; large Winograd tiles lose two or three bits.
TOLERANCE = 2e-5
#: Elements of an image that is not run with bounds checks.
LARGE = 10_000
MODELS = (
    "kws_dscnn_float.tflite",
    "mnist_cnn.onnx",
    "resnet20_cifar10.onnx",
    "resnet8_cifar10_float.tflite",
)


@pytest.mark.parametrize("name", MODELS)
def test_shared_models_are_close_to_the_graph(name: str, shared_models: Path) -> None:
    graph = tw.load(shared_models / "models" / name).graph
    program = load_program(lower_graph(graph, host_target()), host_target())
    inputs = random_inputs(graph, 0)
    results = program.run([inputs[one] for one in graph.inputs], threads=2)
    for expected, found in zip(evaluate(graph, inputs).values(), results, strict=True):
        error = np.abs(found.reshape(expected.shape) - expected).max()
        assert error <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("case", CASES)
def test_convolutions_are_close_to_onnxruntime(
    case: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    image, outputs, kernel, attributes = CASES[case]
    path = tmp_path / "conv.onnx"
    onnx.save(convolution(rng, image, outputs, kernel, **attributes), path)
    x = rng.standard_normal(image).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    graph = tw.load(path).graph
    # With bounds checked the large image takes long to compile and adds nothing.
    for check_bounds in (False, True)[: 1 + (x.size < LARGE)]:
        program = load_program(
            lower_graph(graph, host_target()), host_target(), check_bounds=check_bounds
        )
        (found,) = program.run([x], threads=2)
        error = np.abs(found.reshape(expected.shape) - expected).max()
        assert error <= TOLERANCE * np.abs(expected).max()


def attention(rng: np.random.Generator, tokens: int, heads: int, width: int) -> onnx.ModelProto:
    """An encoder block: attention, layer norm, and a layer with GELU; rank three throughout."""
    features = heads * width
    constants: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def constant(values: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(values, f"c{len(constants)}"))
        return constants[-1].name

    def node(kind: str, *inputs: str, **attributes: object) -> str:
        output = f"{kind}{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def dense(x: str) -> str:
        weights = rng.standard_normal((features, features)).astype(np.float32) / features**0.5
        return node("Add", node("MatMul", x, constant(weights)), constant(weights[0].copy()))

    def split(x: str, *order: int) -> str:
        shape = constant(np.array([2, tokens, heads, width]))
        return node("Transpose", node("Reshape", x, shape), perm=order)

    scores = node("MatMul", split(dense("x"), 0, 2, 1, 3), split(dense("x"), 0, 2, 3, 1))
    shares = node("Softmax", node("Mul", scores, constant(np.float32(width**-0.5))), axis=-1)
    mixed = node("MatMul", shares, split(dense("x"), 0, 2, 1, 3))
    merged = node("Transpose", mixed, perm=[0, 2, 1, 3])
    joined = node("Reshape", merged, constant(np.array([2, tokens, features])))
    total = node("Add", dense(joined), "x")
    ones, zeros = np.ones(features, np.float32), np.zeros(features, np.float32)
    normal = node("LayerNormalization", total, constant(ones), constant(zeros), axis=-1)
    inner = dense(normal)
    ratio = node("Div", inner, constant(np.float32(2**0.5)))
    grown = node("Add", node("Erf", ratio), constant(np.float32(1)))
    result = node("Mul", node("Mul", inner, grown), constant(np.float32(0.5)))
    shape = (2, tokens, features)
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, shape)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("tokens", "heads", "width"), [(32, 2, 16), (19, 3, 5)])
def test_an_encoder_is_close_to_onnxruntime(
    tokens: int, heads: int, width: int, tmp_path: Path, rng: np.random.Generator
) -> None:
    path = tmp_path / "encoder.onnx"
    onnx.save(attention(rng, tokens, heads, width), path)
    x = rng.standard_normal((2, tokens, heads * width)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    graph = tw.load(path).graph
    for check_bounds in (False, True):
        program = load_program(
            lower_graph(graph, host_target()), host_target(), check_bounds=check_bounds
        )
        (found,) = program.run([x], threads=2)
        error = np.abs(found.reshape(expected.shape) - expected).max()
        assert error <= TOLERANCE * np.abs(expected).max()
