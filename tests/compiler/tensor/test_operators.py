import numpy as np
import pytest
from integer_graphs import GraphBuilder
from loop_nests import evaluate_tensor

from tilewright.compiler.evaluate import evaluate_all
from tilewright.compiler.graph import Graph, Node, Tensor
from tilewright.compiler.operators import (
    BinaryFunction,
    DataType,
    Dequantize,
    DequantizeWeights,
    FloatAveragePool2d,
    FloatBinary,
    FloatClip,
    FloatConv2d,
    FloatDense,
    FloatSoftmax,
    FloatUnary,
    Function,
    Operator,
    Quantize,
    Reinterpret,
    Softmax,
    Transpose,
)
from tilewright.compiler.operators.inference import infer
from tilewright.compiler.operators.tensor_type import TensorType
from tilewright.compiler.tensor.declare import placeholder
from tilewright.compiler.tensor.operators.convolution import dense, matmul, transposed_conv2d
from tilewright.compiler.tensor.operators.elementwise import gelu
from tilewright.compiler.tensor.operators.from_graph import declare_operator
from tilewright.compiler.tensor.operators.movement import resize_nearest
from tilewright.compiler.tensor.operators.normalisation import layer_norm
from tilewright.compiler.tensor.scalar_types import ScalarType

FLOAT32, INT8 = ScalarType.FLOAT32, ScalarType.INT8


def single_node(op: Operator, *operands: np.ndarray) -> Graph:
    """A graph of one operator with all operands as inputs."""
    types = [TensorType(array.shape, DataType(str(array.dtype))) for array in operands]
    names = tuple(f"in{number}" for number in range(len(operands)))
    tensors = {
        name: Tensor(name=name, shape=kind.shape, dtype=kind.dtype)
        for name, kind in zip(names, types, strict=True)
    }
    result = infer(op, tuple(types))
    tensors["out"] = Tensor(name="out", shape=result.shape, dtype=result.dtype)
    return Graph(
        name="single",
        tensors=tensors,
        nodes=(Node(name="node", op=op, inputs=names, outputs=("out",)),),
        inputs=names,
        outputs=("out",),
        constants={},
    )


def compare_nodes(graph: Graph, inputs: dict[str, np.ndarray], tolerance: float = 0) -> None:
    """Each node's declaration yields what the graph's definition yields from the same operands."""
    values = evaluate_all(graph, inputs)
    assert graph.nodes
    for node in graph.nodes:
        sources = {
            tensor.name: placeholder(tensor.shape, ScalarType(tensor.dtype.value), tensor.name)
            for tensor in graph.operands(node)
        }
        operands = tuple(sources[name] for name in node.inputs)
        declared = declare_operator(node.op, operands, "result")
        result = evaluate_tensor(declared, {name: values[name] for name in node.inputs})
        expected = values[node.outputs[0]]
        assert result.dtype == expected.dtype
        if tolerance:
            np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel": (3, 3), "pads": (1, 1, 1, 1)},
        {"kernel": (3, 2), "stride": (2, 1), "pads": (0, 1, 2, 0)},
        {"kernel": (2, 3), "dilation": (2, 1)},
        {"kernel": (3, 3), "groups": 4, "pads": (1, 0, 0, 1), "stride": (2, 2)},
        {"kernel": (2, 2), "groups": 2},
        {"wide": True},
    ],
    ids=["padded", "strided", "dilated", "depthwise", "grouped", "int16 weights"],
)
def test_convolution_equals_the_graph(attributes: dict[str, object]) -> None:
    builder = GraphBuilder(seed=1)
    x = builder.input(1, 5, 6, 4)
    graph = builder.build(builder.conv(x, 8, **attributes))
    compare_nodes(graph, builder.values(graph))


