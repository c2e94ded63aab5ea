"""Every ONNX operator alone, against onnxruntime."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx_networks import Network, Scale, serialized

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.passes.pipeline import lower_to_integer
from tilewright.compiler.readers.onnx_reader import MICROSOFT_HANDLERS, read_onnx
from tilewright.isa.errors import ModelError

Array = npt.NDArray[Any]
RunOnnxruntime = Callable[..., dict[str, Array]]

X = Scale(scale=0.05, zero_point=np.uint8(117))
Y = Scale(scale=0.07, zero_point=np.uint8(140))
SIGNED_X = Scale(scale=0.05, zero_point=np.int8(-11))
SIGNED_Y = Scale(scale=0.07, zero_point=np.int8(12))
SIGNS = {"uint8": (X, Y), "int8": (SIGNED_X, SIGNED_Y)}


def steps(
    model: Any, inputs: Mapping[str, Array], run: RunOnnxruntime, scale: float
) -> npt.NDArray[np.int64]:
    """Return the differences to onnxruntime in steps of the output's scale."""
    graph = lower_to_integer(read_onnx(serialized(model), "network"))
    output = evaluate(graph, inputs)["y"]
    expected = run(model, inputs)["y"]
    assert output.shape == expected.shape
    assert output.dtype == expected.dtype == np.float32
    difference: npt.NDArray[np.int64] = np.rint(np.abs(output - expected) / scale).astype(np.int64)
    return difference


def reals(rng: np.random.Generator, *shape: int) -> Array:
    """Return values over about the range of the input's quantisation."""
    return rng.uniform(-7, 7, shape).astype(np.float32)


def per_channel(rng: np.random.Generator, outputs: int) -> Array:
    return rng.uniform(0.002, 0.02, outputs).astype(np.float32)


CONVOLUTIONS = {
    "plain": ({"pads": [1, 1, 1, 1]}, (8, 6, 3, 3)),
    "stride": ({"pads": [0, 1, 1, 0], "strides": [2, 3]}, (8, 6, 3, 3)),
    "dilation": ({"dilations": [2, 1], "pads": [2, 0, 2, 0]}, (8, 6, 3, 2)),
    "same_upper": ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (8, 6, 4, 3)),
    "same_lower": ({"auto_pad": "SAME_LOWER", "strides": [2, 2]}, (8, 6, 4, 3)),
    "valid": ({"auto_pad": "VALID"}, (8, 6, 1, 1)),
    "groups": ({"group": 3}, (9, 2, 3, 3)),
    "depthwise": ({"group": 6, "pads": [1, 1, 1, 1]}, (6, 1, 3, 3)),
    "multiplier": ({"group": 6}, (12, 1, 2, 2)),
}


