"""Each pass alone on small graphs, and the pipeline as a whole: same results before and after."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx_networks import Network, Scale, serialized

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph, Source, Tensor
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import (
    Clip,
    Concat,
    Conv2d,
    DataType,
    DequantizeWeights,
    FloatClip,
    FloatConv2d,
    MaxPool2d,
    Operator,
    Pad,
    Quantize,
    Requantize,
    Reshape,
    Slice,
    Transpose,
)
from tilewright.compiler.passes.fold_constants import fold_constants
from tilewright.compiler.passes.fold_flatten import fold_flatten
from tilewright.compiler.passes.fuse_clips import fuse_clips
from tilewright.compiler.passes.pipeline import Stage, lower_to_integer
from tilewright.compiler.passes.select_channels import select_channels
from tilewright.compiler.passes.simplify_movement import simplify_movement
from tilewright.compiler.passes.sink_transposes import sink_transposes
from tilewright.compiler.readers import read_model
from tilewright.compiler.readers.onnx_reader import read_onnx

Array = npt.NDArray[Any]

FIRST = (0, 3, 1, 2)
LAST = (0, 2, 3, 1)
MODELS = ("mnist_cnn_qdq_u8s8.onnx", "resnet20_cifar10_qop_u8u8_pt.onnx", "kws_dscnn_int8.tflite")
HALVED = Requantize(bias=3, multiplier=2**23, shift=24, zero_point=-5, low=-128, high=127)


class Sketch:
    """A graph of one input under construction, written down as a chain of operators."""

    def __init__(self, shape: tuple[int, ...], dtype: DataType = DataType.INT8) -> None:
        self.builder = GraphBuilder("sketch")
        self.builder.add_input(
            Tensor(
                name="x",
                shape=shape,
                dtype=dtype,
                scale=0.5 if dtype is DataType.INT8 else None,
                zero_point=-3 if dtype is DataType.INT8 else None,
                source=Source(name="s", axes=tuple(range(len(shape)))),
            )
        )

    def add(self, op: Operator, *inputs: str, scale: float | None = None) -> str:
        """Add a node named after its operator; with a scale its result has the input's meaning."""
        return self.builder.add(
            op,
            inputs,
            node=type(op).__name__.lower(),
            scale=scale,
            zero_point=None if scale is None else -3,
        )

    def convolution(self, x: str, weights: Array, **attributes: Any) -> str:
        """Add a convolution with these weights and arbitrary parameters."""
        outputs = weights.shape[0]
        constants = (
            ("w", weights),
            ("b", np.arange(outputs, dtype=np.int32) * 7),
            ("m", np.full(outputs, 2**23 + 12345, np.int32)),
            ("s", np.full(outputs, 30, np.int32)),
        )
        operands = [self.builder.add_constant(name, values) for name, values in constants]
        op = Conv2d(input_zero_point=-3, zero_point=4, low=-128, high=127, **attributes)
        return self.builder.add(op, [x, *operands], node="conv2d")


def kinds(graph: Graph) -> list[str]:
    return [type(node.op).__name__ for node in graph.nodes]


def same(before: Graph, after: Graph, x: Array) -> bool:
    """Tell whether two graphs yield the same bits, under the same names."""
    old, new = evaluate(before, {"x": x}), evaluate(after, {"x": x})
    return list(old) == list(new) and all(
        np.array_equal(old[name], new[name]) and old[name].dtype == new[name].dtype for name in old
    )


def floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(0, 5, shape).astype(np.float32)


def int8s(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-128, 128, shape, dtype=np.int8)


def test_transposes_cancel_through_elementwise_operators(rng: np.random.Generator) -> None:
    sketch = Sketch((1, 2, 3, 4), DataType.FLOAT32)
    last = sketch.add(Transpose(permutation=LAST), "x")
    clipped = sketch.add(FloatClip(low=-1.0, high=4.0), last)
    pooled = sketch.add(MaxPool2d(kernel=(2, 2), stride=(1, 1)), clipped)
    first = sketch.add(Transpose(permutation=FIRST), pooled)
    quantised = sketch.add(Quantize(scale=0.1, zero_point=2), first)
    padded = sketch.add(Pad(before=(0, 1, 0, 0), after=(0, 0, 2, 0), value=7.0), quantised)
    sliced = sketch.add(Slice(begin=(0, 0, 1, 0), end=(1, 3, 4, 3), stride=(1, 2, 1, 1)), padded)
    joined = sketch.add(Concat(axis=1), sliced, sliced)
    again = sketch.add(Transpose(permutation=LAST), joined)
    graph = sketch.builder.build([sketch.add(MaxPool2d(kernel=(1, 2), stride=(1, 1)), again)])
    result = sink_transposes(graph)
    assert kinds(result).count("Transpose") == 1
    assert isinstance(result.nodes[1].op, Transpose)
    assert same(graph, result, floats(rng, 1, 2, 3, 4))


