"""Products of two activations on the accelerator against the integer graph and numpy."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from integer_graphs import GraphBuilder
from nest_values import run_nests
from stepping import run_compiled

from tilewright.compiler.compile import compile_graph
from tilewright.compiler.compiled import Target
from tilewright.compiler.evaluate import evaluate_all
from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import Add, MatMul, Mul
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.presets import PRESETS

TINY = PRESETS["tiny"]
MACHINES = {
    "pynq": PRESETS["pynq"],
    "ultra96": PRESETS["ultra96"],
    "tiny": TINY,
    "wide-in": TINY.replace(name="wide-in", block_in=8, wgt_entries=48),
    "odd": TINY.replace(name="odd", block_in=8, block_out=12, port_bits=32, inp_entries=250),
}
Case = Callable[[GraphBuilder], str]

MULTIPLICATIONS: dict[str, Case] = {
    "one shape": lambda b: b.multiply(b.input(1, 6, 7, 19), b.input(1, 6, 7, 19)),
    "symmetric": lambda b: b.multiply(b.input(1, 6, 7, 9), b.input(1, 6, 7, 9), (0, 0)),
    "after relu": lambda b: b.multiply(b.input(1, 16, 17, 9), b.input(1, 16, 17, 9), (-128, -128)),
    "by itself": lambda b: (lambda x: b.multiply(x, x))(b.input(3, 6, 7, 19)),
    "per channel": lambda b: b.multiply(b.input(1, 6, 7, 69), b.input(1, 1, 1, 69), (-128, -128)),
    "per pixel": lambda b: b.multiply(b.input(1, 6, 7, 1), b.input(1, 6, 7, 40)),
    "a row by a column": lambda b: b.multiply(b.input(1, 1, 7, 9), b.input(1, 6, 1, 9)),
    "by a number": lambda b: b.multiply(b.input(1, 1, 1), b.input(1, 23, 9)),
    "vectors": lambda b: b.multiply(b.input(1, 50), b.input(1, 50)),
    "by a constant": lambda b: b.multiply(b.int8_constant(6, 7, 19), b.input(2, 6, 7, 19)),
    "by a constant per channel": lambda b: b.multiply(b.input(1, 6, 7, 39), b.int8_constant(39)),
    "by a constant number": lambda b: b.multiply(b.input(1, 6, 7, 39), b.int8_constant(1)),
}


def check(graph: Graph, inputs: dict[str, np.ndarray], config: AcceleratorConfig) -> None:
    """Demand the integer graph's values, nothing on the host, fused and not."""
    expected = evaluate_all(graph, inputs)
    for keep in (False, True):
        compiled = compile_graph(graph, config, keep_intermediates=keep)
        assert all(entry.target is Target.ACCELERATOR for entry in compiled.placement)
        values, _ = run_compiled(compiled, inputs)
        for name in graph.outputs:
            np.testing.assert_array_equal(values[name], expected[name], err_msg=name)


def check_nests(graph: Graph, inputs: dict[str, np.ndarray], config: AcceleratorConfig) -> None:
    """Demand the integer graph's values of the loop nests, as the interpreter runs them."""
    expected = evaluate_all(graph, inputs)
    values = run_nests(graph, inputs, config, keep=False)
    for name in graph.outputs:
        np.testing.assert_array_equal(values[name].reshape(expected[name].shape), expected[name])


@pytest.mark.parametrize("zeros", [(0, 0), (7, -128), (-128, -128)])
@pytest.mark.parametrize("machine", ["tiny", "odd"])
def test_the_nests_of_a_multiplication_compute_what_the_graph_says(
    machine: str, zeros: tuple[int, int]
) -> None:
    builder = GraphBuilder(seed=3)
    graph = builder.build(
        builder.multiply(builder.input(1, 4, 3, 9), builder.input(1, 4, 3, 9), zeros)
    )
    check_nests(graph, builder.values(graph), MACHINES[machine])


def test_images_of_a_batch_have_no_factors_of_their_own() -> None:
    builder = GraphBuilder(seed=3)
    graph = builder.build(builder.multiply(builder.input(2, 4, 3, 9), builder.input(2, 4, 3, 9)))
    (entry,) = compile_graph(graph, TINY.replace(name="batch", batch=2)).placement
    assert entry.target is Target.HOST
    assert entry.reason == "factors are the same for all 2 images of a batch"


def test_what_does_not_fit_runs_on_the_host() -> None:
    builder = GraphBuilder(seed=3)
    x = builder.input(1, 2, 2, 4)
    graph = builder.build(builder.upsample(x, (8, 9)), builder.requantize(x))
    placement = compile_graph(graph, TINY).placement
    assert [entry.target for entry in placement] == [Target.HOST, Target.ACCELERATOR]
    assert placement[0].reason == (
        "'Upsample2d0' does not fit configuration 'tiny':"
        " the smallest tile does not fit scratchpad out (72 of 64 entries)"
    )


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", MULTIPLICATIONS)
def test_multiplication_equals_the_integer_graph(case: str, machine: str) -> None:
    builder = GraphBuilder(seed=len(case) + 1000 * list(MACHINES).index(machine))
    graph = builder.build(MULTIPLICATIONS[case](builder))
    check(graph, builder.values(graph), MACHINES[machine])


