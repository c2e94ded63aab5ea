"""Every TFLite operator alone, against the reference kernels of LiteRT."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tflite_writer import OperatorSpec, TensorSpec, write_tflite

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.passes.pipeline import lower_to_integer
from tilewright.compiler.readers.tflite_reader import read_tflite
from tilewright.isa.errors import ModelError

Array = npt.NDArray[Any]
RunLitert = Callable[..., dict[str, Array]]


def activation(
    name: str, shape: tuple[int, ...], scale: float = 0.05, zero: int = 3, dtype: str = "int8"
) -> TensorSpec:
    """Return a quantised tensor; uint8 has its zero point moved by 128."""
    offset = 128 if dtype == "uint8" else 0
    return TensorSpec(
        name=name, shape=shape, dtype=dtype, scale=(scale,), zero_point=(zero + offset,)
    )


def integers(name: str, values: list[int] | Array) -> TensorSpec:
    """Return a constant tensor of int32."""
    data = np.array(values, np.int32)
    return TensorSpec(name=name, shape=data.shape, dtype="int32", data=data)


def weights(
    name: str, values: Array, scale: tuple[float, ...], axis: int = 0, zero: int = 0
) -> TensorSpec:
    """Return constant weights, quantised per tensor or per channel."""
    return TensorSpec(
        name=name,
        shape=values.shape,
        dtype=str(values.dtype),
        scale=scale,
        zero_point=(zero,) * len(scale),
        axis=axis,
        data=values,
    )


def bias(values: Array, scale: tuple[float, ...]) -> TensorSpec:
    """Return a constant bias of int32."""
    return TensorSpec(
        name="bias",
        shape=values.shape,
        dtype="int32",
        scale=scale,
        zero_point=(0,) * len(scale),
        data=values.astype(np.int32),
    )


def single(
    operator: str,
    tensors: list[TensorSpec],
    options_type: str = "",
    options: tuple[tuple[str, float], ...] = (),
    dynamic: int = 1,
) -> bytes:
    """Return a model of one operator: `dynamic` input tensors first, the output tensor last."""
    last = len(tensors) - 1
    spec = OperatorSpec(
        name=operator,
        inputs=tuple(range(last)),
        outputs=(last,),
        options_type=options_type,
        options=options,
    )
    return write_tflite(tensors, [spec], list(range(dynamic)), [last])


def distance(model: bytes, inputs: dict[str, Array], run_litert: RunLitert) -> tuple[int, float]:
    """Return the largest step and the share of differing elements to the reference kernels."""
    graph = lower_to_integer(read_tflite(model, "single"))
    output = evaluate(graph, inputs)[graph.outputs[0]]
    expected = run_litert(model, inputs)[graph.outputs[0]]
    assert output.shape == expected.shape
    assert output.dtype == expected.dtype
    steps = np.abs(output.astype(np.int32) - expected)
    return int(steps.max()), float(np.mean(steps > 0))


def int8s(rng: np.random.Generator, *shape: int) -> Array:
    """Return random int8 values over the whole range."""
    return rng.integers(-128, 128, shape, dtype=np.int8)


CONV = ("StrideW", "StrideH", "DilationWFactor", "DilationHFactor")


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("act", [0, 1, 3])
def test_conv_2d(
    padding: int,
    stride: int,
    dilation: int,
    act: int,
    rng: np.random.Generator,
    run_litert: RunLitert,
) -> None:
    size = -(-11 // stride) if padding == 0 else -(-(11 - 2 * dilation) // stride)
    scales = tuple(float(s) for s in rng.uniform(0.001, 0.01, 6).astype(np.float32))
    kernel = rng.integers(-127, 128, (6, 3, 3, 5), dtype=np.int8)
    tensors = [
        activation("x", (1, 11, 11, 5), 0.04, -5),
        weights("w", kernel, scales),
        bias(rng.integers(-3000, 3000, 6), tuple(0.04 * s for s in scales)),
        activation("y", (1, size, size, 6), 0.08, -20),
    ]
    options = (
        ("Padding", padding),
        *((name, stride) for name in CONV[:2]),
        *((name, dilation) for name in CONV[2:]),
        ("FusedActivationFunction", act),
    )
    model = single("CONV_2D", tensors, "Conv2DOptions", options)
    step, share = distance(model, {"x": int8s(rng, 1, 11, 11, 5)}, run_litert)
    assert step <= 1
    assert share < 0.02


@pytest.mark.parametrize("multiplier", [1, 3])
@pytest.mark.parametrize("unsigned", [False, True])
def test_depthwise_conv_2d(
    multiplier: int, unsigned: bool, rng: np.random.Generator, run_litert: RunLitert
) -> None:
    outputs = 4 * multiplier
    dtype = "uint8" if unsigned else "int8"
    if unsigned:
        kernel = rng.integers(0, 256, (1, 3, 3, outputs), dtype=np.uint8)
        spec = weights("w", kernel, (0.01,), zero=90)
    else:
        kernel = rng.integers(-127, 128, (1, 3, 3, outputs), dtype=np.int8)
        scales = tuple(float(s) for s in rng.uniform(0.004, 0.02, outputs).astype(np.float32))
        spec = weights("w", kernel, scales, axis=3)
    tensors = [
        activation("x", (1, 7, 6, 4), 0.04, -5, dtype),
        spec,
        bias(rng.integers(-900, 900, outputs), tuple(0.04 * s for s in spec.scale)),
        activation("y", (1, 4, 3, outputs), 0.08, 10, dtype),
    ]
    options = (
        ("Padding", 0),
        ("StrideW", 2),
        ("StrideH", 2),
        ("DepthMultiplier", multiplier),
        ("DilationWFactor", 1),
        ("DilationHFactor", 1),
    )
    model = single("DEPTHWISE_CONV_2D", tensors, "DepthwiseConv2DOptions", options)
    x = int8s(rng, 1, 7, 6, 4)
    feeds = {"x": x.view(np.uint8) if unsigned else x}
    step, share = distance(model, feeds, run_litert)
    assert step <= 1
    assert share < 0.08


@pytest.mark.parametrize("shape", [(1, 48), (3, 16), (1, 2, 2, 12)])
def test_fully_connected(
    shape: tuple[int, ...], rng: np.random.Generator, run_litert: RunLitert
) -> None:
    depth = 16 if shape == (3, 16) else 48
    rows = int(np.prod(shape)) // depth
    tensors = [
        activation("x", shape, 0.04, -5),
        weights("w", rng.integers(-127, 128, (7, depth), dtype=np.int8), (0.01,)),
        bias(rng.integers(-3000, 3000, 7), (0.0004,)),
        activation("y", (rows, 7), 0.1, 4),
    ]
    model = single("FULLY_CONNECTED", tensors, "FullyConnectedOptions")
    assert distance(model, {"x": int8s(rng, *shape)}, run_litert)[0] <= 1


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("act", [0, 1, 2, 3])
def test_add(dtype: str, act: int, rng: np.random.Generator, run_litert: RunLitert) -> None:
    shape = (1, 5, 7, 16)
    tensors = [
        activation("a", shape, 0.031, -17, dtype),
        activation("b", shape, 0.113, 40, dtype),
        activation("y", shape, 0.09, -60, dtype),
    ]
    options = (("FusedActivationFunction", act),)
    model = single("ADD", tensors, "AddOptions", options, dynamic=2)
    feeds = {"a": int8s(rng, *shape).view(dtype), "b": int8s(rng, *shape).view(dtype)}
    step, share = distance(model, feeds, run_litert)
    assert step <= 1
    assert share < 0.01


POOL = (("StrideW", 2), ("StrideH", 1), ("FilterWidth", 3), ("FilterHeight", 2))


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("operator", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
@pytest.mark.parametrize("act", [0, 1])
def test_pooling(
    padding: int,
    dtype: str,
    operator: str,
    act: int,
    rng: np.random.Generator,
    run_litert: RunLitert,
) -> None:
    size = (8, 5) if padding == 0 else (7, 4)
    tensors = [
        activation("x", (1, 8, 9, 3), 0.05, -128, dtype),
        activation("y", (1, *size, 3), 0.05, -128, dtype),
    ]
    options = (("Padding", padding), *POOL, ("FusedActivationFunction", act))
    model = single(operator, tensors, "Pool2DOptions", options)
    feeds = {"x": int8s(rng, 1, 8, 9, 3).view(dtype)}
    step, share = distance(model, feeds, run_litert)
    exact = operator == "MAX_POOL_2D" or dtype == "uint8"
    assert step <= (0 if exact else 1)
    # An int8 mean above 0 that is half a step rounds away from zero there, to the zero point here.
    assert share < 0.1


def test_a_global_average_of_a_rectified_image_is_exact(
    rng: np.random.Generator, run_litert: RunLitert
) -> None:
    tensors = [
        activation("x", (1, 8, 8, 64), 0.05, -128),
        activation("y", (1, 1, 1, 64), 0.05, -128),
    ]
    options = (("Padding", 1), *((name, 8) for name, _ in POOL))
    model = single("AVERAGE_POOL_2D", tensors, "Pool2DOptions", options)
    feeds = {"x": rng.integers(-128, 0, (1, 8, 8, 64), dtype=np.int8)}
    assert distance(model, feeds, run_litert) == (0, 0.0)


@pytest.mark.parametrize("keep", [False, True])
def test_mean(keep: bool, rng: np.random.Generator, run_litert: RunLitert) -> None:
    tensors = [
        activation("x", (1, 6, 5, 9), 0.05, -8),
        integers("axes", [1, 2]),
        activation("y", (1, 1, 1, 9) if keep else (1, 9), 0.03, 5),
    ]
    model = single("MEAN", tensors, "ReducerOptions", (("KeepDims", keep),))
    assert distance(model, {"x": int8s(rng, 1, 6, 5, 9)}, run_litert)[0] <= 1


def test_concatenation_with_other_scales(rng: np.random.Generator, run_litert: RunLitert) -> None:
    tensors = [
        activation("a", (1, 3, 4, 5), 0.05, -8),
        activation("b", (1, 3, 4, 2), 0.02, 30),
        activation("y", (1, 3, 4, 7), 0.05, -8),
    ]
    # LiteRT concatenates int8 only at equal scales, uint8 at any.
    unsigned = [activation(t.name, t.shape, t.scale[0], t.zero_point[0], "uint8") for t in tensors]
    model = single("CONCATENATION", unsigned, "ConcatenationOptions", (("Axis", 3),), dynamic=2)
    feeds = {
        "a": int8s(rng, 1, 3, 4, 5).view(np.uint8),
        "b": int8s(rng, 1, 3, 4, 2).view(np.uint8),
    }
    assert distance(model, feeds, run_litert)[0] <= 1


MOVEMENT = {
    "RESHAPE": ([integers("c", [1, 36])], (1, 36), "", ()),
    "SQUEEZE": ([], (3, 4, 3), "SqueezeOptions", ()),
    "EXPAND_DIMS": ([integers("c", [0])], (1, 1, 3, 4, 3), "", ()),
    "TRANSPOSE": ([integers("c", [0, 3, 1, 2])], (1, 3, 3, 4), "", ()),
    "PAD": ([integers("c", [[0, 0], [1, 2], [0, 1], [2, 0]])], (1, 6, 5, 5), "", ()),
    "SLICE": ([integers("b", [0, 1, 0, 1]), integers("s", [1, 2, -1, 2])], (1, 2, 4, 2), "", ()),
    "STRIDED_SLICE": (
        [integers("b", [0, 1, 0, 0]), integers("e", [1, 3, 4, 9]), integers("s", [1, 1, 2, 1])],
        (1, 2, 2, 3),
        "StridedSliceOptions",
        (("BeginMask", 1), ("EndMask", 8)),
    ),
}


@pytest.mark.parametrize("operator", sorted(MOVEMENT))
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_movement_is_exact(
    operator: str, dtype: str, rng: np.random.Generator, run_litert: RunLitert
) -> None:
    constants, shape, options_type, options = MOVEMENT[operator]
    tensors = [
        activation("x", (1, 3, 4, 3), dtype=dtype),
        *constants,
        activation("y", shape, dtype=dtype),
    ]
    model = single(operator, tensors, options_type, options)
    feeds = {"x": int8s(rng, 1, 3, 4, 3).view(dtype)}
    assert distance(model, feeds, run_litert) == (0, 0.0)


def test_padv2_pads_with_the_stored_value(rng: np.random.Generator, run_litert: RunLitert) -> None:
    value = weights("v", np.array([-77], np.int8), (0.05,), zero=3)
    tensors = [
        activation("x", (1, 3, 4, 3)),
        integers("c", [[0, 0], [1, 2], [0, 1], [0, 0]]),
        value,
        activation("y", (1, 6, 5, 3)),
    ]
    assert distance(single("PADV2", tensors), {"x": int8s(rng, 1, 3, 4, 3)}, run_litert)[0] == 0


@pytest.mark.parametrize("operator", ["LOGISTIC", "TANH", "HARD_SWISH", "LEAKY_RELU"])
def test_functions_of_one_number(operator: str, run_litert: RunLitert) -> None:
    fixed = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}
    scale, zero = fixed.get(operator, (0.06, -20))
    tensors = [activation("x", (1, 256), 0.05, 10), activation("y", (1, 256), scale, zero)]
    options: tuple[str, tuple[tuple[str, float], ...]] = ("", ())
    if operator == "LEAKY_RELU":
        options = ("LeakyReluOptions", (("Alpha", 0.2),))
    model = single(operator, tensors, *options)
    x = np.arange(-128, 128).astype(np.int8).reshape(1, 256)
    assert distance(model, {"x": x}, run_litert)[0] <= 1


def test_elu() -> None:
    """LiteRT's reference kernels have no int8 ELU; the formula is that of the schema."""
    tensors = [activation("x", (1, 256), 0.05, 10), activation("y", (1, 256), 0.06, -20)]
    graph = lower_to_integer(read_tflite(single("ELU", tensors), "elu"))
    x = np.arange(-128, 128).astype(np.int8).reshape(1, 256)
    real = (x.astype(np.float64) - 10) * np.float32(0.05)
    values = np.maximum(real, 0) + np.minimum(np.exp(real) - 1, 0)
    expected = np.clip(np.round(values / np.float32(0.06)) - 20, -128, 127)
    assert np.array_equal(evaluate(graph, {"x": x})["y"], expected)