def test_integer_operators_equal_the_graph() -> None:
    builder = GraphBuilder(seed=2)
    x, y = builder.input(1, 4, 5, 3), builder.input(1, 4, 5, 3)
    outputs = [
        builder.add(x, y),
        builder.requantize(x),
        builder.clip(x, -7, 30),
        builder.lookup(x),
        builder.average_pool(x, (2, 3), (1, 2), (1, 1, 0, 1), border=True),
        builder.average_pool(x, (2, 2), (2, 2), (0, 0, 1, 0)),
        builder.max_pool(x, (3, 2), (2, 1), (1, 0, 1, 1)),
        builder.pad(x, (0, 1, 0, 2), (1, 0, 2, 0), -5),
        builder.concat(3, x, y, x),
        builder.concat(1, x, y),
        builder.slice(x, (0, 1, 0, 0), (1, 4, 5, 2), (1, 2, 2, 1)),
        builder.reshape(x, 6, 10),
        builder.node(Transpose(permutation=(0, 3, 1, 2)), x),
    ]
    graph = builder.build(*outputs)
    compare_nodes(graph, builder.values(graph))


def test_integer_softmax_equals_the_graph(rng: np.random.Generator) -> None:
    x = rng.integers(-128, 128, (3, 10)).astype(np.int8)
    table = np.rint(2.0**30 * np.exp(-np.arange(256) * 0.05)).astype(np.int32)
    op = Softmax(scale=1 / 256, zero_point=-128)
    compare_nodes(single_node(op, x, table), {"in0": x, "in1": table})


def test_conversions_equal_the_graph(rng: np.random.Generator) -> None:
    real = (rng.standard_normal((4, 6)) * 3).astype(np.float32)
    real[0, :4] = 0.05, 0.15, -0.25, 1e6
    signed = rng.integers(-128, 128, (4, 6)).astype(np.int8)
    scale = np.array([0.5, 0.03, 0.7, 1.5], dtype=np.float32)
    zeros = np.array([0, 3, -4, 9], dtype=np.int32)
    cases: list[tuple[Operator, tuple[np.ndarray, ...]]] = [
        (Quantize(scale=0.1, zero_point=3), (real,)),
        (Quantize(scale=0.1, zero_point=130, dtype=DataType.UINT8), (real,)),
        (Dequantize(scale=0.037, zero_point=-12), (signed,)),
        (DequantizeWeights(axis=0), (signed, scale, zeros)),
        (DequantizeWeights(axis=1), (signed, scale[:1], zeros[:1])),
        (Reinterpret(dtype=DataType.UINT8), (signed,)),
        (Reinterpret(dtype=DataType.INT8), (signed.view(np.uint8),)),
    ]
    for op, operands in cases:
        inputs = {f"in{number}": array for number, array in enumerate(operands)}
        compare_nodes(single_node(op, *operands), inputs)


def test_float_operators_are_near_the_graph(rng: np.random.Generator) -> None:
    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    image, weights = normal(1, 5, 5, 4), normal(6, 3, 3, 2)
    cases: list[tuple[Operator, tuple[np.ndarray, ...]]] = [
        (FloatConv2d(pads=(1, 1, 1, 1), groups=2), (image, weights, normal(6))),
        (FloatConv2d(stride=(2, 2), groups=2), (image, weights)),
        (FloatDense(), (normal(2, 7), normal(3, 7), normal(3))),
        (FloatDense(), (normal(2, 7), normal(3, 7))),
        (FloatBinary(function=BinaryFunction.ADD), (image, normal(1, 5, 5, 4))),
        (FloatBinary(function=BinaryFunction.ADD), (image, normal(4))),
        (FloatAveragePool2d(kernel=(2, 2), stride=(2, 2), pads=(1, 0, 0, 1)), (image,)),
        (
            FloatAveragePool2d(
                kernel=(2, 3), stride=(1, 1), pads=(0, 1, 1, 0), count_include_pad=True
            ),
            (image,),
        ),
        (FloatClip(low=-0.5, high=float("inf")), (image,)),
        (FloatSoftmax(beta=0.5), (normal(3, 5),)),
        *(
            ((FloatUnary(function=function, alpha=0.3, beta=0.4)), (normal(9),))
            for function in Function
        ),
    ]
    for op, operands in cases:
        inputs = {f"in{number}": array for number, array in enumerate(operands)}
        compare_nodes(single_node(op, *operands), inputs, tolerance=2e-6)


