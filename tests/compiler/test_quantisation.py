"""Post-training quantisation: ranges, what is quantised, exported files, accuracy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from float_networks import small_cnn, small_transformer
from onnx_networks import Network, serialized

import tilewright as tw
from tilewright import demo
from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph, Tensor
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import (
    Conv2d,
    ConvTranspose2d,
    DataType,
    FloatClip,
    FloatOperator,
    LayerNorm,
    Lookup,
    MatMul,
    Mul,
    Quantize,
    Softmax,
    Upsample2d,
)
from tilewright.compiler.passes.pipeline import lower_to_integer
from tilewright.compiler.quantisation.calibration import Method, Range, calibrate
from tilewright.compiler.quantisation.quantise import QuantisationOptions, QuantisedGraph, quantise
from tilewright.compiler.quantisation.scales import Scale, quantised_bias, quantised_weights
from tilewright.compiler.readers.onnx_reader import read_onnx
from tilewright.compiler.writers.onnx_writer import write_onnx
from tilewright.isa.errors import InputError, ModelError, TilewrightError

Array = npt.NDArray[Any]
RunOnnxruntime = Callable[..., dict[str, Array]]


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(0, 1, shape).astype(np.float32)


def clipped(low: float, high: float, count: int) -> Graph:
    """Return a graph of one clip of a vector."""
    builder = GraphBuilder("clip")
    builder.add_input(Tensor(name="x", shape=(1, count), dtype=DataType.FLOAT32))
    return builder.build([builder.add(FloatClip(low=low, high=high), ["x"], node="y")])


def span_of(values: Array, method: Method, percentile: float = 99.0) -> Range:
    """Return the range of the input `values`, one row per sample."""
    graph = clipped(-1e9, 1e9, values.shape[1])
    batches = [{"x": row[np.newaxis]} for row in values]
    found = calibrate(graph, lambda: batches, frozenset("x"), frozenset(), method, percentile)
    return found.ranges["x"]


def test_min_max_covers_all_samples_and_zero() -> None:
    values = np.array([[1.0, 2.0], [0.5, 7.0]], np.float32)
    assert span_of(values, Method.MIN_MAX) == Range(0.0, 7.0)
    assert span_of(-values, Method.MIN_MAX) == Range(-7.0, 0.0)


def test_percentile_leaves_out_a_share_of_each_side(rng: np.random.Generator) -> None:
    values = rng.permutation(np.linspace(-10, 10, 20_000)).astype(np.float32).reshape(10, -1)
    found = span_of(values, Method.PERCENTILE, 99.0)
    np.testing.assert_allclose((found.low, found.high), (-9.8, 9.8), atol=0.02)


def test_entropy_cuts_off_a_lonely_outlier_but_not_a_plateau(rng: np.random.Generator) -> None:
    bell = rng.normal(0, 1, (10, 2000)).astype(np.float32)
    bell[0, 0] = 60.0
    assert span_of(bell, Method.ENTROPY).high < 12
    flat = rng.uniform(-5, 5, (10, 2000)).astype(np.float32)
    found = span_of(flat, Method.ENTROPY)
    assert min(found.high, -found.low) > 4.5


def test_a_constant_tensor_has_a_scale() -> None:
    for value in (0.0, 3.0, -2.0):
        values = np.full((1, 4), value, np.float32)
        for method in Method:
            found = Scale.of(span_of(values, method))
            steps = np.clip(np.rint(value / found.scale) + found.zero_point, -128, 127)
            assert abs((steps - found.zero_point) * found.scale - value) <= found.scale / 2


@pytest.mark.parametrize("span", [(-1.0, 3.0), (0.0, 6.0), (-4.0, 0.0), (-1e-9, 1e-9)])
def test_zero_is_exact_and_the_ends_are_within_half_a_step(span: tuple[float, float]) -> None:
    found = Scale.of(Range(*span))
    assert -128 <= found.zero_point <= 127
    for end in span:
        steps = np.clip(np.rint(end / found.scale) + found.zero_point, -128, 127)
        assert abs((steps - found.zero_point) * found.scale - end) <= found.scale * 0.51


def test_weights_have_a_scale_per_output_channel(rng: np.random.Generator) -> None:
    weights = normal(rng, 5, 3, 3, 4) * np.logspace(-6, 2, 5, dtype=np.float32)[:, None, None, None]
    weights[2] = 0
    found = quantised_weights(weights)
    assert found.scale.shape == (5,)
    assert np.abs(found.values).max(axis=(1, 2, 3)).tolist() == [127, 127, 0, 127, 127]
    error = np.abs(found.real - weights).max(axis=(1, 2, 3))
    assert (error <= found.scale * 0.501).all()


def test_a_bias_that_is_too_large_is_clipped() -> None:
    found = quantised_bias(np.array([1e30, -1e30, 1.0]), 1e-3, np.full(3, 1e-3, np.float32))
    assert found.values.tolist() == [2**30 - 1, -(2**30), 1_000_000]


def float_graph(model: Any) -> Graph:
    return lower_to_integer(read_onnx(serialized(model), "network"))


NETWORKS = {
    "cnn": (small_cnn, (3, 8, 10), {Conv2d, ConvTranspose2d, Mul, Lookup, Upsample2d}),
    "transformer": (small_transformer, (6, 16), {MatMul, Softmax, LayerNorm, Lookup, Conv2d}),
}


def quantised(name: str, rng: np.random.Generator) -> tuple[QuantisedGraph, Array]:
    build, shape, _ = NETWORKS[name]
    samples = normal(rng, 16, *shape)
    graph = float_graph(build(rng))
    return quantise(graph, {"x": samples}, QuantisationOptions(percentile=100.0)), samples


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_every_operator_becomes_an_integer_one(name: str, rng: np.random.Generator) -> None:
    result, _ = quantised(name, rng)
    kinds = {type(node.op) for node in result.integer.nodes}
    assert kinds >= NETWORKS[name][2]
    assert not any(isinstance(node.op, FloatOperator) for node in result.integer.nodes)
    assert result.report.real_nodes == ()
    assert result.report.outputs["y"] > 25
    assert min(layer.sqnr_db for layer in result.report.layers) > 20


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_the_exported_file_is_the_same_network(
    name: str, rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    result, samples = quantised(name, rng)
    data = write_onnx(result.network)
    again = lower_to_integer(read_onnx(data, "again"))
    model = onnx.ModelProto.FromString(data)
    onnx.checker.check_model(model)
    scale = next(
        tensor.scale
        for tensor in reversed(result.integer.tensors.values())
        if tensor.scale is not None
    )
    for x in samples[:4, np.newaxis]:
        found = evaluate(result.integer, {"x": x})["y"]
        np.testing.assert_array_equal(found, evaluate(again, {"x": x})["y"])
        expected = run_onnxruntime(model, {"x": x})["y"]
        steps = np.abs(found - expected) / scale
        # A step in each layer before may turn into several here.
        assert steps.max() < 6
        assert np.mean(steps) < 0.3


def test_a_float_graph_is_exported_as_it_is(
    rng: np.random.Generator, run_onnxruntime: RunOnnxruntime
) -> None:
    for build, shape, _ in NETWORKS.values():
        graph = float_graph(build(rng))
        x = normal(rng, 1, *shape)
        expected = run_onnxruntime(onnx.ModelProto.FromString(write_onnx(graph)), {"x": x})["y"]
        np.testing.assert_allclose(evaluate(graph, {"x": x})["y"], expected, atol=2e-5, rtol=2e-5)


def test_a_batch_is_quantised_like_single_samples(rng: np.random.Generator) -> None:
    result, samples = quantised("cnn", rng)
    together = evaluate(result.integer, {"x": samples})["y"]
    single = [evaluate(result.integer, {"x": x[np.newaxis]})["y"] for x in samples]
    np.testing.assert_array_equal(together, np.concatenate(single))


def test_bias_correction_moves_the_mean_of_the_output_to_the_float_one(
    rng: np.random.Generator,
) -> None:
    network = Network()
    weights = (np.round(rng.uniform(-3, 3, (64, 4))) + 0.45).astype(np.float32)
    weights[0] = 127.0
    network.node("MatMul", ["x", network.constant("w", weights)], "y")
    graph = float_graph(network.model({"x": (1, 64)}))
    samples = {"x": (normal(rng, 64, 64) + 3).astype(np.float32)}
    want = evaluate(graph, samples)["y"].mean(axis=0)
    errors = {}
    for corrected in (False, True):
        options = QuantisationOptions(method=Method.MIN_MAX, bias_correction=corrected)
        found = evaluate(quantise(graph, samples, options).integer, samples)["y"].mean(axis=0)
        errors[corrected] = float(np.abs(found - want).max())
    assert errors[True] < errors[False] / 5


@pytest.mark.parametrize("hidden", [False, True])
def test_masked_scores_stay_real(hidden: bool, rng: np.random.Generator) -> None:
    network = Network()
    network.node("MatMul", ["x", network.constant("w", normal(rng, 8, 6) / 2)], "scores")
    network.node("Cast", ["mask"], "real", to=onnx.TensorProto.FLOAT)
    network.node("Sub", [network.constant("one", np.float32(1)), "real"], "inverse")
    network.node("Mul", ["inverse", network.constant("low", np.float32(-1e4))], "bias")
    network.node("Add", ["scores", "bias"], "masked")
    network.node("Softmax", ["masked"], "shares", axis=-1)
    network.node("MatMul", ["shares", network.constant("v", normal(rng, 6, 5))], "y")
    model = network.model({"x": (2, 8)})
    mask = onnx.helper.make_tensor_value_info("mask", onnx.TensorProto.INT64, [2, 6])
    model.graph.input.append(mask)
    graph = float_graph(model)
    samples = {"x": normal(rng, 16, 8), "mask": np.ones((16, 6), np.int64)}
    if hidden:
        samples["mask"][:, 3:] = 0
    result = quantise(graph, samples, QuantisationOptions(percentile=100.0))
    assert [label.split("'")[1] for label in result.report.real_nodes] == [
        "inverse",
        "bias",
        "masked",
        "shares",
    ]
    feeds = {"x": samples["x"][:2], "mask": np.array([[1, 1, 0, 1, 0, 0]] * 2)}
    expected = evaluate(graph, feeds)["y"]
    found = evaluate(result.integer, feeds)["y"]
    # Other masks than those of the samples let outputs leave their range a little.
    assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max()


def test_excluded_nodes_stay_real(rng: np.random.Generator) -> None:
    graph = float_graph(small_cnn(rng))
    samples = {"x": normal(rng, 4, 3, 8, 10)}
    result = quantise(graph, samples, QuantisationOptions(exclude=frozenset({"c3"})))
    assert result.report.real_nodes == ("node 'c3' (Conv)",)


def test_what_cannot_be_quantised_is_named(rng: np.random.Generator) -> None:
    graph = float_graph(small_cnn(rng))
    options = QuantisationOptions()
    good = normal(rng, 2, 3, 8, 10)
    for samples, message in (
        ({}, "samples for input 'x' are missing"),
        (
            {"x": good[:, :2]},
            (
                "samples of input 'x' must be [1, 3, 8, 10] with any number in front,"
                " not [2, 2, 8, 10]"
            ),
        ),
        ({"x": good.astype(np.float64)}, "samples of input 'x' must be float32, not float64"),
        ({"x": good[:0]}, "input 'x' needs a multiple of 1 samples, not 0"),
        ({"x": good, "z": good}, "there is no input 'z' for the samples given"),
        (
            {"x": np.full_like(good, np.inf)},
            "tensor 'x' holds inf to inf, which cannot be quantised",
        ),
    ):
        with pytest.raises(InputError) as caught:
            quantise(graph, samples, options)
        assert str(caught.value) == message
    with pytest.raises(InputError, match="there is no node 'nowhere' to leave out"):
        quantise(graph, {"x": good}, QuantisationOptions(exclude=frozenset({"nowhere"})))
    with pytest.raises(InputError, match="percentile must be above 50 and at most 100, not 20"):
        QuantisationOptions(percentile=20)
    integer = quantise(graph, {"x": good}, options)
    with pytest.raises(ModelError, match="the network is quantised already"):
        quantise(integer.network, {"x": good}, options)
    network = Network()
    network.node("Exp", ["x"], "y")
    graph = float_graph(network.model({"x": (1, 3)}))
    with pytest.raises(ModelError, match="the network holds no operator that can be quantised"):
        quantise(graph, {"x": normal(rng, 2, 3)}, options)


@pytest.mark.parametrize("method", [method.value for method in Method])
def test_the_demo_network_keeps_its_accuracy(method: str, tmp_path: Path) -> None:
    samples = demo.load_samples()
    model = tw.load(demo.FLOAT_MODEL_PATH)
    quantized = tw.quantize(model, samples.images, labels=samples.labels, method=method)
    accuracy = quantized.report.accuracy
    assert accuracy is not None
    assert accuracy.float_share >= 0.97
    assert accuracy.float_right - accuracy.quantised_right <= 1
    path = tmp_path / "digits_int8.onnx"
    quantized.save_onnx(path)
    x = samples.images[:1]
    compiled, again = tw.compile(quantized, "tiny"), tw.load(path)
    (logits,) = compiled.run(x).outputs.values()
    np.testing.assert_array_equal(
        logits, evaluate(again.graph, {again.graph.inputs[0]: x})["logits"]
    )


def test_the_call_refuses_what_it_cannot_take(rng: np.random.Generator) -> None:
    images = demo.load_samples().images
    with pytest.raises(TilewrightError, match="there is no calibration method 'mean'"):
        tw.quantize(demo.FLOAT_MODEL_PATH, images, method="mean")
    with pytest.raises(TilewrightError, match="the network is quantised already"):
        tw.quantize(demo.MODEL_PATH, images)
    with pytest.raises(TilewrightError, match="a compiled model cannot be quantised"):
        tw.quantize(tw.compile(demo.MODEL_PATH, "tiny"), images)  # type: ignore[arg-type]
    with pytest.raises(TilewrightError, match="there are 3 labels for 40 samples"):
        tw.quantize(demo.FLOAT_MODEL_PATH, images, labels=[1, 2, 3])


def test_nothing_is_quantised_again_behind_the_last_product(rng: np.random.Generator) -> None:
    network = Network()
    network.node("MatMul", ["x", network.constant("w", normal(rng, 8, 6))], "scores")
    network.node("Exp", ["scores"], "sizes")
    network.node("Concat", ["scores", "sizes"], "joined", axis=1)
    network.node("Relu", ["joined"], "y")
    graph = float_graph(network.model({"x": (2, 8)}))
    result = quantise(graph, {"x": normal(rng, 16, 8)}, QuantisationOptions())
    assert sum(isinstance(node.op, Quantize) for node in result.integer.nodes) == 1
    assert [label.split("'")[1] for label in result.report.real_nodes] == ["sizes", "y"]