@pytest.mark.parametrize("operator", ["RELU", "RELU6", "RELU_N1_TO_1"])
def test_rectifiers(operator: str, run_litert: RunLitert) -> None:
    tensors = [activation("x", (1, 256), 0.06, 10), activation("y", (1, 256), 0.05, -40)]
    x = np.arange(-128, 128).astype(np.int8).reshape(1, 256)
    assert distance(single(operator, tensors), {"x": x}, run_litert)[0] <= 1


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_softmax(dtype: str, beta: float, rng: np.random.Generator, run_litert: RunLitert) -> None:
    tensors = [
        activation("x", (1, 40), 0.08, 10, dtype),
        activation("y", (1, 40), 1 / 256, -128, dtype),
    ]
    model = single("SOFTMAX", tensors, "SoftmaxOptions", (("Beta", beta),))
    for _ in range(20):
        feeds = {"x": int8s(rng, 1, 40).view(dtype)}
        assert distance(model, feeds, run_litert)[0] <= 1


@pytest.mark.parametrize(("before", "after"), [("uint8", "int8"), ("int8", "uint8")])
def test_quantize_between_signs_moves_the_zero_point(
    before: str, after: str, rng: np.random.Generator, run_litert: RunLitert
) -> None:
    tensors = [activation("x", (1, 99), dtype=before), activation("y", (1, 99), dtype=after)]
    feeds = {"x": int8s(rng, 1, 99).view(before)}
    assert distance(single("QUANTIZE", tensors), feeds, run_litert) == (0, 0.0)


