import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from cuda_tools import GENERATIONS, assemble, capability, require_nvrtc
from integer_graphs import GraphBuilder
from operator_cases import operator_cases

from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu
from tilewright.cpu_gpu_backends.gpu.device import DeviceError
from tilewright.cpu_gpu_backends.gpu.dialects import CUDA
from tilewright.cpu_gpu_backends.gpu.fusion import group_nodes
from tilewright.cpu_gpu_backends.gpu.kernels import Kernel
from tilewright.cpu_gpu_backends.gpu.layers import layer_of
from tilewright.cpu_gpu_backends.gpu.lowering import choices_of, lower_layer
from tilewright.cpu_gpu_backends.gpu.nvrtc import Form, compile_cuda
from tilewright.cpu_gpu_backends.gpu.source import kernel_source
from tilewright.cpu_gpu_backends.gpu.tiles import WarpTile


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


@pytest.mark.parametrize("generation", GENERATIONS)
def test_tiles_of_large_products_are_assembled_without_spills(
    generation: int, tmp_path: Path
) -> None:
    builder = GraphBuilder(seed=2)
    x = builder.input(8, 28, 28, 128)
    graph = builder.build(builder.conv(x, 256, kernel=(3, 3), pads=(1, 1, 1, 1)))
    (group,) = group_nodes(graph)
    layer, device = layer_of(graph, group), capability(generation)
    choices = choices_of(layer, device)
    assert any(isinstance(choice, WarpTile) for choice in choices) is (generation >= 75)
    largest = sorted(choices, key=lambda tile: tile.block_m * tile.block_n)[-6:]
    lowered = [
        lower_layer(layer, tile, device, f"tile{number}") for number, tile in enumerate(largest)
    ]
    kernels = tuple(kernel for one in lowered for kernel in one.kernels.kernels)
    ptx = compile_cuda(kernel_source(kernels, CUDA), generation, Form.PTX)
    report = assemble(ptx, generation, tmp_path)
    assert report.count("Compiling entry function") == len(kernels) == len(largest)
    assert set(re.findall(r"(\d+) bytes spill stores", report)) == {"0"}


def test_a_source_that_is_wrong_is_refused_in_one_line() -> None:
    with pytest.raises(DeviceError, match=r"NVRTC cannot compile a kernel for sm_80: .*error") as e:
        compile_cuda("void f() { return 1; }", 80, Form.CUBIN)
    assert "\n" not in str(e.value)
