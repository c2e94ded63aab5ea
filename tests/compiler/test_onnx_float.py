"""ONNX float networks that the node tests do not hold, against onnxruntime."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_networks import Network, serialized

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.passes.pipeline import lower_to_integer
from tilewright.compiler.readers.onnx_reader import read_onnx
from tilewright.isa.errors import ModelError

Array = npt.NDArray[Any]
RunOnnxruntime = Callable[..., dict[str, Array]]


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(0, 1, shape).astype(np.float32)


def agree(model: Any, feeds: dict[str, Array], run: RunOnnxruntime) -> None:
    """Demand the results of onnxruntime."""
    graph = lower_to_integer(read_onnx(serialized(model), "network"))
    found, expected = evaluate(graph, feeds), run(model, feeds)
    for name in graph.outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("keep", [0, 1])
def test_the_logarithm_of_a_sum_of_exponentials(
    keep: int, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    network.node("ReduceLogSumExp", ["x"], "y", axes=[1], keepdims=keep)
    agree(network.model({"x": (3, 5)}), {"x": 100 * normal(rng, 3, 5)}, run_onnxruntime)


def test_a_mask_of_integers_hides_entries(
    rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    mask = helper.make_tensor_value_info("mask", TensorProto.INT64, [2, 4])
    network = Network()
    network.node("Unsqueeze", ["mask", network.constant("a", np.array([1], np.int64))], "m3")
    network.node("Cast", ["m3"], "real", to=TensorProto.FLOAT)
    network.node("Sub", [network.constant("one", np.float32(1)), "real"], "inverse")
    network.node("Mul", ["inverse", network.constant("low", np.float32(-10000))], "bias")
    network.node("Add", ["x", "bias"], "scores")
    network.node("Softmax", ["scores"], "y", axis=-1)
    model = network.model({"x": (2, 4, 4)})
    model.graph.input.append(mask)
    feeds = {"x": normal(rng, 2, 4, 4), "mask": np.array([[1, 1, 0, 1], [1, 0, 0, 0]])}
    agree(model, feeds, run_onnxruntime)


def test_shape_arithmetic_is_computed_while_reading(
    rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    index = network.constant("i", np.array(0, np.int64))
    network.node("Shape", ["x"], "shape")
    network.node("Gather", ["shape", index], "batch")
    network.node("Unsqueeze", ["batch", network.constant("a", np.array([0], np.int64))], "batches")
    network.node(
        "Concat", ["batches", network.constant("r", np.array([-1], np.int64))], "s", axis=0
    )
    network.node("Reshape", ["x", "s"], "y")
    model = network.model({"x": (2, 3, 4)})
    agree(model, {"x": normal(rng, 2, 3, 4)}, run_onnxruntime)
    graph = lower_to_integer(read_onnx(serialized(model), "network"))
    assert len(graph.nodes) == 1


@pytest.mark.parametrize("groups", [1, 2])
def test_a_line_is_an_image_of_height_1(
    groups: int, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    w = network.constant("w", normal(rng, 6, 4 // groups, 3))
    network.node("Conv", ["x", w], "c", pads=[2, 1], strides=[2], group=groups)
    network.node("Relu", ["c"], "r")
    network.node("MaxPool", ["r"], "p", kernel_shape=[3], pads=[1, 0])
    v = network.constant("v", normal(rng, 6, 4 // groups, 4))
    network.node("ConvTranspose", ["p", v], "y", strides=[3], output_padding=[1], group=groups)
    model = network.model({"x": (2, 4, 11)})
    agree(model, {"x": normal(rng, 2, 4, 11)}, run_onnxruntime)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_constants_of_other_precision_are_widened(kind: int, rng: np.random.Generator) -> None:
    values = normal(rng, 4, 3)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    network = Network()
    network.node("Cast", ["w"], "real", to=TensorProto.FLOAT)
    network.node("MatMul", ["x", "real"], "y")
    model = network.model({"x": (2, 4)})
    model.graph.initializer.append(numpy_helper.from_array(values.astype(dtype), "w"))
    x = normal(rng, 2, 4)
    graph = lower_to_integer(read_onnx(serialized(model), "network"))
    expected = x @ values.astype(dtype).astype(np.float32)
    np.testing.assert_allclose(evaluate(graph, {"x": x})["y"], expected, rtol=1e-6, atol=1e-6)


def test_sizes_that_a_file_leaves_open_are_given(rng: np.random.Generator) -> None:
    network = Network()
    network.node("Relu", ["x"], "y")
    data = serialized(network.model({"x": ("N", 3, "H", 5)}))
    graph = read_onnx(data, "network", {"x": (2, 3, 4, 5)})
    assert graph.tensors["y"].shape == (2, 3, 4, 5)
    for shapes, message in (
        (
            {"x": (2, 3, 4, 6)},
            "input 'x' of shape ['N', 3, 'H', 5] cannot have the shape [2, 3, 4, 6]",
        ),
        ({"x": (2, 3, 0, 5)}, "input 'x' cannot have the shape [2, 3, 0, 5]"),
        ({"z": (2,)}, "there is no input 'z' to give a shape to"),
    ):
        with pytest.raises(ModelError) as caught:
            read_onnx(data, "network", shapes)
        assert str(caught.value) == message


def test_an_output_may_be_constant(run_onnxruntime: RunOnnxruntime) -> None:
    network = Network()
    network.node("Shape", ["x"], "y")
    network.node("Relu", ["x"], "z")
    model = network.model({"x": (2, 3)}, ("z",))
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.INT64, [2]))
    graph = lower_to_integer(read_onnx(serialized(model), "network"))
    found = evaluate(graph, {"x": np.zeros((2, 3), np.float32)})
    assert found["y"].tolist() == [2, 3]
