"""Matrix products and networks on a GPU, beside its peers, in one interleaved run.

    python benchmarks/gpu.py [--device cuda] [--tune 16] [--only gemm ResNet-18 ...] [--batch 1 64]

Contenders take turns in short bursts; a burst begins with calls that do not count. Each row gives
the least time of a contender in milliseconds, and the ratio of the best peer's to ours: above 1 is
faster than the peer. Inputs and outputs stay on the device. Peers that are not installed, or do not
see the device, are left out and said so; so is energy that the platform does not count. Each
network is measured with element-wise nodes fused and by themselves.

Where there is no GPU the script says so and measures nothing. ``--device opencl`` takes what OpenCL
offers, which may be the processor (PoCL): good to try the script, no measurement of a GPU.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import cpu_networks
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.compiler.graph import Graph, Node, Tensor
from tilewright.compiler.operators import DataType, FloatMatMul, MatMul
from tilewright.cpu_gpu_backends.energy import Meter, cuda_meter, processor_meter
from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu
from tilewright.cpu_gpu_backends.gpu.device import DeviceError, KernelDevice
from tilewright.cpu_gpu_backends.gpu.model import GpuModel
from tilewright.cpu_gpu_backends.gpu.tuning import tune_graph, tuned_chooser
from tilewright.runtime.devices import Device
from tilewright.runtime.gpu_graphs import open_gpu

SIZES = (1024, 2048, 4096, 8192)
TYPES = ("fp32", "fp16", "int8")
ROUNDS, WARM_UP, BURST_SECONDS = 7, 2, 0.1
LAYERS, WIDTH, HEADS, TOKENS = 12, 768, 12, 128


@dataclass(frozen=True, kw_only=True)
class Contender:
    """Something that does the work once, without waiting, and what waits for it."""

    name: str
    call: Callable[[], object]
    wait: Callable[[], object]


def measure(contenders: list[Contender], meter: Meter | None) -> dict[str, tuple[float, float]]:
    """Return, per contender, the least seconds of a call and the joules of one, NaN if unknown."""
    best = {one.name: (float("inf"), float("nan")) for one in contenders}
    for _ in range(ROUNDS):
        for one in contenders:
            for _ in range(WARM_UP):
                one.call()
            one.wait()
            calls, energy, start = 0, meter() if meter else 0.0, time.perf_counter()
            while time.perf_counter() - start < BURST_SECONDS:
                one.call()
                one.wait()
                calls += 1
            seconds = (time.perf_counter() - start) / calls
            joules = (meter() - energy) / calls if meter else float("nan")
            if seconds < best[one.name][0]:
                best[one.name] = (seconds, joules)
    return best


def gemm_graph(size: int, kind: str) -> Graph:
    """Return the product of two square matrices, both computed while the network runs."""
    dtype = DataType.INT8 if kind == "int8" else DataType.FLOAT32
    product: MatMul | FloatMatMul = FloatMatMul()
    if kind == "int8":
        product = MatMul(a_zero_point=0, b_zero_point=0, multiplier=1 << 23, shift=40,
                         zero_point=0, low=-128, high=127)  # fmt: skip
    tensors = {name: Tensor(name=name, shape=(size, size), dtype=dtype) for name in "abc"}
    node = Node(name="product", op=product, inputs=("a", "b"), outputs=("c",))
    return Graph(
        name=f"gemm-{size}", tensors=tensors, nodes=(node,), inputs=("a", "b"), outputs=("c",),
        constants={},
    )  # fmt: skip


def encoder() -> onnx.ModelProto:
    """Return a transformer encoder (Vaswani et al. 2017, normalisation first), 12 layers."""
    rng = np.random.default_rng(12)
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def constant(values: np.ndarray) -> str:
        name = f"c{len(constants)}"
        constants.append(numpy_helper.from_array(values, name))
        return name

    def node(kind: str, *inputs: str, **attributes: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"t{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def real(*shape: int) -> str:
        return constant((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def dense(x: str, inputs: int, outputs: int) -> str:
        return node("Add", node("MatMul", x, real(inputs, outputs)), real(outputs))

    def norm(x: str) -> str:
        return node("LayerNormalization", x, real(WIDTH), real(WIDTH), axis=-1)

    split = constant(np.array([0, TOKENS, HEADS, WIDTH // HEADS]))
    joined = constant(np.array([0, TOKENS, WIDTH]))
    scale = constant(np.float32((WIDTH // HEADS) ** -0.5))
    half, one, root = (constant(np.float32(value)) for value in (0.5, 1.0, 2**-0.5))
    x = "input"
    for _ in range(LAYERS):
        y = norm(x)
        q, k, v = (node("Reshape", dense(y, WIDTH, WIDTH), split) for _ in range(3))
        q, v = (node("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
        scores = node("Mul", node("MatMul", q, node("Transpose", k, perm=[0, 2, 3, 1])), scale)
        mixed = node("MatMul", node("Softmax", scores, axis=-1), v)
        mixed = node("Reshape", node("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
        x = node("Add", x, dense(mixed, WIDTH, WIDTH))
        y = dense(norm(x), WIDTH, 4 * WIDTH)
        gate = node("Add", node("Erf", node("Mul", y, root)), one)
        x = node("Add", x, dense(node("Mul", node("Mul", y, gate), half), 4 * WIDTH, WIDTH))
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, (1, TOKENS, WIDTH))],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, (1, TOKENS, WIDTH))],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


NETWORKS = {**cpu_networks.NETWORKS, f"encoder-{LAYERS}": encoder}


def save_network(name: str, batch: int, folder: Path) -> Path:
    """Write a network for a batch and return its path."""
    model = NETWORKS[name]()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    path = folder / f"{name}-{batch}.onnx"
    onnx.save(model, path)
    return path


def ours(name: str, graph: Graph, device: KernelDevice, *, half: bool, fuse: bool) -> Contender:
    """Return a graph on the device, its inputs uploaded once."""
    program = compile_for_gpu(
        graph,
        device.capability,
        device.dialect,
        half=half,
        fuse=fuse,
        choose=tuned_chooser(device.capability),
    )
    model = GpuModel.load(program, device)
    rng = np.random.default_rng(0)
    inputs = {}
    for one in graph.inputs:
        tensor = graph.tensors[one]
        values = rng.standard_normal(tensor.shape) * (20 if tensor.dtype is DataType.INT8 else 1)
        inputs[one] = values.astype(tensor.dtype.numpy)
    model.run(inputs)
    return Contender(name=name, call=device.record(model.launch), wait=device.synchronise)


def torch_gemm(size: int, kind: str) -> list[Contender]:
    """Return PyTorch's product (cuBLAS), if it sees the device."""
    try:
        import torch
    except ImportError:
        return []
    if not torch.cuda.is_available():
        return []
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "int8": torch.int8}[kind]
    a, b = (torch.randint(-20, 20, (size, size), device="cuda").to(dtype) for _ in range(2))
    torch.backends.cuda.matmul.allow_tf32 = False
    call = (lambda: torch._int_mm(a, b)) if kind == "int8" else (lambda: a @ b)
    return [Contender(name="torch", call=call, wait=torch.cuda.synchronize)]


