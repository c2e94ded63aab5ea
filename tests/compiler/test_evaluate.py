"""The reference evaluation against plain loops, exact fractions and the real definitions."""

from fractions import Fraction
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.evaluate import evaluate, evaluate_all
from tilewright.compiler.evaluate_elementwise import add, requantize_fast, rescale
from tilewright.compiler.evaluate_float import apply_function
from tilewright.compiler.evaluate_pooling import average_pool
from tilewright.compiler.graph import Graph, Node, Tensor
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import (
    BinaryFunction,
    Clip,
    Conv2d,
    DataType,
    FloatAveragePool2d,
    FloatBinary,
    Function,
    Lookup,
    Quantize,
    Reshape,
    Slice,
    Softmax,
    Ties,
    Transpose,
)
from tilewright.compiler.operators.floating import FloatUnary
from tilewright.compiler.passes.integer_forms import (
    Quantisation,
    add_operator,
    average_operator,
    requantize_operator,
)
from tilewright.compiler.passes.integer_tables import lookup_table
from tilewright.isa.errors import InputError
from tilewright.isa.integers import requantize

NODE = Node(name="n", op=FloatBinary(function=BinaryFunction.ADD), inputs=(), outputs=("y",))


def half_even(value: Fraction) -> int:
    """Round a fraction as Python does, which is half to even."""
    return round(value)


@given(
    accumulator=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=8),
    bias=st.integers(-(2**20), 2**20),
    multiplier=st.integers(0, 2**24 - 1),
    shift=st.integers(0, 63),
    zero_point=st.integers(-128, 127),
)
def test_fast_requantisation_equals_the_definition(
    accumulator: list[int], bias: int, multiplier: int, shift: int, zero_point: int
) -> None:
    values = np.array(accumulator, np.int64)
    fast = requantize_fast(
        values.astype(np.float64),
        np.array([bias]),
        np.array([multiplier]),
        np.array([shift]),
        magnitude=int(np.abs(values).max()) + abs(bias),
        zero_point=zero_point,
        low=-100,
        high=99,
    )
    slow = requantize(values, bias, multiplier, shift, zero_point=zero_point, low=-100, high=99)
    exact = [
        min(max(half_even(Fraction((v + bias) * multiplier, 2**shift)) + zero_point, -100), 99)
        for v in accumulator
    ]
    assert fast.tolist() == slow.tolist() == exact


def convolution_by_loops(
    op: Conv2d,
    x: npt.NDArray[np.int8],
    weights: npt.NDArray[np.int16],
    bias: list[int],
    scales: list[Fraction],
) -> npt.NDArray[np.int64]:
    """Return the result of a convolution element by element, scales as exact fractions."""
    (batch, height, width), (outputs, rows, columns, depth) = x.shape[:3], weights.shape
    top, left, bottom, right = op.pads
    out_height = (height + top + bottom - op.dilation[0] * (rows - 1) - 1) // op.stride[0] + 1
    out_width = (width + left + right - op.dilation[1] * (columns - 1) - 1) // op.stride[1] + 1
    result = np.zeros((batch, out_height, out_width, outputs), np.int64)
    for n, i, j, o in np.ndindex(*result.shape):
        group = o // (outputs // op.groups)
        total = bias[o]
        for r, s, d in product(range(rows), range(columns), range(depth)):
            y = i * op.stride[0] - top + r * op.dilation[0]
            z = j * op.stride[1] - left + s * op.dilation[1]
            inside = 0 <= y < height and 0 <= z < width
            value = int(x[n, y, z, group * depth + d]) if inside else op.input_zero_point
            total += value * int(weights[o, r, s, d])
        step = half_even(total * scales[o]) + op.zero_point
        result[n, i, j, o] = min(max(step, op.low), op.high)
    return result


CONVOLUTIONS = {
    "plain": (Conv2d(input_zero_point=5, zero_point=-7, low=-128, high=127), (4, 3, 2, 6)),
    "everything": (
        Conv2d(
            stride=(2, 1),
            pads=(1, 0, 2, 3),
            dilation=(1, 2),
            groups=2,
            input_zero_point=-9,
            zero_point=3,
            low=-20,
            high=100,
        ),
        (4, 2, 2, 3),
    ),
    "depthwise": (
        Conv2d(pads=(1, 1, 1, 1), groups=6, input_zero_point=77, zero_point=0, low=0, high=127),
        (12, 3, 3, 1),
    ),
}


