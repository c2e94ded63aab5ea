"""Products of int8 activations, tables of bytes and images in planes: the integer graph's bits."""

import numpy as np
import pytest
from integer_graphs import GraphBuilder

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import Lookup, MatMul, Transpose
from tilewright.cpu_gpu_backends.codegen.target import X86_64_V3, CpuTarget, host_target
from tilewright.cpu_gpu_backends.cpu.lower import lower_graph
from tilewright.cpu_gpu_backends.cpu.native import load_program
from tilewright.runtime.inputs import random_inputs

TARGETS = (host_target(), X86_64_V3) if "x86_64" in host_target().triple else (host_target(),)


def check(graph: Graph, target: CpuTarget) -> None:
    inputs = random_inputs(graph, 0)
    expected = evaluate(graph, inputs)
    program = lower_graph(graph, target)
    for check_bounds, threads in ((True, 1), (False, 2)):
        native = load_program(program, target, check_bounds=check_bounds)
        results = native.run([inputs[name] for name in graph.inputs], threads)
        for name, result in zip(graph.outputs, results, strict=True):
            np.testing.assert_array_equal(result.reshape(expected[name].shape), expected[name])


def product(zero_points: tuple[int, int], *, rows: int, depth: int, columns: int) -> Graph:
    """Return a product for each of two heads of two images, and a table behind it."""
    build = GraphBuilder(rows)
    a = build.input(2, 2, rows, depth)
    b = build.input(2, 2, depth, columns)
    multiplier, shift = build.scale(6000 * depth**0.5, 1)
    op = MatMul(
        a_zero_point=zero_points[0],
        b_zero_point=zero_points[1],
        multiplier=int(multiplier[0]),
        shift=int(shift[0]),
        zero_point=-7,
        low=-128,
        high=127,
    )
    table = build.constant(build.rng.integers(-128, 128, 256).astype(np.int8))
    return build.build(build.node(Lookup(), build.node(op, a, b), table))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize(
    ("zero_points", "rows", "depth", "columns"),
    [
        ((5, -9), 7, 10, 33),  # neither whole fours nor whole panels
        ((0, 0), 1, 3, 5),
        ((-128, 127), 40, 64, 48),
        ((127, -128), 16, 300, 16),
    ],
)
def test_products_of_activations(
    target: CpuTarget, zero_points: tuple[int, int], rows: int, depth: int, columns: int
) -> None:
    check(product(zero_points, rows=rows, depth=depth, columns=columns), target)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("count", [1, 31, 64, 200, 4096 * 3])
def test_tables_of_bytes(target: CpuTarget, count: int) -> None:
    build = GraphBuilder(count)
    x = build.input(1, count)
    table = build.constant(build.rng.permutation(256).astype(np.uint8).view(np.int8))
    check(build.build(build.node(Lookup(), x, table)), target)


def planes(kernel: int, stride: int, dilation: int, channels: int, *, readers: int) -> Graph:
    """Return convolutions of an image that comes in planes."""
    build = GraphBuilder(kernel)
    x = build.input(2, channels, 19, 23)
    y = build.node(Transpose(permutation=(0, 2, 3, 1)), x)
    results = [
        build.conv(
            y,
            outputs,
            kernel=(kernel, kernel),
            stride=(stride, stride),
            pads=(2, 1, 0, 3),
            dilation=(dilation, dilation),
        )
        for outputs in (20, 7)[:readers]
    ]
    return build.build(*results)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "channels"),
    [(3, 2, 1, 3), (7, 2, 1, 3), (3, 1, 2, 4), (5, 1, 1, 1)],
)
def test_images_in_planes(
    target: CpuTarget, kernel: int, stride: int, dilation: int, channels: int
) -> None:
    check(planes(kernel, stride, dilation, channels, readers=1), target)


def test_no_transposition_is_left_where_an_image_stays_in_planes() -> None:
    def copies(readers: int) -> int:
        graph = planes(3, 2, 1, 3, readers=readers)
        (transposed,) = (n.outputs[0] for n in graph.nodes if isinstance(n.op, Transpose))
        program = lower_graph(graph, host_target())
        return sum(transposed in step.writes for step in program.steps)

    assert copies(1) == 0
    assert copies(2) > 0
