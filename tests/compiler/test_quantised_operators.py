"""Quantised operators beyond convolutions alone, against onnxruntime and LiteRT's kernels."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx_networks import Network, Scale, serialized
from stepping import run_compiled
from tflite_writer import OperatorSpec, TensorSpec, write_tflite

from tilewright.compiler.compile import compile_graph
from tilewright.compiler.compiled import Target
from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.operators import (
    Add,
    AveragePool2d,
    ConvTranspose2d,
    FloatOperator,
    LayerNorm,
    Lookup,
    MatMul,
    Mul,
    Upsample2d,
)
from tilewright.compiler.passes.pipeline import lower_to_integer
from tilewright.compiler.readers.onnx_reader import read_onnx
from tilewright.compiler.readers.tflite_reader import read_tflite
from tilewright.isa.presets import PRESETS

Array = npt.NDArray[Any]
Adder = Callable[[Network, str, str], str]
RunOnnxruntime = Callable[..., dict[str, Array]]
RunLitert = Callable[[bytes, Mapping[str, Array]], dict[str, Array]]

# Scales whose ratios are no small fractions: sums then rarely lie half between two steps.
A = Scale(scale=0.03127, zero_point=np.int8(9))
B = Scale(scale=0.01713, zero_point=np.int8(-20))
Y = Scale(scale=0.05039, zero_point=np.int8(5))


def transposed(network: Network, a: str, rng: np.random.Generator, channels: bool) -> str:
    """Add a transposed convolution of ``[1, 4, 5, 6]``, its weights per channel or not."""
    values = rng.integers(-127, 128, (4, 3, 3, 4)).astype(np.int8)
    scale = rng.uniform(0.002, 0.01, 3) if channels else np.array(0.004)
    w = network.weights("w", values, scale, np.zeros(scale.shape), axis=1)
    bias = network.constant("b", rng.normal(0, 1, 3).astype(np.float32))
    attributes = {"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 0]}
    return network.node("ConvTranspose", [a, w, bias], "f", **attributes)


def one(kind: str, **attributes: Any) -> Adder:
    """Return what adds an operator of one operand."""
    return lambda network, a, b: network.node(kind, [a], "f", **attributes)


def two(kind: str) -> Adder:
    """Return what adds an operator of two operands."""
    return lambda network, a, b: network.node(kind, [a, b], "f")


def with_number(kind: str, value: float) -> Adder:
    """Return what adds an operator of an operand and a constant number."""

    def add(network: Network, a: str, b: str) -> str:
        return network.node(kind, [a, network.constant("number", np.float32(value))], "f")

    return add


def doubled(network: Network, a: str, b: str) -> str:
    """Add a resize to the nearest by 2 and 3."""
    scales = network.constant("scales", np.array([1, 1, 2, 3], np.float32))
    modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return network.node("Resize", [a, "", scales], "f", mode="nearest", **modes)


def normalised(network: Network, a: str, b: str) -> str:
    """Add a layer normalisation over the last axis, of 6."""
    rng = np.random.default_rng(3)
    gain = network.constant("gain", rng.uniform(0.5, 1.5, 6).astype(np.float32))
    offset = network.constant("offset", rng.normal(0, 0.3, 6).astype(np.float32))
    return network.node("LayerNormalization", [a, gain, offset], "f", axis=-1)


IMAGE = (1, 4, 5, 6)
#: What adds the operator, the shapes of both inputs, and what it becomes.
CASES: dict[str, tuple[Adder, tuple[int, ...], tuple[int, ...], type[Any]]] = {
    "product of matrices": (two("MatMul"), (2, 3, 5, 8), (2, 3, 8, 4), MatMul),
    "product of broadcast matrices": (two("MatMul"), (2, 3, 5, 8), (8, 4), MatMul),
    "product": (two("Mul"), IMAGE, IMAGE, Mul),
    "product with a gate per channel": (two("Mul"), IMAGE, (1, 4, 1, 1), Mul),
    "difference": (two("Sub"), IMAGE, IMAGE, Add),
    "sum with a row": (two("Add"), (2, 5, 6), (6,), Add),
    "sum with a channel": (two("Add"), IMAGE, (4, 1, 1), Add),
    "nearest": (doubled, IMAGE, IMAGE, Upsample2d),
    "layer norm": (normalised, (2, 5, 6), (1,), LayerNorm),
    "gelu": (one("Gelu"), IMAGE, (1,), Lookup),
    "gelu by tanh": (one("Gelu", approximate="tanh"), IMAGE, (1,), Lookup),
    "mish": (one("Mish"), IMAGE, (1,), Lookup),
    "exponential": (one("Exp"), IMAGE, (1,), Lookup),
    "scaled": (with_number("Mul", 0.37), IMAGE, (1,), Lookup),
    "divided": (with_number("Div", 8.0), IMAGE, (1,), Lookup),
    "raised": (with_number("Add", 1.3), IMAGE, (1,), Lookup),
    "powered": (with_number("Pow", 2.0), IMAGE, (1,), Lookup),
    "mean of tokens": (one("ReduceMean", axes=[1]), (2, 5, 6), (1,), AveragePool2d),
    "mean of channels": (one("ReduceMean", axes=[2]), (2, 5, 6), (1,), AveragePool2d),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_an_onnx_operator(
    case: str, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    add, a_shape, b_shape, kind = CASES[case]
    network = Network(opset=20 if "gelu" in case or case == "mish" else 17)
    a, b = network.quantized_input("a", A), network.quantized_input("b", B)
    network.finish(add(network, a, b), Y)
    network.node("Identity", [b], "unused")
    model = network.model({"a": a_shape, "b": b_shape}, ("y", "unused"))
    check_steps(model, {"a": a_shape, "b": b_shape}, kind, rng, run_onnxruntime)


#: Of the above, with operands that the accelerator takes as they are.
ON_ACCELERATOR = (
    "product of matrices",
    "product",
    "product with a gate per channel",
    "difference",
    "nearest",
)


@pytest.mark.parametrize("case", ON_ACCELERATOR)
def test_an_onnx_operator_on_the_accelerator(
    case: str, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    add, a_shape, b_shape, kind = CASES[case]
    network = Network()
    a, b = network.quantized_input("a", A), network.quantized_input("b", B)
    network.finish(add(network, a, b), Y)
    network.node("Identity", [b], "unused")
    model = network.model({"a": a_shape, "b": b_shape}, ("y", "unused"))
    compiled = compile_graph(
        lower_to_integer(read_onnx(serialized(model), "network")), PRESETS["tiny"]
    )
    targets = [entry.target for entry in compiled.placement if entry.operator == kind.__name__]
    assert targets == [Target.ACCELERATOR]
    feeds = {
        name: rng.uniform(-4, 4, shape).astype(np.float32)
        for name, shape in (("a", a_shape), ("b", b_shape))
    }
    found, expected = run_compiled(compiled, feeds)[0]["y"], run_onnxruntime(model, feeds)["y"]
    steps = np.rint(np.abs(found - expected) / Y.scale)
    assert steps.max() <= 1
    assert np.mean(steps) < 0.01


@pytest.mark.parametrize("channels", [False, True])
def test_a_transposed_convolution(
    channels: bool, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    real = transposed(network, network.quantized_input("a", A), rng, channels)
    network.finish(real, Y)
    check_steps(network.model({"a": IMAGE}), {"a": IMAGE}, ConvTranspose2d, rng, run_onnxruntime)


def check_steps(
    model: Any,
    shapes: Mapping[str, tuple[int, ...]],
    kind: type[Any],
    rng: np.random.Generator,
    run_onnxruntime: RunOnnxruntime,
) -> None:
    """Demand an integer operator whose result is at most a step from onnxruntime's."""
    graph = lower_to_integer(read_onnx(serialized(model), "network"))
    assert any(isinstance(node.op, kind) for node in graph.nodes)
    assert not any(isinstance(node.op, FloatOperator) for node in graph.nodes)
    for _ in range(5):
        feeds = {n: rng.uniform(-4, 4, s).astype(np.float32) for n, s in shapes.items()}
        found, expected = evaluate(graph, feeds)["y"], run_onnxruntime(model, feeds)["y"]
        steps = np.rint(np.abs(found - expected) / Y.scale)
        assert found.shape == expected.shape
        assert steps.max() <= 1
        assert np.mean(steps) < 0.01