def test_a_transpose_is_carried_out_once_in_front_of_an_output(rng: np.random.Generator) -> None:
    sketch = Sketch((1, 2, 3, 4))
    turned = sketch.add(Transpose(permutation=LAST), "x")
    outputs = [
        sketch.add(Clip(low=0, high=9), turned),
        sketch.add(Clip(low=-9, high=0), turned),
        turned,
    ]
    graph = sketch.builder.build(outputs)
    result = sink_transposes(graph)
    assert result.outputs == graph.outputs
    assert same(graph, result, int8s(rng, 1, 2, 3, 4))


def test_a_transpose_of_single_channels_is_a_reshape(rng: np.random.Generator) -> None:
    sketch = Sketch((1, 1, 3, 4))
    graph = sketch.builder.build([sketch.add(Transpose(permutation=LAST), "x")])
    assert kinds(sink_transposes(graph)) == ["Reshape"]
    assert same(graph, sink_transposes(graph), int8s(rng, 1, 1, 3, 4))


def test_the_source_of_a_tensor_keeps_its_axes(rng: np.random.Generator) -> None:
    network = Network()
    scale = Scale(scale=0.05, zero_point=np.int8(3))
    weights = rng.integers(-9, 9, (2, 3, 1, 1), dtype=np.int8)
    kernel = network.weights("w", weights, np.float32(0.1), np.int8(0))
    real = network.node("Conv", [network.quantized_input("x", scale), kernel], "c")
    network.finish(real, scale)
    model = network.model({"x": (1, 3, 5, 4)})
    graph = lower_to_integer(read_onnx(serialized(model), "source"))
    (convolution,) = (node for node in graph.nodes if isinstance(node.op, Conv2d))
    assert graph.tensors[convolution.outputs[0]].source == Source(name="y_q", axes=LAST)


def test_weights_are_moved_at_compile_time(rng: np.random.Generator) -> None:
    sketch = Sketch((1, 5, 5, 4), DataType.FLOAT32)
    weights = rng.integers(-9, 9, (6, 4, 3, 2), dtype=np.int8)
    operands = [
        sketch.builder.add_constant("w", weights),
        sketch.builder.add_constant("s", rng.uniform(0.1, 1, 6).astype(np.float32)),
        sketch.builder.add_constant("z", np.arange(6, dtype=np.int32)),
    ]
    real = sketch.add(DequantizeWeights(axis=0), *operands)
    turned = sketch.add(Transpose(permutation=LAST), real)
    graph = sketch.builder.build([sketch.add(FloatConv2d(), "x", turned)])
    result = fold_constants(graph)
    assert kinds(result) == ["DequantizeWeights", "FloatConv2d"]
    assert same(graph, result, floats(rng, 1, 5, 5, 4))


@pytest.mark.parametrize(("shape", "folded"), [((6,), True), ((2, 3), False)])
def test_channels_of_weights_survive_a_reshape_or_it_stays(
    shape: tuple[int, ...], folded: bool, rng: np.random.Generator
) -> None:
    sketch = Sketch(shape, DataType.FLOAT32)
    operands = [
        sketch.builder.add_constant("w", rng.integers(-9, 9, (1, 6), dtype=np.int8)),
        sketch.builder.add_constant("s", rng.uniform(0.1, 1, 6).astype(np.float32)),
        sketch.builder.add_constant("z", np.zeros(6, np.int32)),
    ]
    real = sketch.add(DequantizeWeights(axis=1), *operands)
    graph = sketch.builder.build([sketch.add(Reshape(shape=shape), real)])
    result = fold_constants(graph)
    assert ("Reshape" not in kinds(result)) is folded
    assert same(graph, result, floats(rng, *shape))


