"""Functions that files spell out become one operator, and constants go into weights."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from float_networks import normal
from onnx_networks import Network, serialized

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import (
    FloatBinary,
    FloatConv2d,
    FloatConvTranspose2d,
    FloatDense,
    FloatLayerNorm,
    FloatUnary,
    Function,
    Reshape,
    Transpose,
)
from tilewright.compiler.passes.pipeline import lower_to_integer
from tilewright.compiler.passes.reshape_groups import reshape_before
from tilewright.compiler.readers.onnx_reader import read_onnx

Array = npt.NDArray[Any]
RunOnnxruntime = Callable[..., dict[str, Array]]


def number(network: Network, name: str, value: float) -> str:
    return network.constant(name, np.float32(value))


def silu(network: Network) -> None:
    network.node("Sigmoid", ["x"], "s")
    network.node("Mul", ["s", "x"], "y")


def mish(network: Network) -> None:
    network.node("Softplus", ["x"], "p")
    network.node("Tanh", ["p"], "t")
    network.node("Mul", ["x", "t"], "y")


def hard_swish_of_hard_sigmoid(network: Network) -> None:
    network.node("HardSigmoid", ["x"], "s", alpha=1 / 6, beta=0.5)
    network.node("Mul", ["x", "s"], "y")


def hard_swish_of_clip(network: Network) -> None:
    network.node("Add", ["x", number(network, "three", 3)], "a")
    network.node("Clip", ["a", number(network, "low", 0), number(network, "high", 6)], "c")
    network.node("Mul", ["x", "c"], "m")
    network.node("Div", ["m", number(network, "six", 6)], "y")


def hard_swish_divided_first(network: Network) -> None:
    network.node("Add", [number(network, "three", 3), "x"], "a")
    network.node("Clip", ["a", number(network, "low", 0), number(network, "high", 6)], "c")
    network.node("Mul", ["c", number(network, "sixth", 1 / 6)], "d")
    network.node("Mul", ["x", "d"], "y")


def gelu_halved_last(network: Network) -> None:
    network.node("Div", ["x", number(network, "root", math.sqrt(2))], "d")
    network.node("Erf", ["d"], "e")
    network.node("Add", ["e", number(network, "one", 1)], "a")
    network.node("Mul", ["x", "a"], "m")
    network.node("Mul", ["m", number(network, "half", 0.5)], "y")


def gelu_halved_first(network: Network) -> None:
    network.node("Mul", ["x", number(network, "half", 0.5)], "h")
    network.node("Mul", ["x", number(network, "root", math.sqrt(0.5))], "d")
    network.node("Erf", ["d"], "e")
    network.node("Add", [number(network, "one", 1), "e"], "a")
    network.node("Mul", ["h", "a"], "y")


def gelu_by_tanh(network: Network) -> None:
    network.node("Pow", ["x", number(network, "three", 3)], "cube")
    network.node("Mul", ["cube", number(network, "k", 0.044715)], "small")
    network.node("Add", ["x", "small"], "sum")
    network.node("Mul", ["sum", number(network, "root", math.sqrt(2 / math.pi))], "inner")
    network.node("Tanh", ["inner"], "t")
    network.node("Add", ["t", number(network, "one", 1)], "a")
    network.node("Mul", ["x", "a"], "m")
    network.node("Mul", [number(network, "half", 0.5), "m"], "y")


FUNCTIONS = {
    silu: Function.SILU,
    mish: Function.MISH,
    hard_swish_of_hard_sigmoid: Function.HARD_SWISH,
    hard_swish_of_clip: Function.HARD_SWISH,
    hard_swish_divided_first: Function.HARD_SWISH,
    gelu_halved_last: Function.GELU,
    gelu_halved_first: Function.GELU,
    gelu_by_tanh: Function.GELU_TANH,
}


def lowered(model: Any, x: Array, run: RunOnnxruntime) -> Graph:
    """Return the graph, whose result must be that of onnxruntime."""
    graph = lower_to_integer(read_onnx(serialized(model), "network"))
    expected = run(model, {"x": x})["y"]
    np.testing.assert_allclose(evaluate(graph, {"x": x})["y"], expected, rtol=1e-5, atol=1e-5)
    return graph


@pytest.mark.parametrize("build", FUNCTIONS)
def test_a_function_in_pieces_becomes_one(
    build: Callable[[Network], None], rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    build(network)
    graph = lowered(network.model({"x": (4, 50)}), 3 * normal(rng, 4, 50), run_onnxruntime)
    assert [node.op for node in graph.nodes] == [FloatUnary(function=FUNCTIONS[build])]


def test_what_only_resembles_a_function_stays(
    rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    network.node("Sigmoid", ["x"], "s")
    network.node("Neg", ["x"], "n")
    network.node("Mul", ["n", "s"], "y")
    graph = lowered(network.model({"x": (4, 5)}), normal(rng, 4, 5), run_onnxruntime)
    assert len(graph.nodes) == 3


@pytest.mark.parametrize("squared", ["Pow", "Mul"])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("axis", [-1, 1])
def test_a_layer_norm_in_pieces(
    squared: str,
    affine: bool,
    axis: int,
    rng: np.random.Generator,
    run_onnxruntime: RunOnnxruntime,
) -> None:
    network = Network()
    network.node("ReduceMean", ["x"], "mean", axes=[axis])
    network.node("Sub", ["x", "mean"], "d")
    other = "d" if squared == "Mul" else number(network, "two", 2)
    network.node(squared, ["d", other], "sq")
    network.node("ReduceMean", ["sq"], "var", axes=[axis])
    network.node("Add", ["var", number(network, "eps", 1e-5)], "v")
    network.node("Sqrt", ["v"], "r")
    network.node("Div", ["d", "r"], "n" if affine else "y")
    if affine:
        network.node("Mul", ["n", network.constant("g", normal(rng, 6))], "m")
        network.node("Add", ["m", network.constant("b", normal(rng, 6))], "y")
    graph = lowered(network.model({"x": (2, 5, 6)}), normal(rng, 2, 5, 6), run_onnxruntime)
    kinds = [type(node.op) for node in graph.nodes]
    assert (kinds == [FloatLayerNorm]) == (axis == -1)


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose", "MatMul"])
def test_factors_and_addends_go_into_the_weights(
    kind: str, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    line = kind == "MatMul"
    shape = (6,) if line else (6, 1, 1)
    w = normal(rng, 4, 6) if line else normal(rng, *((6, 4) if kind == "Conv" else (4, 6)), 3, 3)
    network.node(kind, ["x", network.constant("w", w)], "c")
    network.node("Mul", ["c", network.constant("m", normal(rng, *shape))], "f")
    network.node("Add", [network.constant("a", normal(rng, *shape)), "f"], "g")
    network.node("Sub", ["g", number(network, "s", 0.7)], "h")
    network.node("Div", ["h", number(network, "d", 3)], "y")
    size = (3, 4) if line else (1, 4, 5, 6)
    graph = lowered(network.model({"x": size}), normal(rng, *size), run_onnxruntime)
    layers = FloatConv2d | FloatConvTranspose2d | FloatDense
    assert sum(isinstance(node.op, layers) for node in graph.nodes) == 1
    assert not any(isinstance(node.op, FloatBinary) for node in graph.nodes)


def test_a_layer_that_others_read_keeps_its_weights(
    rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    network.node("MatMul", ["x", network.constant("w", normal(rng, 4, 6))], "c")
    network.node("Mul", ["c", number(network, "m", 2.5)], "f")
    network.node("Add", ["f", "c"], "y")
    graph = lowered(network.model({"x": (3, 4)}), normal(rng, 3, 4), run_onnxruntime)
    assert sum(isinstance(node.op, FloatBinary) for node in graph.nodes) == 2


def test_tokens_of_an_image_need_no_transposition(
    rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    network.node("Conv", ["x", network.constant("w", normal(rng, 8, 3, 2, 2))], "c", strides=[2, 2])
    network.node("Reshape", ["c", network.constant("s", np.array([1, 8, 12]))], "r")
    network.node("Transpose", ["r"], "t", perm=[0, 2, 1])
    network.node("MatMul", ["t", network.constant("m", normal(rng, 8, 5))], "y")
    graph = lowered(network.model({"x": (1, 3, 6, 8)}), normal(rng, 1, 3, 6, 8), run_onnxruntime)
    kinds = [type(node.op) for node in graph.nodes]
    assert kinds == [Transpose, FloatConv2d, Reshape, FloatDense]


def test_a_reshape_changes_places_with_a_transposition(rng: np.random.Generator) -> None:
    """Random shapes: whatever is returned computes the same."""
    moved = 0
    for _ in range(300):
        shape = tuple(int(size) for size in rng.choice([1, 2, 3, 4], rng.integers(1, 5)))
        permutation = tuple(int(axis) for axis in rng.permutation(len(shape)))
        x = np.arange(math.prod(shape)).reshape(shape)
        before = x.transpose(permutation)
        sizes = [size for size in before.shape if size > 1]
        split = [part for size in sizes for part in ((2, 2) if size == 4 else (size,))]
        merged = [math.prod(split[:2]), *split[2:]] if rng.random() < 0.5 else split
        target = tuple(int(size) for size in [1] * int(rng.integers(0, 2)) + merged)
        found = reshape_before(shape, permutation, target)
        if found is not None:
            reshaped, order = found
            np.testing.assert_array_equal(
                x.reshape(reshaped).transpose(order), before.reshape(target)
            )
            moved += permutation != tuple(sorted(permutation))
    assert moved > 30
