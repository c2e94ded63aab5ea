"""Graphs as machine code: the same bits as the integer graph."""

from pathlib import Path

import numpy as np
import pytest
from integer_graphs import GraphBuilder
from random_networks import random_graph

import tilewright as tw
from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph
from tilewright.cpu_gpu_backends.codegen.target import X86_64_V3, CpuTarget, host_target
from tilewright.cpu_gpu_backends.cpu.lower import lower_graph
from tilewright.cpu_gpu_backends.cpu.native import load_program
from tilewright.isa.errors import InputError
from tilewright.runtime.inputs import random_inputs

#: Networks of the shared models that have an integer form.
MODELS = (
    "ad01_autoencoder_int8.tflite",
    "kws_dscnn_int8.tflite",
    "mnist_cnn_qdq_u8s8.onnx",
    "mobilenet_v1_0.25_128_uint8.tflite",
    "resnet20_cifar10_qop_u8u8_pt.onnx",
    "resnet8_cifar10_int8.tflite",
    "vww_96_int8.tflite",
)


def check(
    graph: Graph, *, target: CpuTarget | None = None, check_bounds: bool = False, threads: int = 1
) -> None:
    """Compile `graph`, run it on random inputs and compare every bit with numpy's evaluation."""
    target = target or host_target()
    program = load_program(lower_graph(graph, target), target, check_bounds=check_bounds)
    for seed in range(2):
        inputs = random_inputs(graph, seed)
        expected = evaluate(graph, inputs)
        results = program.run([inputs[name] for name in graph.inputs], threads)
        for name, values in zip(graph.outputs, results, strict=True):
            np.testing.assert_array_equal(
                values.reshape(expected[name].shape), expected[name], f"output {name} of\n{graph}"
            )


@pytest.mark.parametrize("name", MODELS)
def test_shared_models_yield_the_bits_of_the_integer_graph(name: str, shared_models: Path) -> None:
    check(tw.load(shared_models / "models" / name).graph, threads=2)


@pytest.mark.parametrize("seed", [*range(6), 174])
def test_random_graphs_yield_the_bits_of_the_integer_graph(seed: int) -> None:
    check(random_graph(seed))


@pytest.mark.parametrize("seed", range(12, 15))
def test_no_access_is_out_of_bounds(seed: int) -> None:
    check(random_graph(seed), check_bounds=True)


@pytest.mark.parametrize("seed", range(18, 20))
def test_without_the_dot_product_instruction_the_bits_are_the_same(seed: int) -> None:
    if "x86_64" not in host_target().triple:
        pytest.skip("the target is an x86")
    check(random_graph(seed), target=X86_64_V3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_random_graphs(seed: int) -> None:
    check(random_graph(seed), check_bounds=bool(seed % 2), threads=1 + seed % 3)


def test_threads_share_the_work() -> None:
    build = GraphBuilder(5)
    x = build.input(1, 40, 40, 16)
    y = build.conv(build.conv(x, 32, kernel=(3, 3), pads=(1, 1, 1, 1)), 48)
    graph = build.build(y)
    for threads in (1, 2, 3, 1):
        check(graph, threads=threads)


def test_the_number_of_threads_is_checked() -> None:
    graph = random_graph(0)
    program = load_program(lower_graph(graph, host_target()), host_target())
    inputs = random_inputs(graph, 0)
    with pytest.raises(InputError, match=r"^threads must be between 1 and 64, not 0$"):
        program.run([inputs[name] for name in graph.inputs], 0)