@pytest.mark.parametrize("case", sorted(CONVOLUTIONS))
@pytest.mark.parametrize("sign", ["uint8", "int8"])
@pytest.mark.parametrize("relu", [False, True])
def test_qdq_convolution_per_channel(
    case: str, sign: str, relu: bool, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    attributes, shape = CONVOLUTIONS[case]
    x_scale, y_scale = SIGNS[sign]
    network = Network()
    scales = per_channel(rng, shape[0])
    weights = rng.integers(-127, 128, shape, dtype=np.int8)
    bias = rng.integers(-2000, 2000, shape[0], dtype=np.int32)
    operands = [
        network.quantized_input("x", x_scale),
        network.weights("w", weights, scales, np.zeros(shape[0])),
        network.weights("b", bias, scales * np.float32(x_scale.scale), np.zeros(shape[0])),
    ]
    real = network.node("Conv", operands, "c", **attributes)
    if relu:
        real = network.node("Relu", [real], "r")
    network.finish(real, y_scale)
    model = network.model({"x": (2, 6, 9, 10)})
    difference = steps(model, {"x": reals(rng, 2, 6, 9, 10)}, run_onnxruntime, y_scale.scale)
    assert difference.max() <= 1
    assert np.mean(difference) < 0.001


@pytest.mark.parametrize("case", sorted(CONVOLUTIONS))
def test_qlinear_convolution_with_zero_points_of_weights(
    case: str, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    attributes, shape = CONVOLUTIONS[case]
    network = Network()
    weights = network.constant("w", rng.integers(0, 256, shape, dtype=np.uint8))
    w_scale = Scale(scale=0.006, zero_point=np.uint8(100))
    operands = [
        network.quantize("x", "x_q", X),
        *network.parameters("x_again", X),
        weights,
        *network.parameters("w", w_scale),
        *network.parameters("y_first", Y),
        network.constant("b", rng.integers(-2000, 2000, shape[0], dtype=np.int32)),
    ]
    network.node("QLinearConv", operands, "c", **attributes)
    network.dequantize("c", "y", Y)
    model = network.model({"x": (1, 6, 9, 10)})
    difference = steps(model, {"x": reals(rng, 1, 6, 9, 10)}, run_onnxruntime, Y.scale)
    assert difference.max() <= 1
    assert np.mean(difference) < 0.001


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("with_bias", [False, True])
def test_qdq_gemm(
    transposed: int, with_bias: bool, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    shape = (5, 40) if transposed else (40, 5)
    values = rng.integers(-127, 128, shape, dtype=np.int8)
    operands = [
        network.quantized_input("x", SIGNED_X),
        network.weights("w", values, np.float32(0.01), np.int8(0)),
    ]
    if with_bias:
        bias = rng.integers(-2000, 2000, 5, dtype=np.int32)
        operands.append(network.weights("b", bias, np.float32(0.0005), np.int32(0)))
    network.finish(network.node("Gemm", operands, "g", transB=transposed), SIGNED_Y)
    model = network.model({"x": (3, 40)})
    difference = steps(model, {"x": reals(rng, 3, 40)}, run_onnxruntime, SIGNED_Y.scale)
    assert difference.max() <= 1


@pytest.mark.parametrize("bias_kind", ["none", "integer", "real"])
def test_matmul_and_the_sum_behind_it(
    bias_kind: str, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    values = rng.integers(-127, 128, (40, 5), dtype=np.int8)
    scales = per_channel(rng, 5)
    operands = [
        network.quantized_input("x", SIGNED_X),
        network.weights("w", values, scales, np.zeros(5), axis=1),
    ]
    real = network.node("MatMul", operands, "m")
    if bias_kind == "integer":
        bias = rng.integers(-2000, 2000, 5, dtype=np.int32)
        vector = network.weights("b", bias, np.float32(0.05) * scales, np.zeros(5))
        real = network.node("Add", [real, vector], "a")
    if bias_kind == "real":
        vector = network.constant("b", rng.normal(0, 1, 5).astype(np.float32))
        real = network.node("Add", [vector, real], "a")
    network.finish(real, SIGNED_Y)
    model = network.model({"x": (3, 40)})
    difference = steps(model, {"x": reals(rng, 3, 40)}, run_onnxruntime, SIGNED_Y.scale)
    assert difference.max() <= 1


def test_qlinear_matmul(rng: np.random.Generator, run_onnxruntime: RunOnnxruntime) -> None:
    network = Network()
    operands = [
        network.quantize("x", "x_q", X),
        *network.parameters("x_again", X),
        network.constant("w", rng.integers(0, 256, (40, 5), dtype=np.uint8)),
        *network.parameters("w", Scale(scale=0.01, zero_point=np.uint8(120))),
        *network.parameters("y_first", Y),
    ]
    network.node("QLinearMatMul", operands, "m")
    network.dequantize("m", "y", Y)
    model = network.model({"x": (3, 40)})
    assert steps(model, {"x": reals(rng, 3, 40)}, run_onnxruntime, Y.scale).max() <= 1


def test_qgemm(rng: np.random.Generator, run_onnxruntime: RunOnnxruntime) -> None:
    network = Network()
    scales = per_channel(rng, 5)
    operands = [
        network.quantize("x", "x_q", X),
        *network.parameters("x_again", X),
        network.constant("w", rng.integers(-127, 128, (40, 5), dtype=np.int8)),
        network.constant("w_scale", scales),
        network.constant("w_zero", np.zeros(5, np.int8)),
        network.constant("b", rng.integers(-2000, 2000, 5, dtype=np.int32)),
        *network.parameters("y_first", Y),
    ]
    network.node("com.microsoft.QGemm", operands, "g", transB=0)
    network.dequantize("g", "y", Y)
    model = network.model({"x": (3, 40)})
    assert steps(model, {"x": reals(rng, 3, 40)}, run_onnxruntime, Y.scale).max() <= 1


@pytest.mark.parametrize("form", ["QDQ", "QLinearAdd"])
@pytest.mark.parametrize("sign", ["uint8", "int8"])
def test_sum_of_two_tensors(
    form: str, sign: str, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    kind = np.uint8 if sign == "uint8" else np.int8
    a, b = Scale(scale=0.031, zero_point=kind(50)), Scale(scale=0.0713, zero_point=kind(100))
    _, result = SIGNS[sign]
    network = Network()
    if form == "QDQ":
        operands = [network.quantized_input("a", a), network.quantized_input("b", b)]
        network.finish(network.node("Add", operands, "s"), result)
    else:
        operands = [
            network.quantize("a", "a_q", a),
            *network.parameters("a_again", a),
            network.quantize("b", "b_q", b),
            *network.parameters("b_again", b),
            *network.parameters("s", result),
        ]
        network.node("com.microsoft.QLinearAdd", operands, "s")
        network.dequantize("s", "y", result)
    model = network.model({"a": (2, 5, 40, 40), "b": (2, 5, 40, 40)})
    feeds = {"a": reals(rng, 2, 5, 40, 40), "b": reals(rng, 2, 5, 40, 40)}
    difference = steps(model, feeds, run_onnxruntime, result.scale)
    assert difference.max() <= 1
    assert np.mean(difference) < 0.001


POOLINGS = {
    "plain": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "padded": {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 1]},
    "same": {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
    "ceiling": {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
}


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        (case, kind)
        for case in POOLINGS
        for kind in ("MaxPool", "AveragePool", "counted")
        if (case, kind) != ("ceiling", "counted")  # refused
    ],
)
def test_pooling(
    case: str, kind: str, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    op_type = "MaxPool" if kind == "MaxPool" else "AveragePool"
    extra = {"count_include_pad": 1} if kind == "counted" else {}
    x = network.quantized_input("x", X)
    pooled = network.node(op_type, [x], "p", **POOLINGS[case], **extra)
    scale = X if kind == "MaxPool" else Y
    network.finish(pooled, scale)
    model = network.model({"x": (1, 5, 10, 8)})
    difference = steps(model, {"x": reals(rng, 1, 5, 10, 8)}, run_onnxruntime, scale.scale)
    assert difference.max() <= (0 if kind == "MaxPool" else 1)


def test_qlinear_average_pool(rng: np.random.Generator, run_onnxruntime: RunOnnxruntime) -> None:
    network = Network()
    operands = [
        network.quantize("x", "x_q", X),
        *network.parameters("x_again", X),
        *network.parameters("y_first", Y),
    ]
    kind = "com.microsoft.QLinearAveragePool"
    network.node(kind, operands, "p", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    network.dequantize("p", "y", Y)
    model = network.model({"x": (1, 5, 10, 8)})
    assert steps(model, {"x": reals(rng, 1, 5, 10, 8)}, run_onnxruntime, Y.scale).max() <= 1


@pytest.mark.parametrize("form", ["GlobalAveragePool", "ReduceMean", "QLinear", "vector"])
def test_global_average(
    form: str, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    if form == "QLinear":
        operands = [
            network.quantize("x", "x_q", X),
            *network.parameters("x_again", X),
            *network.parameters("y_first", Y),
        ]
        network.node("com.microsoft.QLinearGlobalAveragePool", operands, "p", channels_last=0)
        network.dequantize("p", "y", Y)
    else:
        x = network.quantized_input("x", X)
        if form == "GlobalAveragePool":
            real = network.node(form, [x], "p")
        else:
            keep = int(form == "ReduceMean")
            real = network.node("ReduceMean", [x], "p", axes=[2, -1], keepdims=keep)
        network.finish(real, Y)
    model = network.model({"x": (1, 5, 7, 6)})
    assert steps(model, {"x": reals(rng, 1, 5, 7, 6)}, run_onnxruntime, Y.scale).max() <= 1


def constants(network: Network, **values: Sequence[int]) -> list[str]:
    return [network.constant(name, np.array(v, np.int64)) for name, v in values.items()]


def movement_network(case: str, network: Network, x: str) -> str:
    """Add one movement of the real tensor `x` of shape ``[1, 4, 6, 5]``."""
    match case:
        case "Reshape":
            return network.node(case, [x, *constants(network, s=[0, -1, 10])], "m")
        case "Flatten":
            return network.node(case, [x], "m", axis=2)
        case "Transpose":
            return network.node(case, [x], "m", perm=[0, 3, 1, 2])
        case "Unsqueeze":
            return network.node(case, [x, *constants(network, a=[1, -1])], "m")
        case "Squeeze":
            return network.node(case, [x, *constants(network, a=[0])], "m")
        case "Slice":
            bounds = constants(network, b=[-2, 1], e=[99, 4], a=[1, 3], s=[1, 2])
            return network.node(case, [x, *bounds], "m")
        case "Pad":
            return network.node(case, [x, *constants(network, p=[0, 1, 0, 2, 0, 0, 3, 0])], "m")
        case "Concat":
            return network.node(case, [x, x], "m", axis=-3)
        case "Identity" | "Dropout" | "MaxPool":
            extra = {"kernel_shape": [2, 2]} if case == "MaxPool" else {}
            return network.node(case, [x], "m", **extra)
        case _:
            raise AssertionError(case)


MOVEMENTS = (
    "Reshape Flatten Transpose Unsqueeze Squeeze Slice Pad Concat Identity Dropout MaxPool".split()
)


@pytest.mark.parametrize("case", MOVEMENTS)
def test_movement_is_exact(
    case: str, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    network.finish(movement_network(case, network, network.quantized_input("x", X)), X)
    model = network.model({"x": (1, 4, 6, 5)})
    assert steps(model, {"x": reals(rng, 1, 4, 6, 5)}, run_onnxruntime, X.scale).max() == 0


def test_a_padding_value_may_be_dequantised(
    rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    """As quantisation tools leave it behind."""
    network = Network()
    x = network.quantized_input("x", X)
    value = network.dequantize(network.constant("v", np.uint8(130)), "value", X)
    pads = constants(network, p=[0, 1, 0, 2, 0, 0, 3, 0])
    network.finish(network.node("Pad", [x, *pads, value], "m"), X)
    model = network.model({"x": (1, 4, 6, 5)})
    assert steps(model, {"x": reals(rng, 1, 4, 6, 5)}, run_onnxruntime, X.scale).max() == 0


@pytest.mark.parametrize(
    "case", ["Transpose", "Slice", "Pad", "Concat", "Identity", "Dropout", "MaxPool"]
)
def test_movement_of_an_image_between_convolutions_is_exact(
    case: str, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    weights = rng.integers(-127, 128, (4, 4, 1, 1), dtype=np.int8)
    first = network.weights("v", weights, np.float32(0.01), np.int8(0))
    image = network.node("Conv", [network.quantized_input("x", X), first], "c")
    integer = network.quantize(image, "c_q", Y)
    moved = movement_network(case, network, network.dequantize(integer, "c_dq", Y))
    channels = {"Slice": 2, "Pad": 5, "Concat": 8, "Transpose": 5}.get(case, 4)
    weights = rng.integers(-127, 128, (3, channels, 1, 1), dtype=np.int8)
    second = network.weights("w", weights, np.float32(0.01), np.int8(0))
    network.finish(network.node("Conv", [moved, second], "d"), Y)
    model = network.model({"x": (1, 4, 6, 5)})
    assert steps(model, {"x": reals(rng, 1, 4, 6, 5)}, run_onnxruntime, Y.scale).max() == 0


@pytest.mark.parametrize("form", ["QDQ", "QLinearConcat"])
def test_concat_of_other_scales(
    form: str, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    if form == "QDQ":
        operands = [network.quantized_input("a", X), network.quantized_input("b", Y)]
        network.finish(network.node("Concat", operands, "c", axis=1), Y)
    else:
        operands = [
            *network.parameters("c", Y),
            network.quantize("a", "a_q", X),
            *network.parameters("a_again", X),
            network.quantize("b", "b_q", Y),
            *network.parameters("b_again", Y),
        ]
        network.node("com.microsoft.QLinearConcat", operands, "c", axis=1)
        network.dequantize("c", "y", Y)
    model = network.model({"a": (1, 3, 5, 4), "b": (1, 2, 5, 4)})
    feeds = {"a": reals(rng, 1, 3, 5, 4), "b": reals(rng, 1, 2, 5, 4)}
    assert steps(model, feeds, run_onnxruntime, Y.scale).max() <= 1


ELEMENTWISE = {
    "Sigmoid": {},
    "Tanh": {},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
    "HardSwish": {},
    "LeakyRelu": {"alpha": 0.2},
    "Elu": {"alpha": 0.7},
    "Relu": {},
    "Softmax": {"axis": 1},
}


@pytest.mark.parametrize("kind", sorted(ELEMENTWISE))
@pytest.mark.parametrize("place", ["between", "at the end"])
def test_functions(
    kind: str, place: str, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    narrow = Scale(scale=1 / 128, zero_point=np.uint8(60))
    real = network.quantized_input("x", X)
    if place == "between":
        network.finish(network.node(kind, [real], "f", **ELEMENTWISE[kind]), narrow)
    else:
        network.node(kind, [real], "y", **ELEMENTWISE[kind])
    model = network.model({"x": (1, 7, 6, 5)})
    feeds = {"x": reals(rng, 1, 7, 6, 5)}
    scale = narrow.scale if place == "between" else 1e-5
    assert steps(model, feeds, run_onnxruntime, scale).max() <= 1


@pytest.mark.parametrize("kind", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_microsoft_functions(
    kind: str, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    operands = [
        network.quantize("x", "x_q", X),
        *network.parameters("x_again", X),
        *network.parameters("y_first", Y),
    ]
    extra = {"alpha": 0.3} if kind == "QLinearLeakyRelu" else {}
    network.node(f"com.microsoft.{kind}", operands, "f", **extra)
    network.dequantize("f", "y", Y)
    model = network.model({"x": (1, 700)})
    assert steps(model, {"x": reals(rng, 1, 700)}, run_onnxruntime, Y.scale).max() <= 1


@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (-1.0, None), (None, 2.5)])
def test_clip_behind_a_convolution_is_part_of_it(
    low: float | None, high: float | None, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    weights = rng.integers(-127, 128, (8, 4, 1, 1), dtype=np.int8)
    kernel = network.weights("w", weights, np.float32(0.01), np.int8(0))
    real = network.node("Conv", [network.quantized_input("x", X), kernel], "c")
    bounds = [
        "" if value is None else network.constant(name, np.float32(value))
        for name, value in (("low", low), ("high", high))
    ]
    network.finish(network.node("Clip", [real, *bounds], "l"), Y)
    model = network.model({"x": (1, 4, 6, 5)})
    graph = lower_to_integer(read_onnx(serialized(model), "clip"))
    assert "Clip" not in {type(node.op).__name__ for node in graph.nodes}
    assert steps(model, {"x": reals(rng, 1, 4, 6, 5)}, run_onnxruntime, Y.scale).max() <= 1


def test_quantization_of_constant_weights(
    rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    scales = per_channel(rng, 8)
    real = network.constant("w", rng.normal(0, 1, (8, 4, 1, 1)).astype(np.float32))
    names = [
        network.constant("w_scale", scales),
        network.constant("w_zero", np.zeros(8, np.int8)),
    ]
    integer = network.node("QuantizeLinear", [real, *names], "w_q", axis=0)
    kernel = network.node("DequantizeLinear", [integer, *names], "w_dq", axis=0)
    network.finish(network.node("Conv", [network.quantized_input("x", X), kernel], "c"), Y)
    model = network.model({"x": (1, 4, 6, 5)})
    assert steps(model, {"x": reals(rng, 1, 4, 6, 5)}, run_onnxruntime, Y.scale).max() <= 1


def test_flattened_image_before_a_dense_layer_moves_no_data(
    rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    network = Network()
    kernel = network.weights(
        "v", rng.integers(-127, 128, (3, 4, 2, 2), dtype=np.int8), np.float32(0.01), np.int8(0)
    )
    image = network.node("Conv", [network.quantized_input("x", X), kernel], "c")
    integer = network.quantize(image, "c_q", Y)
    flat = network.node("Flatten", [network.dequantize(integer, "c_dq", Y)], "f")
    dense = network.weights(
        "w", rng.integers(-127, 128, (7, 60), dtype=np.int8), np.float32(0.01), np.int8(0)
    )
    network.finish(network.node("Gemm", [flat, dense], "g", transB=1), Y)
    model = network.model({"x": ("N", 4, 6, 5)})
    graph = lower_to_integer(read_onnx(serialized(model), "flatten"))
    kinds = [type(node.op).__name__ for node in graph.nodes]
    assert kinds == ["Quantize", "Transpose", "Conv2d", "Conv2d", "Reshape", "Dequantize"]
    # Five samples at once, where the symbolic batch was read as 1.
    assert steps(model, {"x": reals(rng, 5, 4, 6, 5)}, run_onnxruntime, Y.scale).max() == 0


def test_every_handler_of_quantised_operators_is_tested_here() -> None:
    tested = {"QGemm", "QLinearAdd", "QLinearConcat", "QLinearSigmoid", "QLinearLeakyRelu"}
    tested |= {"QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearMul"}
    tested |= {"BiasGelu", "FastGelu", "Gelu", "QuickGelu"}
    assert tested | {"QuantizeLinear", "DequantizeLinear"} == set(MICROSOFT_HANDLERS)


def quantised(kind: str, shape: tuple[int | str, ...] = (1, 4, 6, 5), **attributes: Any) -> Any:
    """Return a network that applies one operator to its quantised input."""
    network = Network()
    network.finish(network.node(kind, [network.quantized_input("x", X)], "f", **attributes), Y)
    return network.model({"x": shape})


def two_operators() -> Any:
    network = Network()
    real = network.node("AveragePool", [network.quantized_input("x", X)], "p", kernel_shape=[2, 2])
    network.finish(network.node("Sigmoid", [real], "f"), Y)
    return network.model({"x": (1, 4, 6, 5)})


def unquantised_end() -> Any:
    network = Network()
    network.node("GlobalAveragePool", [network.quantized_input("x", X)], "y")
    return network.model({"x": (1, 4, 6, 5)})


def sixteen_bits() -> Any:
    network = Network(opset=21)
    names = [
        network.constant("s", np.float32(0.1)),
        network.constant("z", np.zeros((), np.uint16)),
    ]
    network.node("QuantizeLinear", ["x", *names], "q")
    network.node("DequantizeLinear", ["q", *names], "y")
    return network.model({"x": (1, 4)})


def test_a_symbolic_batch_is_noted_and_stays_noted_in_the_integer_graph() -> None:
    model = quantised("Relu", ("N", 4, 6, 5))
    graph = read_onnx(model.SerializeToString(), "g")
    note = "input 'x' has the batch size 'N', taken as 1"
    assert graph.tensors["x"].shape == (1, 4, 6, 5)
    assert (graph.notes, lower_to_integer(graph).notes) == ((note,), (note,))
    fixed = quantised("Relu", (2, 4, 6, 5))
    assert read_onnx(fixed.SerializeToString(), "g").notes == ()


REFUSALS = {
    "an operator that is not known": (
        quantised("Det"),
        "node 'f' (Det) is not a supported operator",
    ),
    "a domain that is not known": (
        quantised("org.example.Relu"),
        "node 'f' (Relu) of domain 'org.example' is not a supported operator",
    ),
    "a dynamic shape": (
        quantised("Relu", ("N", 4, "H", 5)),
        "input 'x' has a dynamic shape: axis 2 is 'H'",
    ),
    "an attribute value": (
        quantised(
            "AveragePool", kernel_shape=[3, 4], strides=[2, 2], ceil_mode=1, count_include_pad=1
        ),
        "node 'f' (AveragePool) combines count_include_pad with partial windows",
    ),
    "a dilated pooling": (
        quantised("MaxPool", kernel_shape=[2, 2], dilations=[2, 2]),
        "node 'f' (MaxPool) is dilated, which is not supported",
    ),
    "an attribute of another type": (
        quantised("LeakyRelu", alpha=1),
        "node 'f' (LeakyRelu) needs a finite number 'alpha'",
    ),
    "a volume": (
        quantised("MaxPool", (1, 4, 6, 5, 3), kernel_shape=[2, 2, 2]),
        "node 'f' (MaxPool) needs two positive numbers for kernel_shape, not (2, 2, 2)",
    ),
    "16 bits": (
        sixteen_bits(),
        "node 'q' (QuantizeLinear) quantises to uint16; only int8 and uint8 are supported",
    ),
}


@pytest.mark.parametrize("case", sorted(REFUSALS))
def test_what_is_not_supported_is_named(case: str) -> None:
    model, message = REFUSALS[case]
    with pytest.raises(ModelError) as caught:
        lower_to_integer(read_onnx(serialized(model), "refused"))
    assert str(caught.value) == message


@pytest.mark.parametrize("model", [two_operators(), unquantised_end()], ids=["middle", "end"])
def test_what_is_not_quantised_stays_real(
    model: Any, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    assert steps(model, {"x": reals(rng, 1, 4, 6, 5)}, run_onnxruntime, Y.scale).max() <= 1