MATRICES: dict[str, Case] = {
    "one": lambda b: b.matmul(b.input(1, 7, 20), b.input(1, 20, 9)),
    "symmetric": lambda b: b.matmul(b.input(1, 7, 20), b.input(1, 20, 9), (0, 0)),
    "after softmax": lambda b: b.matmul(b.input(1, 3, 9, 9), b.input(1, 3, 9, 12), (-128, 5)),
    "both unsigned": lambda b: b.matmul(b.input(1, 2, 5, 9), b.input(1, 2, 9, 5), (-128, -128)),
    "heads": lambda b: b.matmul(b.input(1, 3, 17, 32), b.input(1, 3, 32, 33)),
    "images": lambda b: b.matmul(b.input(2, 2, 5, 6), b.input(2, 2, 6, 4)),
    "vector": lambda b: b.matmul(b.input(1, 2, 1, 40), b.input(1, 2, 40, 1)),
    "long": lambda b: b.matmul(b.input(1, 50, 70), b.input(1, 70, 66)),
    "outer product": lambda b: b.matmul(b.input(1, 5, 1), b.input(1, 1, 21)),
    "one for all heads": lambda b: b.matmul(b.input(1, 1, 5, 6), b.input(1, 3, 6, 4)),
    "one for all images": lambda b: b.matmul(b.input(2, 3, 5, 6), b.input(1, 1, 6, 4)),
    "constant first": lambda b: b.matmul(b.int8_constant(4, 6), b.input(1, 6, 11)),
    "constant second": lambda b: b.matmul(b.input(1, 2, 4, 6), b.int8_constant(2, 6, 11)),
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", MATRICES)
def test_matrix_product_equals_the_integer_graph(case: str, machine: str) -> None:
    builder = GraphBuilder(seed=len(case) + 1000 * list(MACHINES).index(machine))
    graph = builder.build(MATRICES[case](builder))
    check(graph, builder.values(graph), MACHINES[machine])


@pytest.mark.parametrize("machine", ["tiny", "odd"])
def test_the_nests_of_a_matrix_product_compute_what_the_graph_says(machine: str) -> None:
    builder = GraphBuilder(seed=3)
    graph = builder.build(
        builder.matmul(builder.input(1, 2, 5, 9), builder.input(1, 2, 9, 6), (7, -128))
    )
    check_nests(graph, builder.values(graph), MACHINES[machine])


ZEROS = (-128, -1, 0, 3, 127)


def requantised(total: np.ndarray, op: MatMul | Mul | Add, bias: int = 0) -> np.ndarray:
    """The definition in real numbers, which float64 holds exactly here."""
    real = (total + bias).astype(np.float64) * op.multiplier / 2.0**op.shift
    return np.clip(np.round(real) + op.zero_point, op.low, op.high).astype(np.int8)


def run(builder: GraphBuilder, result: str, machine: str) -> tuple[np.ndarray, Graph, dict]:
    """Return a result of the accelerator, the graph and the inputs as int64."""
    graph = builder.build(result)
    inputs = builder.values(graph)
    compiled = compile_graph(graph, MACHINES[machine])
    assert [entry.target for entry in compiled.placement] == [Target.ACCELERATOR]
    values, _ = run_compiled(compiled, inputs)
    return values[result], graph, {name: array.astype(np.int64) for name, array in inputs.items()}


@st.composite
def broadcast_shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of two operands of which either may repeat rows, columns and channels."""
    rank = draw(st.sampled_from((2, 3, 4)))
    images = draw(st.integers(1, 2))
    whole = [draw(st.integers(1, 9)) for _ in range(rank - 2)] + [draw(st.integers(1, 21))]
    shapes = []
    for _ in range(2):
        repeated = [draw(st.integers(0, 3)) == 0 for _ in whole]
        shapes.append((images, *(1 if r else n for n, r in zip(whole, repeated, strict=True))))
    return shapes[0], shapes[1]


@settings(max_examples=12, deadline=None)
@given(shapes=broadcast_shapes(), zeros=st.tuples(*[st.sampled_from(ZEROS)] * 2))
def test_multiplication_of_any_shapes_is_that_of_numpy(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], zeros: tuple[int, int]
) -> None:
    builder = GraphBuilder(seed=sum(map(sum, shapes)))
    a, b = (builder.input(*shape) for shape in shapes)
    found, graph, values = run(builder, builder.multiply(a, b, zeros), "odd")
    op = graph.nodes[0].op
    assert isinstance(op, Mul)
    np.testing.assert_array_equal(
        found, requantised((values[a] - zeros[0]) * (values[b] - zeros[1]), op)
    )


@settings(max_examples=12, deadline=None)
@given(shapes=broadcast_shapes())
def test_addition_of_any_shapes_is_that_of_numpy(
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    builder = GraphBuilder(seed=sum(map(sum, shapes)))
    a, b = (builder.input(*shape) for shape in shapes)
    found, graph, values = run(builder, builder.add(a, b), "odd")
    op = graph.nodes[0].op
    assert isinstance(op, Add)
    total = values[a] * op.a_coefficient + values[b] * op.b_coefficient
    np.testing.assert_array_equal(found, requantised(total, op, op.bias))


@settings(max_examples=12, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 2)] * 2, *[st.integers(1, 27)] * 3),
    one_matrix=st.booleans(),
    zeros=st.tuples(*[st.sampled_from(ZEROS)] * 2),
)
def test_matrix_product_of_any_shape_is_that_of_numpy(
    sizes: tuple[int, ...], one_matrix: bool, zeros: tuple[int, int]
) -> None:
    images, heads, rows, inner, columns = sizes
    builder = GraphBuilder(seed=sum(sizes))
    a = builder.input(images, heads, rows, inner)
    b = builder.input(*((1, 1) if one_matrix else (images, heads)), inner, columns)
    found, graph, values = run(builder, builder.matmul(a, b, zeros), "odd")
    op = graph.nodes[0].op
    assert isinstance(op, MatMul)
    second = np.broadcast_to(values[b] - zeros[1], (images, heads, inner, columns))
    product = np.einsum("nhik,nhkj->nhij", values[a] - zeros[0], second)
    np.testing.assert_array_equal(found, requantised(product, op))