@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (2, 3)])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 1, 2)])
def test_transposed_convolution_scatters(
    rng: np.random.Generator, stride: tuple[int, int], pads: tuple[int, int, int, int]
) -> None:
    image = rng.integers(-128, 128, (1, 3, 4, 2)).astype(np.int8)
    weights = rng.integers(-128, 128, (3, 4, 3, 2)).astype(np.int8)
    full = np.zeros((1, 2 * stride[0] + 4, 3 * stride[1] + 3, 3), dtype=np.int64)
    for y, x, ky, kx in np.ndindex(3, 4, 4, 3):
        values = image[:, y, x, :].astype(np.int64) - 5
        full[:, y * stride[0] + ky, x * stride[1] + kx] += values @ weights[:, ky, kx, :].T
    top, left, bottom, right = pads
    expected = full[:, top : full.shape[1] - bottom, left : full.shape[2] - right]
    declared = transposed_conv2d(
        placeholder(image.shape, INT8, "x"),
        placeholder(weights.shape, INT8, "w"),
        stride=stride,
        pads=pads,
        input_zero_point=5,
        name="y",
    )
    np.testing.assert_array_equal(evaluate_tensor(declared, {"x": image, "w": weights}), expected)


def test_products_of_activations(rng: np.random.Generator) -> None:
    a = rng.integers(-128, 128, (2, 3, 5)).astype(np.int8)
    b = rng.integers(-128, 128, (2, 5, 4)).astype(np.int8)
    declared = matmul(
        placeholder(a.shape, INT8, "a"),
        placeholder(b.shape, INT8, "b"),
        a_zero_point=3,
        b_zero_point=-7,
        name="y",
    )
    expected = (a.astype(np.int32) - 3) @ (b.astype(np.int32) + 7)
    np.testing.assert_array_equal(evaluate_tensor(declared, {"a": a, "b": b}), expected)
    plain = dense(placeholder((3, 5), INT8, "a"), placeholder((4, 5), INT8, "w"), None, "y")
    weights = b[0].T.copy()
    result = evaluate_tensor(plain, {"a": a[0], "w": weights})
    np.testing.assert_array_equal(result, a[0].astype(np.int32) @ b[0].astype(np.int32))


def test_resize_takes_the_nearest_element(rng: np.random.Generator) -> None:
    image = rng.integers(-128, 128, (1, 3, 4, 2)).astype(np.int8)
    declared = resize_nearest(placeholder(image.shape, INT8, "x"), (6, 6), "y")
    rows, columns = np.arange(6) * 3 // 6, np.arange(6) * 4 // 6
    expected = image[:, rows][:, :, columns]
    np.testing.assert_array_equal(evaluate_tensor(declared, {"x": image}), expected)


def test_layer_norm_and_gelu(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 8)).astype(np.float32)
    gain, offset = rng.standard_normal((2, 8)).astype(np.float32)
    declared = layer_norm(
        placeholder((3, 8), FLOAT32, "x"),
        placeholder((8,), FLOAT32, "g"),
        placeholder((8,), FLOAT32, "b"),
        epsilon=1e-5,
        name="y",
    )
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    expected = centred / np.sqrt(wide.var(axis=1, keepdims=True) + 1e-5) * gain + offset
    result = evaluate_tensor(declared, {"x": x, "g": gain, "b": offset})
    np.testing.assert_allclose(result, expected, atol=2e-6)
    # 0.5 * x * erfc(-x / sqrt(2)) at three points, from a table of the normal distribution
    points = np.array([-1.0, 0.0, 2.0], dtype=np.float32)
    declared = gelu(placeholder((3,), FLOAT32, "x"), "y")
    result = evaluate_tensor(declared, {"x": points})
    np.testing.assert_allclose(result, [-0.15865525, 0.0, 1.95449974], atol=1e-6)
