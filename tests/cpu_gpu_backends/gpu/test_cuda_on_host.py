"""CUDA C run on the processor: the other dialect, and tensor cores lane by lane."""

from pathlib import Path

import numpy as np
import pytest
from cuda_host import HostCudaDevice
from integer_graphs import GraphBuilder
from operator_cases import OperatorCase, operator_cases

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import MatMul
from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu
from tilewright.cpu_gpu_backends.gpu.fusion import group_nodes
from tilewright.cpu_gpu_backends.gpu.layers import layer_of
from tilewright.cpu_gpu_backends.gpu.lowering import Choice, choices_of
from tilewright.cpu_gpu_backends.gpu.model import GpuModel
from tilewright.cpu_gpu_backends.gpu.tiles import MatrixTile, WarpTile

CASES = operator_cases()


def run(
    graph: Graph,
    inputs: dict[str, np.ndarray],
    device: HostCudaDevice,
    choice: Choice | None = None,
) -> dict[str, np.ndarray]:
    def choose(_layer: object, choices: tuple[Choice, ...]) -> Choice:
        return choices[0] if choice is None else choice

    program = compile_for_gpu(graph, device.capability, device.dialect, choose=choose)
    return GpuModel.load(program, device).run(inputs)


def product_graph() -> tuple[Graph, dict[str, np.ndarray]]:
    """A convolution whose rows and columns are no multiples of any tile."""
    builder = GraphBuilder(seed=11)
    x = builder.input(2, 9, 9, 24)
    graph = builder.build(builder.conv(x, 72, kernel=(3, 3), pads=(1, 1, 1, 1)))
    return graph, builder.values(graph)


def tiles_of(kind: type, quick: int) -> list[object]:
    """All tiles of a kind for that product; those after the first few are marked slow."""
    graph, _ = product_graph()
    (group,) = group_nodes(graph)
    device = HostCudaDevice(Path(), generation=80)
    found = choices_of(layer_of(graph, group), device.capability)
    tiles = [choice for choice in found if isinstance(choice, kind)]
    return [
        pytest.param(tile, marks=[pytest.mark.slow] if number >= quick else [], id=str(tile))
        for number, tile in enumerate(tiles)
    ]


@pytest.mark.parametrize("generation", [75, 80])
@pytest.mark.parametrize("tile", tiles_of(WarpTile, quick=2))
def test_every_tile_of_tensor_cores_is_exact(
    tmp_path: Path, tile: WarpTile, generation: int
) -> None:
    graph, inputs = product_graph()
    results = run(graph, inputs, HostCudaDevice(tmp_path, generation), tile)
    for name, values in evaluate(graph, inputs).items():
        np.testing.assert_array_equal(results[name], values)


@pytest.mark.parametrize("tile", tiles_of(MatrixTile, quick=2))
def test_every_tile_of_threads_is_exact(tmp_path: Path, tile: MatrixTile) -> None:
    graph, inputs = product_graph()
    results = run(graph, inputs, HostCudaDevice(tmp_path), tile)
    for name, values in evaluate(graph, inputs).items():
        np.testing.assert_array_equal(results[name], values)


@pytest.mark.parametrize("zero_points", [(0, 0), (-128, 0), (0, 7), (-3, 127)])
@pytest.mark.parametrize("generation", [0, 75, 80])
def test_a_stack_of_products(tmp_path: Path, zero_points: tuple[int, int], generation: int) -> None:
    """Whatever the zero points, bytes are multiplied: by dp4a or on tensor cores."""
    op = MatMul(a_zero_point=zero_points[0], b_zero_point=zero_points[1], multiplier=1 << 23,
                shift=35, zero_point=3, low=-128, high=127)  # fmt: skip
    rng = np.random.default_rng(4)
    operands = tuple(
        rng.integers(-128, 128, shape).astype(np.int8) for shape in ((3, 1, 40, 70), (1, 2, 70, 33))
    )
    case = OperatorCase(op=op, operands=operands)
    device = HostCudaDevice(tmp_path, generation)
    source = compile_for_gpu(case.graph, device.capability, device.dialect).source
    instruction = "tw_matrix_multiply(&" if generation else "= tw_dot4("
    assert source.count(instruction) > 0
    (result,) = run(case.graph, case.inputs, device).values()
    (expected,) = evaluate(case.graph, case.inputs).values()
    np.testing.assert_array_equal(result, expected)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_an_operator_in_cuda_equals_the_graph(tmp_path: Path, case: OperatorCase) -> None:
    (result,) = run(case.graph, case.inputs, HostCudaDevice(tmp_path, 80)).values()
    (expected,) = evaluate(case.graph, case.inputs).values()
    if case.tolerance:
        np.testing.assert_allclose(result, expected, case.tolerance, case.tolerance)
    else:
        np.testing.assert_array_equal(result, expected)