def test_movement_without_effect_goes(rng: np.random.Generator) -> None:
    sketch = Sketch((2, 3, 4, 1))
    y = sketch.add(Reshape(shape=(2, 12)), "x")
    y = sketch.add(Reshape(shape=(2, 3, 1, 4)), y)
    y = sketch.add(Slice(begin=(0,) * 4, end=(2, 3, 1, 4), stride=(1,) * 4), y)
    y = sketch.add(Pad(before=(0,) * 4, after=(0,) * 4, value=0.0), y)
    y = sketch.add(Concat(axis=2), y)
    y = sketch.add(Clip(low=-128, high=127), y)
    y = sketch.add(MaxPool2d(kernel=(1, 1), stride=(1, 1)), y)
    y = sketch.add(Transpose(permutation=(0, 2, 1, 3)), y)
    y = sketch.add(Transpose(permutation=(1, 0, 2, 3)), y)
    graph = sketch.builder.build([sketch.add(Clip(low=-7, high=7), y)])
    result = simplify_movement(graph)
    assert kinds(result) == ["Reshape", "Transpose", "Clip"] or kinds(result) == ["Reshape", "Clip"]
    assert same(graph, result, int8s(rng, 2, 3, 4, 1))


def test_two_outputs_of_one_value_are_two_tensors(rng: np.random.Generator) -> None:
    sketch = Sketch((1, 6))
    y = sketch.add(HALVED, "x")
    z = sketch.add(Pad(before=(0, 0), after=(0, 0), value=0.0), y)
    graph = sketch.builder.build([z, y, sketch.add(Reshape(shape=(1, 6)), y)])
    result = simplify_movement(graph)
    assert result.outputs == graph.outputs
    assert same(graph, result, int8s(rng, 1, 6))


def test_movement_with_effect_stays(rng: np.random.Generator) -> None:
    sketch = Sketch((1, 4, 4, 2))
    y = sketch.add(MaxPool2d(kernel=(1, 1), stride=(2, 2)), "x")
    y = sketch.add(Transpose(permutation=(0, 2, 1, 3)), y)
    y = sketch.add(Pad(before=(0, 1, 0, 0), after=(0, 0, 0, 0), value=3.0), y)
    graph = sketch.builder.build([y])
    result = simplify_movement(graph)
    assert kinds(result) == ["MaxPool2d", "Transpose", "Pad"]
    assert same(graph, result, int8s(rng, 1, 4, 4, 2))


def test_clips_become_part_of_what_requantises(rng: np.random.Generator) -> None:
    sketch = Sketch((1, 9))
    y = sketch.add(HALVED, "x")
    y = sketch.add(Clip(low=-20, high=90), y)
    y = sketch.add(Clip(low=0, high=100), y)
    graph = sketch.builder.build([y])
    result = fuse_clips(graph)
    assert kinds(result) == ["Requantize"]
    op = result.nodes[0].op
    assert isinstance(op, Requantize)
    assert (op.low, op.high) == (0, 90)
    assert same(graph, result, int8s(rng, 1, 9))


@pytest.mark.parametrize("reason", ["another reader", "an output", "movement"])
def test_a_clip_stays_where_it_cannot_be_merged(reason: str, rng: np.random.Generator) -> None:
    sketch = Sketch((1, 9))
    y = sketch.add(HALVED, "x")
    if reason == "movement":
        y = sketch.add(Reshape(shape=(9, 1)), y)
    outputs = [sketch.add(Clip(low=-20, high=90), y)]
    if reason == "another reader":
        outputs.append(sketch.add(Clip(low=-1, high=1), y))
    if reason == "an output":
        outputs.append(y)
    graph = sketch.builder.build(outputs)
    result = fuse_clips(graph)
    assert "Clip" in kinds(result)
    assert same(graph, result, int8s(rng, 1, 9))


@pytest.mark.parametrize("requantised", [False, True])
@pytest.mark.parametrize("size", [6, 7])
def test_a_strided_slice_padded_with_channels_is_a_convolution(
    requantised: bool, size: int, rng: np.random.Generator
) -> None:
    sketch = Sketch((1, size, size, 4))
    y = sketch.add(
        Slice(begin=(0,) * 4, end=(1, size, size, 4), stride=(1, 2, 2, 1)), "x", scale=0.5
    )
    y = sketch.add(Pad(before=(0, 0, 0, 2), after=(0, 0, 0, 3), value=-3.0), y, scale=0.5)
    if requantised:
        y = sketch.add(HALVED, y)
    graph = sketch.builder.build([y])
    result = select_channels(graph)
    assert kinds(result) == ["Conv2d"]
    assert same(graph, result, int8s(rng, 1, size, size, 4))


SELECTIONS = {
    "another value": (Pad(before=(0,) * 4, after=(0, 0, 0, 3), value=0.0), (1, 6, 6, 4)),
    "padded rows": (Pad(before=(0, 1, 0, 0), after=(0,) * 4, value=-3.0), (1, 6, 6, 4)),
    "an early end": (Pad(before=(0,) * 4, after=(0, 0, 0, 3), value=-3.0), (1, 4, 6, 4)),
}