def test_quantize_to_another_scale(rng: np.random.Generator, run_litert: RunLitert) -> None:
    tensors = [activation("x", (1, 999), 0.05, 9), activation("y", (1, 999), 0.07, -3)]
    model = single("QUANTIZE", tensors)
    assert distance(model, {"x": int8s(rng, 1, 999)}, run_litert)[0] <= 1


def test_quantize_and_dequantize_at_the_ends(
    rng: np.random.Generator, run_litert: RunLitert
) -> None:
    tensors = [
        TensorSpec(name="x", shape=(1, 64), dtype="float32"),
        activation("q", (1, 64), 0.05, 9),
        activation("r", (1, 64), 0.05, 9),
        TensorSpec(name="y", shape=(1, 64), dtype="float32"),
    ]
    operators = [
        OperatorSpec(name="QUANTIZE", inputs=(0,), outputs=(1,)),
        OperatorSpec(name="RELU", inputs=(1,), outputs=(2,)),
        OperatorSpec(name="DEQUANTIZE", inputs=(2,), outputs=(3,)),
    ]
    model = write_tflite(tensors, operators, [0], [3])
    feeds = {"x": rng.normal(0, 4, (1, 64)).astype(np.float32)}
    graph = lower_to_integer(read_tflite(model, "ends"))
    assert np.array_equal(evaluate(graph, feeds)["y"], run_litert(model, feeds)["y"])


