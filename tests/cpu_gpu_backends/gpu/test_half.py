"""Float networks whose tensors lie in memory as float16."""

from pathlib import Path

import numpy as np
import pytest
from cuda_host import HostCudaDevice
from cuda_tools import assemble, require_nvrtc

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph, Node, Tensor
from tilewright.compiler.operators import (
    BinaryFunction,
    DataType,
    FloatBinary,
    FloatClip,
    FloatConv2d,
    FloatDense,
    FloatMatMul,
    FloatReduce,
    FloatSoftmax,
    Operator,
    Reduction,
    Reshape,
)
from tilewright.compiler.operators.inference import infer
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu
from tilewright.cpu_gpu_backends.gpu.device import KernelDevice
from tilewright.cpu_gpu_backends.gpu.model import GpuModel
from tilewright.cpu_gpu_backends.gpu.nvrtc import Form, compile_cuda


def float_network() -> tuple[Graph, dict[str, np.ndarray]]:
    """Convolutions with tails, a sum, a product of activations and a classifier."""
    rng = np.random.default_rng(9)
    tensors: dict[str, Tensor] = {}
    nodes: list[Node] = []
    constants: dict[str, np.ndarray] = {}

    def tensor(name: str, shape: tuple[int, ...]) -> str:
        tensors[name] = Tensor(name=name, shape=shape, dtype=DataType.FLOAT32)
        return name

    def weights(*shape: int) -> str:
        name = tensor(f"w{len(constants)}", shape)
        scale = np.sqrt(2 / max(1, np.prod(shape[1:])))
        constants[name] = (rng.standard_normal(shape) * scale).astype(np.float32)
        return name

    def node(op: Operator, *inputs: str) -> str:
        shape = infer(op, tuple(tensors[name].type for name in inputs)).shape
        output = tensor(f"t{len(nodes)}", shape)
        nodes.append(Node(name=f"n{len(nodes)}", op=op, inputs=inputs, outputs=(output,)))
        return output

    relu = FloatClip(low=0, high=float("inf"))
    x = tensor("x", (1, 8, 8, 3))
    y = node(relu, node(FloatConv2d(pads=(1, 1, 1, 1)), x, weights(32, 3, 3, 3), weights(32)))
    z = node(FloatConv2d(pads=(1, 1, 1, 1), groups=32), y, weights(32, 3, 3, 1), weights(32))
    z = node(FloatConv2d(), z, weights(32, 1, 1, 32), weights(32))
    z = node(relu, node(FloatBinary(function=BinaryFunction.ADD), z, y))
    rows = node(Reshape(shape=(64, 32)), z)
    mixed = node(FloatMatMul(), node(FloatDense(), rows, weights(64, 32)), rows)
    mean = node(FloatReduce(function=Reduction.MEAN, axes=(0,)), mixed)
    out = node(FloatSoftmax(), node(FloatDense(), mean, weights(10, 32), weights(10)))
    graph = Graph(
        name="float",
        tensors=tensors,
        nodes=tuple(nodes),
        inputs=("x",),
        outputs=(z, out),
        constants=constants,
    )
    return graph, {"x": rng.standard_normal((1, 8, 8, 3)).astype(np.float32)}


def check_near(device: KernelDevice) -> None:
    graph, inputs = float_network()
    program = compile_for_gpu(graph, device.capability, device.dialect, half=True)
    kinds = {name: one.dtype for name, one in program.tensors.items()}
    assert kinds["x"] is kinds[graph.outputs[1]] is ScalarType.FLOAT32
    assert list(kinds.values()).count(ScalarType.FLOAT16) > len(kinds) // 2
    results = GpuModel.load(program, device).run(inputs)
    for name, values in evaluate(graph, inputs).items():
        assert results[name].dtype == np.float32
        # A float16 has 11 bits; some roundings lie one behind the other.
        np.testing.assert_allclose(results[name], values, rtol=0.02, atol=0.01)


def test_a_network_in_float16(gpu: KernelDevice) -> None:
    check_near(gpu)


@pytest.mark.parametrize("generation", [0, 75, 80])
def test_a_network_in_float16_in_cuda(tmp_path: Path, generation: int) -> None:
    check_near(HostCudaDevice(tmp_path, generation))


@pytest.mark.parametrize(
    ("generation", "instruction"),
    [(75, b"mma.sync.aligned.m16n8k8.row.col"), (80, b"mma.sync.aligned.m16n8k16.row.col")],
)
def test_tensor_cores_multiply_float16(tmp_path: Path, generation: int, instruction: bytes) -> None:
    require_nvrtc()
    graph, _ = float_network()
    device = HostCudaDevice(tmp_path, generation)
    source = compile_for_gpu(graph, device.capability, device.dialect, half=True).source
    ptx = compile_cuda(source, generation, Form.PTX)
    assert instruction + b".f32.f16.f16.f32" in ptx
    assert " 0 bytes spill stores" in assemble(ptx, generation, tmp_path)
