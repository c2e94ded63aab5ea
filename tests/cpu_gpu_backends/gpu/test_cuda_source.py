import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cuda_tools import GENERATIONS, assemble, capability, require_nvrtc
from integer_graphs import GraphBuilder
from operator_cases import operator_cases
from published_models import OPEN_SHAPES

from tilewright.compiler.graph import Graph, Node, Tensor
from tilewright.compiler.operators import DataType, FloatConv2d, FloatDense, FloatMatMul, MatMul
from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu, layers_of
from tilewright.cpu_gpu_backends.gpu.device import DeviceError
from tilewright.cpu_gpu_backends.gpu.dialects import CUDA
from tilewright.cpu_gpu_backends.gpu.kernels import Kernel
from tilewright.cpu_gpu_backends.gpu.lowering import choices_of, lower_layer
from tilewright.cpu_gpu_backends.gpu.nvrtc import Form, compile_cuda
from tilewright.cpu_gpu_backends.gpu.source import kernel_source
from tilewright.cpu_gpu_backends.gpu.tiles import WarpTile
from tilewright.runtime.model import load


@pytest.fixture(autouse=True)
def nvrtc() -> None:
    require_nvrtc()


@cache
def operator_kernels(generation: int) -> tuple[Kernel, ...]:
    """The kernels of every operator, under names of their own."""
    kernels = []
    for number, case in enumerate(operator_cases()):
        program = compile_for_gpu(case.graph, capability(generation), CUDA)
        kernels += [replace(one, name=f"case{number}_{one.name}") for one in program.kernels]
    return tuple(kernels)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_kernels_of_every_operator_are_assembled_without_spills(
    generation: int, tmp_path: Path
) -> None:
    kernels = operator_kernels(generation)
    ptx = compile_cuda(kernel_source(kernels, CUDA), generation, Form.PTX)
    report = assemble(ptx, generation, tmp_path)
    assert report.count("Compiling entry function") == len(kernels)
    assert set(re.findall(r"(\d+) bytes spill stores", report)) == {"0"}


def large_product(kind: str) -> Graph:
    """A convolution of bytes, or a product of 1024 x 1024 of real numbers or of bytes."""
    if kind == "convolution":
        builder = GraphBuilder(seed=2)
        x = builder.input(8, 28, 28, 128)
        return builder.build(builder.conv(x, 256, kernel=(3, 3), pads=(1, 1, 1, 1)))
    dtype = DataType.INT8 if kind == "int8" else DataType.FLOAT32
    op: MatMul | FloatMatMul = FloatMatMul()
    if kind == "int8":
        op = MatMul(a_zero_point=5, b_zero_point=0, multiplier=1 << 23, shift=40, zero_point=0,
                    low=-128, high=127)  # fmt: skip
    tensors = {name: Tensor(name=name, shape=(1024, 1024), dtype=dtype) for name in "abc"}
    node = Node(name="n", op=op, inputs=("a", "b"), outputs=("c",))
    # Constants may lie in memory as float16, a network's inputs do not.
    constants = {name: np.zeros((1024, 1024), np.float32) for name in "ab"}
    return Graph(
        name=kind,
        tensors=tensors,
        nodes=(node,),
        inputs=("a", "b") if kind == "int8" else (),
        outputs=("c",),
        constants={} if kind == "int8" else constants,
    )


@pytest.mark.parametrize("kind", ["convolution", "int8", "fp32", "fp16"])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_tiles_of_large_products_are_assembled_without_spills(
    generation: int, kind: str, tmp_path: Path
) -> None:
    """The tiles that reuse the most registers, among them what tuning finds for large products."""
    device = capability(generation)
    (layer,) = layers_of(large_product(kind), half=kind == "fp16").values()
    choices = choices_of(layer, device)
    on_tensor_cores = any(isinstance(choice, WarpTile) for choice in choices)
    assert on_tensor_cores is (generation >= 75 and kind != "fp32")
    largest = sorted(choices, key=lambda tile: tile.block_m * tile.block_n)[-6:]
    lowered = [
        lower_layer(layer, tile, device, f"tile{number}") for number, tile in enumerate(largest)
    ]
    kernels = tuple(kernel for one in lowered for kernel in one.kernels.kernels)
    ptx = compile_cuda(kernel_source(kernels, CUDA), generation, Form.PTX)
    report = assemble(ptx, generation, tmp_path)
    assert report.count("Compiling entry function") == len(kernels) >= len(largest)
    assert set(re.findall(r"(\d+) bytes spill stores", report)) == {"0"}


@pytest.mark.slow
@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_kernels_of_every_published_network_are_assembled(
    generation: int, tmp_path: Path, shared_models: Path
) -> None:
    """Without spills; in float16, too, where a network is one of real numbers."""
    files = (shared_models / "models").iterdir()
    paths = sorted(file for file in files if file.suffix in (".onnx", ".tflite"))
    assert len(paths) > 10
    for path in paths:
        graph = load(path, shapes=OPEN_SHAPES.get(path.name)).graph
        real = any(isinstance(node.op, FloatConv2d | FloatDense) for node in graph.nodes)
        for half in (False, True)[: 1 + real]:
            program = compile_for_gpu(graph, capability(generation), CUDA, half=half)
            ptx = compile_cuda(program.source, generation, Form.PTX)
            report = assemble(ptx, generation, tmp_path)
            assert report.count("Compiling entry function") == len(program.kernels), path.name
            assert set(re.findall(r"(\d+) bytes spill stores", report)) == {"0"}, path.name


def test_a_source_that_is_wrong_is_refused_in_one_line() -> None:
    with pytest.raises(DeviceError, match=r"NVRTC cannot compile a kernel for sm_80: .*error") as e:
        compile_cuda("void f() { return 1; }", 80, Form.CUBIN)
    assert "\n" not in str(e.value)