@pytest.mark.parametrize("kind", ["Div", "Max", "PRelu"])
def test_what_has_no_integer_form_is_computed_on_the_host(
    kind: str, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    a, b = network.quantized_input("a", A), network.quantized_input("b", B)
    network.finish(network.node(kind, [a, b], "f"), Y)
    model = network.model({"a": IMAGE, "b": IMAGE})
    graph = lower_to_integer(read_onnx(serialized(model), "network"))
    assert sum(isinstance(node.op, FloatOperator) for node in graph.nodes) == 1
    feeds = {n: rng.uniform(-2, 2, IMAGE).astype(np.float32) for n in ("a", "b")}
    found, expected = evaluate(graph, feeds)["y"], run_onnxruntime(model, feeds)["y"]
    # A quotient by what is quantised to 0 is infinite, and so at the end of the range.
    assert np.abs(found - expected).max() <= Y.scale * 1.001


def int8(name: str, shape: tuple[int, ...], scale: float, zero: int) -> TensorSpec:
    return TensorSpec(name=name, shape=shape, scale=(scale,), zero_point=(zero,))


TFLITE: dict[str, tuple[list[TensorSpec], str, tuple[tuple[str, float], ...], type[Any]]] = {
    "MUL": (
        [int8("a", IMAGE, 0.03, 3), int8("b", (1, 1, 1, 6), 0.02, -9), int8("y", IMAGE, 0.05, 7)],
        "MulOptions", (), Mul,
    ),
    "SUB": (
        [int8("a", IMAGE, 0.03, 3), int8("b", IMAGE, 0.02, -9), int8("y", IMAGE, 0.05, 7)],
        "SubOptions", (), Add,
    ),
    "BATCH_MATMUL": (
        [
            int8("a", (2, 5, 8), 0.03, 3),
            int8("b", (2, 8, 4), 0.02, 9),
            int8("y", (2, 5, 4), 0.1, 7),
        ],
        "BatchMatMulOptions", (), MatMul,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(TFLITE))
def test_a_tflite_operator(name: str, rng: np.random.Generator, run_litert: RunLitert) -> None:
    tensors, options_type, options, kind = TFLITE[name]
    operator = OperatorSpec(
        name=name, inputs=(0, 1), outputs=(2,), options_type=options_type, options=options
    )
    model = write_tflite(tensors, [operator], [0, 1], [2])
    graph = lower_to_integer(read_tflite(model, "single"))
    assert any(isinstance(node.op, kind) for node in graph.nodes)
    feeds = {t.name: rng.integers(-128, 128, t.shape, dtype=np.int8) for t in tensors[:2]}
    found = evaluate(graph, feeds)["y"].astype(np.int32)
    steps = np.abs(found - run_litert(model, feeds)["y"])
    assert steps.max() <= 1
    assert np.mean(steps) < 0.02


def test_a_transposed_convolution_of_tflite(
    rng: np.random.Generator, run_litert: RunLitert
) -> None:
    weights = rng.integers(-127, 128, (5, 3, 4, 8)).astype(np.int8)
    scales = tuple(rng.uniform(0.002, 0.01, 5).tolist())
    size = np.array([1, 12, 14, 5], np.int32)
    tensors = [
        TensorSpec(name="s", shape=(4,), dtype="int32", data=size),
        TensorSpec(name="w", shape=weights.shape, scale=scales, zero_point=(0,) * 5, data=weights),
        int8("x", (1, 4, 6, 8), 0.03, 3),
        int8("y", (1, 12, 14, 5), 0.1, -7),
    ]
    operator = OperatorSpec(
        name="TRANSPOSE_CONV",
        inputs=(0, 1, 2),
        outputs=(3,),
        options_type="TransposeConvOptions",
        options=(("Padding", 1), ("StrideW", 2), ("StrideH", 3)),
    )
    model = write_tflite(tensors, [operator], [2], [3])
    graph = lower_to_integer(read_tflite(model, "single"))
    assert any(isinstance(node.op, ConvTranspose2d) for node in graph.nodes)
    feeds = {"x": rng.integers(-128, 128, (1, 4, 6, 8), dtype=np.int8)}
    found = evaluate(graph, feeds)["y"].astype(np.int32)
    steps = np.abs(found - run_litert(model, feeds)["y"])
    assert steps.max() <= 1
    assert np.mean(steps) < 0.02
