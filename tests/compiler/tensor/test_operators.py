import numpy as np
import pytest
from integer_graphs import GraphBuilder
from loop_nests import evaluate_tensor

from tilewright.compiler.evaluate import evaluate_all
from tilewright.compiler.graph import Graph, Node, Tensor
from tilewright.compiler.operators import (
    BinaryFunction,
    Cast,
    Compare,
    Connective,
    ConvTranspose2d,
    DataType,
    Dequantize,
    DequantizeWeights,
    Expand,
    FloatAveragePool2d,
    FloatBinary,
    FloatClip,
    FloatConv2d,
    FloatConvTranspose2d,
    FloatDense,
    FloatInterpolate,
    FloatLayerNorm,
    FloatMatMul,
    FloatReduce,
    FloatSoftmax,
    FloatUnary,
    Function,
    Gather,
    LayerNorm,
    Logical,
    MatMul,
    Mul,
    Operator,
    Quantize,
    Reduction,
    Reinterpret,
    Relation,
    Select,
    Softmax,
    Transpose,
    Upsample2d,
)
from tilewright.compiler.operators.inference import infer
from tilewright.compiler.operators.tensor_type import TensorType
from tilewright.compiler.tensor.declare import placeholder
from tilewright.compiler.tensor.operators.elementwise import gelu
from tilewright.compiler.tensor.operators.from_graph import declare_operator
from tilewright.compiler.tensor.scalar_types import ScalarType

FLOAT32 = ScalarType.FLOAT32


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


def test_broadcasts_equal_the_graph(rng: np.random.Generator) -> None:
    a = rng.standard_normal((2, 3, 4)).astype(np.float32)
    b = rng.standard_normal((3, 1)).astype(np.float32)
    for function in BinaryFunction:
        first = np.abs(a) if function is BinaryFunction.POWER else a
        operands = {"in0": first, "in1": b}
        compare_nodes(single_node(FloatBinary(function=function), first, b), operands, 2e-6)
    builder = GraphBuilder(seed=3)
    x, y, z = builder.input(2, 3, 4), builder.input(3, 1), builder.input(1, 1, 4)
    product = Mul(
        a_zero_point=3, b_zero_point=-5, multiplier=9_000_000, shift=29, zero_point=4, low=-100,
        high=120,
    )  # fmt: skip
    outputs = [builder.add(x, y), builder.node(product, y, x), builder.node(product, z, z)]
    graph = builder.build(*outputs)
    compare_nodes(graph, builder.values(graph))