@pytest.mark.parametrize("case", sorted(SELECTIONS))
def test_other_slices_and_pads_stay(case: str, rng: np.random.Generator) -> None:
    pad, end = SELECTIONS[case]
    sketch = Sketch((1, 6, 6, 4))
    y = sketch.add(Slice(begin=(0,) * 4, end=end, stride=(1, 2, 2, 1)), "x", scale=0.5)
    graph = sketch.builder.build([sketch.add(pad, y, scale=0.5)])
    result = select_channels(graph)
    assert kinds(result) == ["Slice", "Pad"]
    assert same(graph, result, int8s(rng, 1, 6, 6, 4))


@pytest.mark.parametrize("order", [None, FIRST, (0, 2, 1, 3)])
def test_a_dense_layer_behind_an_image_reads_the_image(
    order: tuple[int, ...] | None, rng: np.random.Generator
) -> None:
    sketch = Sketch((1, 3, 4, 5))
    image = sketch.add(Transpose(permutation=order), "x") if order else "x"
    flat = sketch.add(Reshape(shape=(1, 1, 1, 60)), image)
    weights = rng.integers(-9, 9, (7, 1, 1, 60), dtype=np.int8)
    graph = sketch.builder.build([sketch.convolution(flat, weights)])
    result = fold_flatten(graph)
    assert kinds(result) == ["Conv2d"]
    assert result.tensors[result.nodes[0].inputs[1]].shape == (7, 3, 4, 5)
    assert same(graph, result, int8s(rng, 1, 3, 4, 5))


@pytest.mark.parametrize("reason", ["batch", "pixels"])
def test_a_reshape_that_is_no_flattening_stays(reason: str, rng: np.random.Generator) -> None:
    sketch = Sketch((2, 3, 4, 5))
    shape = (1, 1, 1, 120) if reason == "batch" else (2, 1, 2, 30)
    flat = sketch.add(Reshape(shape=shape), "x")
    weights = rng.integers(-9, 9, (7, 1, 1, shape[3]), dtype=np.int8)
    graph = sketch.builder.build([sketch.convolution(flat, weights)])
    assert kinds(fold_flatten(graph)) == ["Reshape", "Conv2d"]


def test_the_pipeline_names_each_pass_of_the_folder(repository: Path) -> None:
    shared = {"__init__", "pipeline", "rewrite", "patterns", "reshape_groups"}
    shared |= {"integer_forms", "integer_emission", "integer_choice", "integer_tables"}
    files = {path.stem for path in (repository / "compiler" / "passes").glob("*.py")}
    assert {stage.value for stage in Stage} == files - shared


def test_the_pipeline_stops_and_reports(shared_models: Path) -> None:
    model = read_model(shared_models / "models" / "mnist_cnn_qdq_u8s8.onnx")
    seen: list[tuple[Stage, int]] = []

    def observe(stage: Stage, graph: Graph, seconds: float) -> None:
        assert seconds > 0
        seen.append((stage, len(str(graph))))

    graph = lower_to_integer(model, stop_after=Stage.LOWER_QUANTISED, observe=observe)
    last = list(Stage).index(Stage.LOWER_QUANTISED)
    assert [stage for stage, _ in seen] == list(Stage)[: last + 1]
    assert len(str(graph)) == seen[-1][1]


@pytest.mark.parametrize("name", MODELS)
def test_results_after_each_pass(
    name: str, shared_models: Path, golden_inputs: Callable[[str], Array]
) -> None:
    """Real arithmetic may be a step off; from the integer form on not a bit changes."""
    model = read_model(shared_models / "models" / name)
    x = golden_inputs(name)[:2]
    results: dict[Stage, Array] = {}

    def observe(stage: Stage, graph: Graph, seconds: float) -> None:
        results[stage] = evaluate(graph, {graph.inputs[0]: x})[graph.outputs[0]]

    lower_to_integer(model, observe=observe)
    real = evaluate(model, {model.inputs[0]: x})[model.outputs[0]]
    stages = list(Stage)
    lowered = stages.index(Stage.LOWER_QUANTISED)
    for stage in stages[:lowered]:
        assert np.allclose(results[stage], real, rtol=1e-5, atol=1)
    for stage in stages[lowered + 1 :]:
        assert np.array_equal(results[stage], results[Stage.LOWER_QUANTISED])
    assert np.array_equal(results[stages[-1]].argmax(axis=1), real.argmax(axis=1))