PIXELS = activation("x", (1, 4, 4, 2))
REFUSALS = {
    "an operator that does not exist here": (
        single("COS", [PIXELS, activation("y", (1, 4, 4, 2))]),
        "node 'COS_0' is not a supported operator",
    ),
    "shapes that contradict": (
        single("RELU", [PIXELS, activation("y", (1, 4, 4, 3))]),
        "node 'RELU_0' yields shape [1, 4, 4, 2], declared as [1, 4, 4, 3]",
    ),
    "a broadcast": (
        single("ADD", [PIXELS, activation("b", (1, 1, 1, 3)), PIXELS], "AddOptions", dynamic=2),
        ("node 'ADD_0' cannot broadcast float32[1, 4, 4, 2] and float32[1, 1, 1, 3]"),
    ),
    "an activation that does not fuse": (
        single(
            "ADD",
            [PIXELS, activation("b", (1, 4, 4, 2)), activation("y", (1, 4, 4, 2))],
            "AddOptions",
            (("FusedActivationFunction", 4),),
            dynamic=2,
        ),
        "node 'ADD_0' has activation 4, which is not supported",
    ),
    "a dynamic shape": (
        single(
            "RELU",
            [
                TensorSpec(
                    name="x",
                    shape=(1, 1, 4, 2),
                    scale=(0.1,),
                    zero_point=(0,),
                    signature=(1, -1, 4, 2),
                ),
                activation("y", (1, 1, 4, 2)),
            ],
        ),
        "input 'x' has a dynamic shape: axis 1 may have any size",
    ),
    "an activation without a scale": (
        single("RELU", [PIXELS, TensorSpec(name="y", shape=(1, 4, 4, 2))]),
        "node 'RELU_0' yields 'y', which has no scale",
    ),
}


@pytest.mark.parametrize("case", sorted(REFUSALS))
def test_what_is_not_supported_is_named(case: str) -> None:
    model, message = REFUSALS[case]
    with pytest.raises(ModelError) as caught:
        lower_to_integer(read_tflite(model, "refused"))
    assert str(caught.value) == message