def network_peers(path: Path, half: bool) -> list[Contender]:
    """Return onnxruntime and PyTorch on a network, where they see the device."""
    return [*_onnxruntime(path, half), *_torch_network(path, half)]


def _onnxruntime(path: Path, half: bool) -> list[Contender]:
    import onnxruntime

    if half or "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return []
    session = onnxruntime.InferenceSession(path, providers=["CUDAExecutionProvider"])
    (source,), (target,) = session.get_inputs(), session.get_outputs()
    values = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(source.shape, np.float32), "cuda", 0)
    binding = session.io_binding()
    binding.bind_ortvalue_input(source.name, values)
    binding.bind_output(target.name, "cuda")
    return [
        Contender(
            name="onnxruntime",
            call=lambda: session.run_with_iobinding(binding),
            wait=binding.synchronize_outputs,
        )
    ]


def _torch_network(path: Path, half: bool) -> list[Contender]:
    try:
        import torch
        from cpu_networks_torch import module_of
    except ImportError:
        return []
    if not torch.cuda.is_available() or "encoder" in path.name:
        return []
    batch = onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0].dim_value
    dtype = torch.float16 if half else torch.float32
    module = module_of(path).eval().to("cuda", dtype)
    x = torch.zeros((batch, *cpu_networks.IMAGE[1:]), device="cuda", dtype=dtype)
    x = x.contiguous(memory_format=torch.channels_last)

    def call() -> object:
        with torch.inference_mode():
            return module(x)

    return [Contender(name="torch", call=call, wait=torch.cuda.synchronize)]


def report(title: str, contenders: list[Contender], meter: Meter | None) -> None:
    """Measure and print one row per contender."""
    results = measure(contenders, meter)
    mine = results[contenders[0].name][0]
    peers = [results[one.name][0] for one in contenders if not one.name.startswith("tilewright")]
    for number, one in enumerate(contenders):
        seconds, joules = results[one.name]
        ratio = f"{min(peers) / mine:8.2f}" if peers and not number else " " * 8
        energy = "" if np.isnan(joules) else f"{joules:10.4f} J"
        print(f"{title:26} {one.name:20} {seconds * 1e3:10.3f} ms {ratio}{energy}", flush=True)


def open_device(name: str) -> KernelDevice:
    """Return the device, or end the program with the reason why there is none."""
    try:
        return open_gpu(Device(name))
    except DeviceError as error:
        sys.exit(f"nothing is measured: {error}")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "opencl"], default="cuda")
    parser.add_argument("--only", nargs="+", default=["gemm", *NETWORKS])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 64])
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--tune", metavar="N", type=int, help="measure N schedules per layer first")
    arguments = parser.parse_args()
    device = open_device(arguments.device)
    meter = cuda_meter() if arguments.device == "cuda" else processor_meter()
    print(f"{device.capability.name}; energy {'counted' if meter else 'not counted here'}")
    if "gemm" in arguments.only:
        for size in arguments.sizes:
            for kind in TYPES:
                graph = gemm_graph(size, kind)
                half = kind == "fp16"
                if arguments.tune:
                    tune_graph(graph, device, half=half, budget=arguments.tune)
                mine = ours("tilewright", graph, device, half=half, fuse=True)
                report(f"gemm {size} {kind}", [mine, *torch_gemm(size, kind)], meter)
    with tempfile.TemporaryDirectory() as folder:
        for name in (name for name in NETWORKS if name in arguments.only):
            for batch in arguments.batch:
                path = save_network(name, batch, Path(folder))
                graph = replace(tw.load(path).graph, name=f"{name}-{batch}")
                for half in (False, True):
                    if arguments.tune:
                        tune_graph(graph, device, half=half, budget=arguments.tune)
                    contenders = [
                        ours("tilewright", graph, device, half=half, fuse=True),
                        ours("tilewright, unfused", graph, device, half=half, fuse=False),
                        *network_peers(path, half),
                    ]
                    report(f"{name} x{batch} {'fp16' if half else 'fp32'}", contenders, meter)


if __name__ == "__main__":
    main()
