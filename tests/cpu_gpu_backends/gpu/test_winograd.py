"""Convolutions of 3 x 3 filtered minimally, against onnxruntime."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from cuda_host import HostCudaDevice
from cuda_tools import GENERATIONS, assemble, capability, require_nvrtc
from onnx_networks import Network

from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import FloatConv2d
from tilewright.compiler.passes.pipeline import lower_to_integer
from tilewright.compiler.readers.onnx_reader import read_onnx
from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu, layers_of
from tilewright.cpu_gpu_backends.gpu.device import KernelDevice
from tilewright.cpu_gpu_backends.gpu.dialects import CUDA
from tilewright.cpu_gpu_backends.gpu.layers import Layer
from tilewright.cpu_gpu_backends.gpu.lowering import Choice, choices_of, lower_layer
from tilewright.cpu_gpu_backends.gpu.model import GpuModel
from tilewright.cpu_gpu_backends.gpu.nvrtc import Form, compile_cuda
from tilewright.cpu_gpu_backends.gpu.source import kernel_source
from tilewright.cpu_gpu_backends.gpu.winograd import WinogradTile, saves_time

#: Largest difference, relative to the largest output; large tiles lose two or three bits.
TOLERANCE = 2e-5
#: Image, output channels, padding, whether a residual and an activation follow.
CASES = {
    "large tiles": ((1, 16, 13, 22), 24, [1, 1, 1, 1], True),
    "small tiles, two images": ((2, 32, 7, 7), 16, [1, 1, 1, 1], True),
    "uneven padding": ((1, 16, 17, 9), 16, [0, 2, 1, 0], False),
}


def network(name: str) -> tuple[bytes, dict[str, np.ndarray]]:
    shape, outputs, pads, tail = CASES[name]
    rng = np.random.default_rng(6)
    net = Network()
    weights = rng.standard_normal((outputs, shape[1], 3, 3)).astype(np.float32)
    w, b = net.constant("w", weights), net.constant("b", weights[:, 0, 0, 0].copy())
    net.node("Conv", ["x", w, b], "c" if tail else "y", pads=pads)
    if tail:
        net.node("Relu", ["c"], "r")
        net.node("Add", ["r", "z"], "y")
    x = rng.standard_normal(shape).astype(np.float32)
    inputs: dict[str, Any] = {"x": x}
    if tail:
        inputs["z"] = rng.standard_normal((shape[0], outputs, *shape[2:])).astype(np.float32)
    model = net.model({one: values.shape for one, values in inputs.items()})
    return model.SerializeToString(), inputs


def graph_of(model: bytes) -> Graph:
    return lower_to_integer(read_onnx(model, "winograd"))


def check(name: str, device: KernelDevice, *, outputs: int | None = None) -> None:
    model, inputs = network(name)
    (expected,) = onnxruntime.InferenceSession(model).run(None, inputs)

    def choose(_layer: Layer, choices: tuple[Choice, ...]) -> Choice:
        tiles = [one for one in choices if isinstance(one, WinogradTile)]
        fitting = (one for one in tiles if outputs in (None, one.outputs))
        return next(fitting, choices[0])

    program = compile_for_gpu(graph_of(model), device.capability, device.dialect, choose=choose)
    names = [launch.kernel.name for launch in program.launches]
    assert sum("conv2d" in one for one in names) == 3
    (result,) = GpuModel.load(program, device).run(inputs).values()
    error = np.abs(result - expected).max()
    assert error <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("name", CASES)
def test_filtered_convolutions_are_close(gpu: KernelDevice, name: str) -> None:
    check(name, gpu)


@pytest.mark.parametrize("outputs", [2, 4])
def test_tiles_of_both_sizes_in_cuda(tmp_path: Path, outputs: int) -> None:
    check("large tiles", HostCudaDevice(tmp_path, 80), outputs=outputs)


def layer_for(shape: tuple[int, int, int, int], outputs: int, *, half: bool = False) -> Layer:
    net = Network()
    w = net.constant("w", np.zeros((outputs, shape[1], 3, 3), np.float32))
    net.node("Conv", ["x", w], "c", pads=[1, 1, 1, 1])
    net.node("Conv", ["c", net.constant("v", np.zeros((8, outputs, 1, 1), np.float32))], "y")
    graph = graph_of(net.model({"x": shape}).SerializeToString())
    found = layers_of(graph, half=half).values()
    return next(layer for layer in found if isinstance(layer.anchor.op, FloatConv2d))


def test_it_is_chosen_per_shape_and_can_be_switched_off() -> None:
    device = capability(80)
    large, small = layer_for((1, 64, 112, 112), 64), layer_for((1, 256, 8, 8), 256)
    assert saves_time(large)
    assert isinstance(choices_of(large, device)[0], WinogradTile)
    # Most of the time goes into reading weights, of which there are more transformed.
    assert not saves_time(small)
    assert not isinstance(choices_of(small, device)[0], WinogradTile)
    assert any(isinstance(one, WinogradTile) for one in choices_of(small, device))
    for layer, kept in ((large, False), (layer_for((1, 3, 32, 32), 64), True)):
        found = choices_of(layer, device, winograd=kept)
        assert not any(isinstance(one, WinogradTile) for one in found)
    assert not any(
        isinstance(one, WinogradTile)
        for one in choices_of(layer_for((1, 64, 32, 32), 64, half=True), device)
    )


@pytest.mark.parametrize("generation", GENERATIONS)
def test_its_kernels_are_assembled_without_spills(generation: int, tmp_path: Path) -> None:
    require_nvrtc()
    device, layer = capability(generation), layer_for((1, 64, 56, 56), 64)
    choices = choices_of(layer, device)
    tiles = [one for one in choices if isinstance(one, WinogradTile)]
    chosen = [next(one for one in tiles if one.outputs == outputs) for outputs in (2, 4)]
    kernels = tuple(
        replace(kernel, name=f"tile{number}_{kernel.name}")
        for number, tile in enumerate(chosen)
        for kernel in lower_layer(layer, tile, device, "k").kernels.kernels
    )
    ptx = compile_cuda(kernel_source(kernels, CUDA), generation, Form.PTX)
    report = assemble(ptx, generation, tmp_path)
    assert report.count(" 0 bytes spill stores") == len(kernels) == 6