@pytest.mark.parametrize("case", sorted(CONVOLUTIONS))
@pytest.mark.parametrize("weight_type", [np.int8, np.int16])
def test_convolution_equals_loops(
    case: str, weight_type: type[np.int8 | np.int16], rng: np.random.Generator
) -> None:
    op, shape = CONVOLUTIONS[case]
    limit = 127 if weight_type is np.int8 else 255
    x = rng.integers(-128, 128, (2, 5, 6, 6), dtype=np.int8)
    weights = rng.integers(-limit, limit + 1, shape).astype(weight_type)
    bias = rng.integers(-5000, 5000, shape[0]).astype(np.int32)
    multiplier = rng.integers(2**23, 2**24, shape[0]).astype(np.int32)
    shift = rng.integers(30, 34, shape[0]).astype(np.int32)
    builder = GraphBuilder("convolution")
    builder.add_input(Tensor(name="x", shape=(1, 5, 6, 6), dtype=DataType.INT8))
    operands = [
        builder.add_constant(name, values)
        for name, values in (("w", weights), ("b", bias), ("m", multiplier), ("s", shift))
    ]
    output = builder.add(op, ["x", *operands], node="y")
    result = evaluate(builder.build([output]), {"x": x})[output]
    scales = [Fraction(int(m), 2 ** int(s)) for m, s in zip(multiplier, shift, strict=True)]
    expected = convolution_by_loops(op, x, weights, bias.tolist(), scales)
    assert np.array_equal(result, expected)
    assert len(np.unique(result)) > 20


def test_a_sum_beyond_float32_is_exact(rng: np.random.Generator) -> None:
    """4,096 products of 127 * 127 pass 2**24, where float32 drops odd numbers."""
    builder = GraphBuilder("long")
    builder.add_input(Tensor(name="x", shape=(1, 1, 1, 4096), dtype=DataType.INT8))
    weights = np.full((2, 1, 1, 4096), 127, np.int8)
    weights[1, 0, 0, 0] = 126
    constants = {
        "w": weights,
        "b": np.array([-4096 * 127 * 127] * 2, np.int32),
        "m": np.array([2**23] * 2, np.int32),
        "s": np.array([23] * 2, np.int32),
    }
    operands = [builder.add_constant(name, values) for name, values in constants.items()]
    op = Conv2d(input_zero_point=0, zero_point=0, low=-128, high=127)
    output = builder.add(op, ["x", *operands], node="y")
    x = np.full((1, 1, 1, 4096), 127, np.int8)
    assert evaluate(builder.build([output]), {"x": x})[output].ravel().tolist() == [0, -127]


def random_quantisation(rng: np.random.Generator, scale: float) -> Quantisation:
    return Quantisation(float(np.float32(scale)), int(rng.integers(-128, 128)))


def test_sum_is_within_a_step_of_the_real_sum_and_rarely_differs(rng: np.random.Generator) -> None:
    a, b = (grid.astype(np.int8) for grid in np.meshgrid(*[np.arange(-128, 128)] * 2))
    shares = []
    for _ in range(300):
        scales = 10 ** rng.uniform(-4, 1, 2)
        first, second = (random_quantisation(rng, scale) for scale in scales)
        target = random_quantisation(rng, scales.max() * 10 ** rng.uniform(-0.5, 0.5))
        result = add(add_operator(first, second, target, NODE), a, b)
        real = (a.astype(np.float64) - first.zero_point) * first.scale
        real += (b.astype(np.float64) - second.zero_point) * second.scale
        expected = np.clip(np.rint(real / target.scale) + target.zero_point, -128, 127)
        steps = np.abs(result - expected)
        assert steps.max() <= 1
        shares.append(np.mean(steps > 0))
    assert np.mean(shares) < 1e-4
    assert max(shares) < 0.005


def test_mean_is_within_a_step_of_the_real_mean_and_rarely_differs(
    rng: np.random.Generator,
) -> None:
    shares = []
    for _ in range(300):
        kernel = (int(rng.integers(1, 9)), int(rng.integers(1, 9)))
        scale = 10 ** rng.uniform(-3, 1)
        source = random_quantisation(rng, scale)
        target = random_quantisation(rng, scale * 10 ** rng.uniform(-0.5, 0.5))
        op = FloatAveragePool2d(kernel=kernel, stride=(1, 1))
        x = rng.integers(-128, 128, (1, *kernel, 500), dtype=np.int8)
        result = average_pool(average_operator(op, kernel, source, target, NODE), x)[0, 0, 0]
        mean = (x.astype(np.float64) - source.zero_point).mean(axis=(0, 1, 2))
        real = mean * source.scale / target.scale
        expected = np.clip(np.rint(real) + target.zero_point, -128, 127)
        steps = np.abs(result - expected)
        assert steps.max() <= 1
        shares.append(np.mean(steps > 0))
    assert np.mean(shares) < 1e-5


