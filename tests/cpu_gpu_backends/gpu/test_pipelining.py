"""Tiles fetched ahead: what the loop nest means stays, and copies need no waiting thread."""

from pathlib import Path

import numpy as np
import pytest
from cuda_tools import assemble, capability, require_nvrtc
from integer_graphs import GraphBuilder

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph
from tilewright.compiler.tensor import (
    LoopKind,
    ScalarType,
    Schedule,
    cast,
    compute,
    format_nest,
    interpret,
    lower,
    placeholder,
    reduce_axis,
    reduce_sum,
)
from tilewright.compiler.tensor.statements import LoopNest
from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu
from tilewright.cpu_gpu_backends.gpu.dialects import CUDA
from tilewright.cpu_gpu_backends.gpu.fusion import group_nodes
from tilewright.cpu_gpu_backends.gpu.kernels import Arrive, Fetch, walk
from tilewright.cpu_gpu_backends.gpu.layers import Layer, layer_of
from tilewright.cpu_gpu_backends.gpu.lowering import Choice, choices_of, lower_layer
from tilewright.cpu_gpu_backends.gpu.model import GpuModel
from tilewright.cpu_gpu_backends.gpu.nvrtc import Form, compile_cuda
from tilewright.cpu_gpu_backends.gpu.opencl_device import OpenClDevice
from tilewright.cpu_gpu_backends.gpu.pipelining import pipelined
from tilewright.cpu_gpu_backends.gpu.source import kernel_source
from tilewright.cpu_gpu_backends.gpu.tiles import MatrixTile

TILE = MatrixTile(block_m=16, block_n=16, block_k=16, thread_m=2, thread_n=2, fetches_ahead=True)


def product(depth: int, block: int) -> LoopNest:
    """Rows of a product whose operands come through shared memory, `block` terms at a time."""
    int8, int32 = ScalarType.INT8, ScalarType.INT32
    a, b = placeholder((4, depth), int8, "a"), placeholder((3, depth), int8, "b")
    k = reduce_axis(depth, "k")
    total = compute(
        (4, 3),
        lambda i, j: reduce_sum(cast(a[i, k.var], int32) * cast(b[j, k.var], int32), k),
        "total",
    )
    s = Schedule(compute((4, 3), lambda i, j: total[i, j] + 1, "out"))
    s.bind("out", "i", LoopKind.THREAD_X)
    s.compute_at("total", "out", "i")
    s.set_scope("total", "local")
    s.split("total", "k", block)
    s.reorder("total", "k.outer", "i", "j", "k.inner")
    for name in ("a", "b"):
        copy = s.cache_read(name, "shared")
        s.compute_at(copy, "total", "k.outer")
        s.double_buffer(copy)
    return lower(s)


@pytest.mark.parametrize(("depth", "block"), [(12, 4), (13, 5), (8, 4), (4, 4)])
def test_the_nest_means_the_same(depth: int, block: int) -> None:
    nest = product(depth, block)
    rng = np.random.default_rng(2)
    inputs = {
        name: rng.integers(-128, 128, (rows, depth), dtype=np.int8)
        for name, rows in (("a", 4), ("b", 3))
    }
    ahead = LoopNest(inputs=nest.inputs, outputs=nest.outputs, body=pipelined(nest.body))
    twice = "allocate b.shared: int8[2, " in format_nest(ahead)
    assert twice is (depth > block)
    expected = inputs["a"].astype(np.int32) @ inputs["b"].astype(np.int32).T + 1
    np.testing.assert_array_equal(interpret(ahead, inputs)["out"], expected)


def convolution() -> tuple[Graph, dict[str, np.ndarray]]:
    builder = GraphBuilder(seed=12)
    x = builder.input(1, 7, 7, 24)
    graph = builder.build(builder.conv(x, 40, kernel=(3, 3), pads=(1, 1, 1, 1)))
    return graph, builder.values(graph)


def test_two_buffers_on_a_device_without_such_copies(opencl: OpenClDevice) -> None:
    graph, inputs = convolution()

    def choose(_layer: Layer, _choices: tuple[Choice, ...]) -> Choice:
        return TILE

    program = compile_for_gpu(graph, opencl.capability, opencl.dialect, choose=choose)
    (kernel,) = program.kernels
    kinds = [type(part) for part in walk(kernel.body)]
    assert (kinds.count(Fetch), kinds.count(Arrive)) == (2, 1)
    for name, values in GpuModel.load(program, opencl).run(inputs).items():
        np.testing.assert_array_equal(values, evaluate(graph, inputs)[name])


@pytest.mark.parametrize("generation", [75, 80, 90])
def test_copies_need_no_waiting_thread_where_the_device_can(
    generation: int, tmp_path: Path
) -> None:
    require_nvrtc()
    graph, _ = convolution()
    (group,) = group_nodes(graph)
    layer, device = layer_of(graph, group), capability(generation)
    ahead = [tile for tile in choices_of(layer, device) if getattr(tile, "fetches_ahead", False)]
    assert bool(ahead) is (generation >= 80)
    lowered = lower_layer(layer, TILE, device, "tile")
    ptx = compile_cuda(kernel_source(lowered.kernels.kernels, CUDA), generation, Form.PTX)
    assert (b"cp.async.cg.shared.global" in ptx) is (generation >= 80)
    assert " 0 bytes spill stores" in assemble(ptx, generation, tmp_path)