@pytest.mark.parametrize("stride", [(1, 1), (2, 3)])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 1, 2)])
@pytest.mark.parametrize(("dilation", "groups"), [((1, 1), 1), ((2, 1), 2)])
def test_transposed_convolutions_equal_the_graph(
    rng: np.random.Generator,
    stride: tuple[int, int],
    pads: tuple[int, int, int, int],
    dilation: tuple[int, int],
    groups: int,
) -> None:
    image = rng.integers(-128, 128, (1, 3, 4, 2)).astype(np.int8)
    weights = rng.integers(-128, 128, (4, 4, 3, 2 // groups)).astype(np.int8)
    attributes = {"stride": stride, "pads": pads, "dilation": dilation, "groups": groups}
    integer = ConvTranspose2d(
        **attributes, extra=(0, 1), input_zero_point=5, zero_point=3, low=-128, high=127
    )
    parameters = [rng.integers(-99, 99, 4), rng.integers(1 << 23, 1 << 24, 4), np.full(4, 34)]
    compare_operator(integer, image, weights, *(one.astype(np.int32) for one in parameters))
    real = FloatConvTranspose2d(**attributes)
    floats = image.astype(np.float32) / 50, weights.astype(np.float32) / 50
    compare_operator(real, *floats, tolerance=2e-5)
    compare_operator(real, *floats, np.ones(4, np.float32), tolerance=2e-5)


def compare_operator(op: Operator, *operands: np.ndarray, tolerance: float = 0) -> None:
    inputs = {f"in{number}": array for number, array in enumerate(operands)}
    compare_nodes(single_node(op, *operands), inputs, tolerance)


def test_products_of_activations_equal_the_graph(rng: np.random.Generator) -> None:
    a = rng.integers(-128, 128, (2, 3, 5)).astype(np.int8)
    b = rng.integers(-128, 128, (5, 4)).astype(np.int8)
    product = MatMul(
        a_zero_point=3, b_zero_point=-7, multiplier=1 << 23, shift=32, zero_point=1, low=-128,
        high=127,
    )  # fmt: skip
    compare_operator(product, a, b)
    compare_operator(FloatMatMul(), a.astype(np.float32), b.astype(np.float32))
    real = rng.standard_normal((2, 3, 7)).astype(np.float32)
    compare_operator(FloatDense(), real, np.ones((2, 7), np.float32), tolerance=2e-6)


def test_movements_equal_the_graph(rng: np.random.Generator) -> None:
    x = rng.integers(-128, 128, (2, 3, 4, 2)).astype(np.int8)
    compare_operator(Upsample2d(factor=(2, 3)), x)
    compare_operator(Expand(shape=(5, 2, 3, 4, 2)), x)
    compare_operator(Expand(shape=(3, 4)), x[0, :1, :, 0])
    compare_operator(Gather(axis=1), x, np.array([[2, -1], [0, -3]], np.int32))
    compare_operator(Gather(axis=0), x, np.array(1, np.int64))
    indices = np.array([[0, 1], [1, 2], [2, 2]], np.int32)
    weights = rng.random((3, 2)).astype(np.float32)
    compare_operator(
        FloatInterpolate(axis=1), x.astype(np.float32), indices, weights, tolerance=1e-6
    )


def test_normalisations_equal_the_graph(rng: np.random.Generator) -> None:
    x = rng.integers(-128, 128, (3, 2, 8)).astype(np.int8)
    x[1, 0] = 7
    gain, offset = (rng.standard_normal(8) * 20).astype(np.float32), np.ones(8, np.float32)
    for floor in (0.0, 3.5):
        compare_operator(LayerNorm(floor=floor, zero_point=-3, low=-128, high=100), x, gain, offset)
    real = rng.standard_normal((3, 2, 8)).astype(np.float32)
    compare_operator(FloatLayerNorm(epsilon=1e-5), real, gain, offset, tolerance=2e-5)
    compare_operator(FloatSoftmax(beta=2.0, logarithm=True), real, tolerance=1e-5)
    for function in Reduction:
        compare_operator(FloatReduce(function=function, axes=(0, 2)), real, tolerance=1e-5)


def test_logic_equals_the_graph(rng: np.random.Generator) -> None:
    a = rng.integers(-2, 3, (3, 4)).astype(np.int32)
    b = rng.integers(-2, 3, (4,)).astype(np.int32)
    for relation in Relation:
        compare_operator(Compare(relation=relation), a, b)
    for connective in Connective:
        operands = (a > 0,) if connective is Connective.NOT else (a > 0, b > 0)
        compare_operator(Logical(connective=connective), *operands)
    compare_operator(Select(), a > 0, a, b)
    compare_operator(Cast(dtype=DataType.BOOL), a)
    compare_operator(Cast(dtype=DataType.INT64), (a * 1.5).astype(np.float32))
    compare_operator(Cast(dtype=DataType.FLOAT32), a > 0)


def test_gelu_at_known_points() -> None:
    # 0.5 * x * erfc(-x / sqrt(2)) at three points, from a table of the normal distribution
    points = np.array([-1.0, 0.0, 2.0], dtype=np.float32)
    declared = gelu(placeholder((3,), FLOAT32, "x"), "y")
    result = evaluate_tensor(declared, {"x": points})
    np.testing.assert_allclose(result, [-0.15865525, 0.0, 1.95449974], atol=1e-6)