@pytest.mark.parametrize(
    ("ties", "zero_point", "expected"),
    [
        (Ties.EVEN, -128, [-128, -126, -126]),
        (Ties.UP, -128, [-127, -126, -125]),
        (Ties.AWAY_FROM_ZERO, -128, [-128, -127, -126]),
        (Ties.AWAY_FROM_ZERO, 0, [-128, -127, -126]),
        (Ties.UP, 0, [-127, -126, -125]),
    ],
)
def test_a_mean_half_between_two_steps(ties: Ties, zero_point: int, expected: list[int]) -> None:
    same = Quantisation(0.125, zero_point)
    op = FloatAveragePool2d(kernel=(1, 2), stride=(1, 1), ties=ties)
    x = np.array([[-128, -127, -126], [-127, -126, -125]], np.int8).reshape(1, 1, 2, 3)
    integer = average_operator(op, (1, 2), same, same, NODE)
    assert average_pool(integer, x).ravel().tolist() == expected
    assert integer.multiplier.bit_length() == 24


def test_borders_of_an_average_have_their_own_scales() -> None:
    same = Quantisation(0.125, -128)
    op = FloatAveragePool2d(kernel=(3, 3), stride=(1, 1), pads=(1, 1, 1, 1))
    integer = average_operator(op, (4, 4), same, same, NODE)
    assert [scale.count for scale in integer.border] == [4, 6]
    counted = FloatAveragePool2d(
        kernel=(3, 3), stride=(1, 1), pads=(1, 1, 1, 1), count_include_pad=True
    )
    assert average_operator(counted, (4, 4), same, same, NODE).border == ()
    x = np.full((1, 4, 4, 1), 32, np.int8)
    assert np.unique(average_pool(integer, x)).tolist() == [32]
    whole = average_pool(average_operator(counted, (4, 4), same, same, NODE), x)
    assert whole[0, :2, :2, 0].tolist() == [[-57, -21], [-21, 32]]


def test_change_of_scale_equals_the_real_one_at_every_value(rng: np.random.Generator) -> None:
    x = np.arange(-128, 128).astype(np.int8)
    for _ in range(500):
        scale = 10 ** rng.uniform(-3, 1)
        source = random_quantisation(rng, scale)
        target = random_quantisation(rng, scale * 10 ** rng.uniform(-1, 1))
        factor = Fraction(float(np.float32(source.scale) / np.float32(target.scale)))
        expected = [
            min(max(half_even((v - source.zero_point) * factor) + target.zero_point, -128), 127)
            for v in range(-128, 128)
        ]
        assert rescale(requantize_operator(source, target, "x"), x).tolist() == expected


def test_lookup_reads_the_entry_of_each_value() -> None:
    builder = GraphBuilder("lookup")
    builder.add_input(Tensor(name="x", shape=(256,), dtype=DataType.INT8))
    table = builder.add_constant("t", np.arange(127, -129, -1).astype(np.int8))
    output = builder.add(Lookup(), ["x", table], node="y")
    x = np.arange(-128, 128).astype(np.int8)
    expected = np.arange(127, -129, -1)
    assert np.array_equal(evaluate(builder.build([output]), {"x": x})[output], expected)


#: What functions yield at 12700 in steps of 0.01, where they do not leave int8.
BOUNDED = {
    Function.SIGMOID: 100,
    Function.TANH: 100,
    Function.HARD_SIGMOID: 100,
    Function.ERF: 100,
    Function.SIGN: 100,
    Function.RECIPROCAL: 0,
    Function.NEGATE: -128,
}


@pytest.mark.parametrize("function", list(Function))
def test_a_table_saturates_where_the_function_leaves_the_range(function: Function) -> None:
    op = FloatUnary(function=function, alpha=0.5, beta=0.5)
    table = lookup_table(
        lambda x: apply_function(op, x), Quantisation(100.0, 0), Quantisation(0.01, 0)
    )
    assert table[255] == BOUNDED.get(function, 127)


