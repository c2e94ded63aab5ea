"""Attention in one kernel, against onnxruntime: on an OpenCL device and as CUDA C."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from cuda_host import HostCudaDevice
from cuda_tools import GENERATIONS, assemble, require_nvrtc
from onnx_networks import Network

from tilewright.compiler.graph import Graph
from tilewright.compiler.passes.pipeline import lower_to_integer
from tilewright.compiler.readers.onnx_reader import read_onnx
from tilewright.cpu_gpu_backends.gpu.attention_schedule import AttentionTile
from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu, layers_of
from tilewright.cpu_gpu_backends.gpu.device import KernelDevice
from tilewright.cpu_gpu_backends.gpu.dialects import CUDA
from tilewright.cpu_gpu_backends.gpu.layers import Layer
from tilewright.cpu_gpu_backends.gpu.lowering import Choice, choices_of, lower_layer
from tilewright.cpu_gpu_backends.gpu.model import GpuModel
from tilewright.cpu_gpu_backends.gpu.nvrtc import Form, compile_cuda
from tilewright.cpu_gpu_backends.gpu.source import kernel_source


@dataclass(frozen=True, kw_only=True)
class Case:
    """The shapes of one attention, and what is special about it."""

    query: tuple[int, ...]
    key: tuple[int, ...]
    value: tuple[int, ...]
    mask: tuple[int, ...] = ()
    #: Of the mask: keys that nobody may look at.
    hidden: int = 0
    #: Whether an element-wise node follows.
    tail: bool = False


CASES = {
    "heads of BERT": Case(
        query=(2, 2, 64, 64), key=(2, 2, 64, 64), value=(2, 2, 64, 64), mask=(2, 1, 1, 64), hidden=9
    ),
    "uneven": Case(query=(1, 3, 37, 24), key=(1, 3, 24, 45), value=(1, 3, 45, 24)),
    "first blocks hidden": Case(
        query=(1, 2, 20, 8), key=(1, 2, 8, 130), value=(1, 2, 130, 8), mask=(20, 130), hidden=90
    ),
    "one matrix": Case(query=(33, 16), key=(16, 70), value=(70, 20), tail=True),
    "keys of one head for all": Case(query=(2, 4, 9, 12), key=(2, 1, 12, 40), value=(2, 1, 40, 5)),
    "one query": Case(query=(1, 1, 1, 32), key=(1, 1, 32, 100), value=(1, 1, 100, 32), tail=True),
    "long heads": Case(query=(1, 1, 40, 128), key=(1, 1, 128, 40), value=(1, 1, 40, 128)),
}


def network(case: Case) -> tuple[bytes, dict[str, np.ndarray]]:
    rng = np.random.default_rng(8)
    shapes = {"q": case.query, "k": case.key, "v": case.value}
    inputs = {
        name: rng.standard_normal(shape).astype(np.float32) * 2 for name, shape in shapes.items()
    }
    net = Network(opset=17)
    scores = net.node("MatMul", ["q", "k"], "product")
    root = net.constant("root", np.float32(case.query[-1] ** 0.5))
    scores = net.node("Div", [scores, root], "scaled")
    if case.mask:
        inputs["mask"] = np.zeros(case.mask, np.float32)
        inputs["mask"][..., : case.hidden] = -np.inf
        scores = net.node("Add", [scores, "mask"], "masked")
    shares = net.node("Softmax", [scores], "shares", axis=-1)
    result = net.node("MatMul", [shares, "v"], "mixed" if case.tail else "y")
    if case.tail:
        net.node("Relu", [result], "y")
    model = net.model({name: array.shape for name, array in inputs.items()})
    return model.SerializeToString(), inputs


def graph_of(model: bytes) -> Graph:
    return lower_to_integer(read_onnx(model, "attention"))


def check(case: Case, device: KernelDevice, *, half: bool = False, number: int = 0) -> None:
    """One launch that yields what onnxruntime does; choice `number` of the search space."""
    model, inputs = network(case)
    (expected,) = onnxruntime.InferenceSession(model).run(None, inputs)

    def choose(_layer: Layer, choices: tuple[Choice, ...]) -> Choice:
        return choices[min(number, len(choices) - 1)]

    program = compile_for_gpu(
        graph_of(model), device.capability, device.dialect, half=half, choose=choose
    )
    assert len(program.launches) == 1
    results = GpuModel.load(program, device).run(inputs)
    np.testing.assert_allclose(results["y"], expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_attention_is_one_kernel(gpu: KernelDevice, name: str) -> None:
    check(CASES[name], gpu)


@pytest.mark.parametrize("number", range(1, 7))
def test_every_tile_of_queries_and_keys(gpu: KernelDevice, number: int) -> None:
    check(CASES["uneven"], gpu, number=number)


@pytest.mark.parametrize("name", ["uneven", "first blocks hidden"])
def test_attention_in_cuda(tmp_path: Path, name: str) -> None:
    check(CASES[name], HostCudaDevice(tmp_path))


def test_without_fusion_scores_lie_in_memory(gpu: KernelDevice) -> None:
    model, inputs = network(CASES["uneven"])
    (expected,) = onnxruntime.InferenceSession(model).run(None, inputs)
    program = compile_for_gpu(graph_of(model), gpu.capability, gpu.dialect, fuse=False)
    assert len(program.launches) == 4
    results = GpuModel.load(program, gpu).run(inputs)
    np.testing.assert_allclose(results["y"], expected, rtol=2e-5, atol=2e-5)


def test_what_others_read_is_not_hidden_in_a_kernel(gpu: KernelDevice) -> None:
    model, _ = network(CASES["uneven"])
    graph = graph_of(model)
    (softmax,) = (node for node in graph.nodes if "Softmax" in type(node.op).__name__)
    shown = replace(graph, outputs=(*graph.outputs, *softmax.outputs))
    program = compile_for_gpu(shown, gpu.capability, gpu.dialect)
    assert len(program.launches) == 3


def test_heads_too_long_for_a_block_stay_apart(gpu: KernelDevice) -> None:
    case = Case(query=(8, 136), key=(136, 8), value=(8, 136))
    program = compile_for_gpu(graph_of(network(case)[0]), gpu.capability, gpu.dialect)
    assert len(program.launches) == 3


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("half", [False, True])
def test_kernels_of_attention_are_assembled_without_spills(
    generation: int, half: bool, tmp_path: Path
) -> None:
    require_nvrtc()
    device = HostCudaDevice(tmp_path, generation).capability
    case = Case(query=(1, 4, 128, 64), key=(1, 4, 64, 128), value=(1, 4, 128, 64))
    (layer,) = layers_of(graph_of(network(case)[0]), half=half).values()
    choices = choices_of(layer, device)
    assert all(isinstance(choice, AttentionTile) for choice in choices)
    kernels = tuple(
        kernel
        for number, choice in enumerate(choices)
        for kernel in lower_layer(layer, choice, device, f"tile{number}").kernels.kernels
    )
    ptx = compile_cuda(kernel_source(kernels, CUDA), generation, Form.PTX)
    report = assemble(ptx, generation, tmp_path)
    assert report.count(" 0 bytes spill stores") == len(kernels) == len(choices) > 3