def test_a_table_is_zero_where_the_function_is_not_defined() -> None:
    op = FloatUnary(function=Function.LOG)
    table = lookup_table(
        lambda x: apply_function(op, x), Quantisation(1.0, 0), Quantisation(0.1, 7)
    )
    assert table[:128].tolist() == [7] * 128
    assert table[128:131].tolist() == [-128, 7, 14]


def test_integer_softmax_is_the_real_one_rounded(rng: np.random.Generator) -> None:
    builder = GraphBuilder("softmax")
    builder.add_input(Tensor(name="x", shape=(50, 10), dtype=DataType.INT8))
    exponentials = np.rint(2**30 * np.exp(-0.1 * np.arange(256))).astype(np.int32)
    table = builder.add_constant("t", exponentials)
    output = builder.add(Softmax(scale=1 / 256, zero_point=-128), ["x", table], node="y")
    x = rng.integers(-128, 128, (50, 10), dtype=np.int8)
    shares = (evaluate(builder.build([output]), {"x": x})[output].astype(int) + 128) / 256
    real = np.exp(0.1 * x.astype(np.float64))
    expected = np.minimum(real / real.sum(axis=1, keepdims=True), 255 / 256)
    assert np.abs(shares - expected).max() <= 0.5 / 256 + 1e-9


def chain() -> Graph:
    """Return a float input, quantised, sliced, flattened."""
    builder = GraphBuilder("chain")
    builder.add_input(Tensor(name="x", shape=(1, 4, 6), dtype=DataType.FLOAT32))
    q = builder.add(Quantize(scale=0.5, zero_point=1), ["x"], node="q")
    s = builder.add(Slice(begin=(0, 1, 0), end=(1, 3, 6), stride=(1, 1, 2)), [q], node="s")
    r = builder.add(Reshape(shape=(1, 6)), [s], node="r")
    return builder.build([builder.add(Clip(low=-10, high=20), [r], node="c")])


def test_several_samples_at_once_equal_one_after_another(rng: np.random.Generator) -> None:
    x = rng.normal(0, 9, (5, 4, 6)).astype(np.float32)
    together = evaluate(chain(), {"x": x})["c"]
    one_by_one = [evaluate(chain(), {"x": x[n : n + 1]})["c"] for n in range(5)]
    assert np.array_equal(together, np.concatenate(one_by_one))
    expected = np.clip(np.round(x / 0.5) + 1, -128, 127)[:, 1:3, ::2].reshape(5, 6)
    assert np.array_equal(together, np.clip(expected, -10, 20))


def test_every_tensor_is_returned_on_demand(rng: np.random.Generator) -> None:
    x = rng.normal(0, 9, (1, 4, 6)).astype(np.float32)
    values = evaluate_all(chain(), {"x": x})
    assert set(values) == {"x", "q", "s", "r", "c"}
    assert np.array_equal(values["r"], values["s"].reshape(1, 6))


BAD_INPUTS = {
    "missing": ({}, "input 'x' is missing"),
    "unknown": ({"z": np.zeros(1)}, "graph 'chain' has no input 'z'"),
    "shape": (
        {"x": np.zeros((1, 4, 5), np.float32)},
        "input 'x' must be float32[1, 4, 6], not float32[1, 4, 5]",
    ),
    "type": (
        {"x": np.zeros((1, 4, 6), np.float64)},
        "input 'x' must be float32[1, 4, 6], not float64[1, 4, 6]",
    ),
    "not a number": (
        {"x": np.full((1, 4, 6), np.nan, np.float32)},
        "input 'x' holds values that are not a number",
    ),
    "no samples": (
        {"x": np.zeros((0, 4, 6), np.float32)},
        "input 'x' must hold a multiple of 1 samples, not 0",
    ),
}


@pytest.mark.parametrize("case", sorted(BAD_INPUTS))
def test_inputs_that_do_not_fit_are_named(case: str) -> None:
    inputs, message = BAD_INPUTS[case]
    with pytest.raises(InputError) as caught:
        evaluate(chain(), inputs)
    assert str(caught.value) == message


def test_a_graph_that_moves_the_batch_takes_one_batch_at_a_time() -> None:
    builder = GraphBuilder("moved")
    builder.add_input(Tensor(name="x", shape=(2, 3), dtype=DataType.INT8))
    output = builder.add(Transpose(permutation=(1, 0)), ["x"], node="t")
    graph = builder.build([output])
    assert evaluate(graph, {"x": np.ones((2, 3), np.int8)})["t"].shape == (3, 2)
    with pytest.raises(InputError, match="one batch at a time"):
        evaluate(graph, {"x": np.ones((4, 3), np.int8)})
