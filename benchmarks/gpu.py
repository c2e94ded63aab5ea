"""Matrix products and networks on a GPU, beside its peers, in one interleaved run.

    python benchmarks/gpu.py [--device cuda] [--tune 16] [--only gemm ResNet-18 ...] [--batch 1 64]

Contenders take turns in short bursts; a burst begins with calls that do not count. Each row gives
the least time of a contender in milliseconds, what its energy is where the platform counts it, and
the ratio of its time to ours: above 1 is slower than ours. Inputs and outputs stay on the device.
Peers that are not installed, or do not see the device, are left out and said so. Each network is
measured with nodes fused and by themselves, after its output has been compared with onnxruntime's.

Where there is no GPU the script says so and measures nothing. ``--device opencl`` takes what OpenCL
offers, which may be the processor (PoCL), with peers on the processor then: good to try the script,
no measurement of a GPU.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from gpu_networks import NETWORKS, gemm_graph, save_network
from gpu_peers import Contender, absent_peers, gemm_peers, network_peers, reference

import tilewright as tw
from tilewright.compiler.graph import Graph
from tilewright.compiler.operators import DataType
from tilewright.compiler.tuning.cost_model import learned_model
from tilewright.compiler.tuning.measured import tune_measured
from tilewright.cpu_gpu_backends.energy import Meter, joules_of
from tilewright.cpu_gpu_backends.gpu.compile_graph import compile_for_gpu
from tilewright.cpu_gpu_backends.gpu.device import DeviceError, KernelDevice
from tilewright.cpu_gpu_backends.gpu.model import GpuModel
from tilewright.cpu_gpu_backends.gpu.tuning import GpuTuning, tuned_chooser
from tilewright.runtime.devices import Device
from tilewright.runtime.gpu_graphs import open_gpu
from tilewright.runtime.tuning import open_store

SIZES = (1024, 2048, 4096, 8192)
TYPES = ("fp32", "fp16", "int8")
WARM_UP_SECONDS, BURST_SECONDS = 0.01, 0.1
#: Largest difference from onnxruntime, relative to the largest output: float32, float16 in memory.
TOLERANCES = {False: 1e-3, True: 5e-2}


def least_seconds(contenders: list[Contender], rounds: int) -> dict[str, float]:
    """Return, per contender, the least mean seconds of a call in a burst."""
    best = {one.name: float("inf") for one in contenders}
    for _ in range(rounds):
        for one in contenders:
            _burst(one, WARM_UP_SECONDS)
            best[one.name] = min(best[one.name], _burst(one, BURST_SECONDS))
    return best


def _burst(contender: Contender, least_seconds: float) -> float:
    """Return the mean seconds of calls that take some time together."""
    calls, start = 0, time.perf_counter()
    while calls == 0 or time.perf_counter() - start < least_seconds:
        contender.call()
        contender.wait()
        calls += 1
    return (time.perf_counter() - start) / calls


def report(title: str, contenders: list[Contender], meter: Meter | None, rounds: int) -> None:
    """Measure and print one row per contender, ours first."""
    best = least_seconds(contenders, rounds)
    mine = best[contenders[0].name]
    for one in contenders:
        joules = None if meter is None else joules_of(_finished(one), meter)
        energy = "" if joules is None else f"{joules:10.4f} J"
        seconds = best[one.name]
        row = f"{title:24} {one.name:20} {seconds * 1e3:11.3f} ms {seconds / mine:8.2f}{energy}"
        print(row, flush=True)


def _finished(contender: Contender) -> Callable[[], object]:
    def call() -> None:
        contender.call()
        contender.wait()

    return call


def tune(graph: Graph, device: KernelDevice, *, half: bool, budget: int) -> None:
    """Measure schedules of each layer, and keep the fastest."""
    store = open_store()
    assert store is not None, "files are read by default"
    target = GpuTuning(graph=graph, device=device, half=half)
    tune_measured(target, store, budget=budget, model=learned_model(0))


@contextmanager
def loaded(
    graph: Graph, device: KernelDevice, *, half: bool, fuse: bool
) -> Iterator[tuple[GpuModel, Contender]]:
    """Yield a graph on the device, its inputs uploaded once; its memory is given back."""
    program = compile_for_gpu(
        graph,
        device.capability,
        device.dialect,
        half=half,
        fuse=fuse,
        choose=tuned_chooser(graph, device.capability, open_store(), half=half),
    )
    model = GpuModel.load(program, device)
    try:
        model.run(sample(graph))
        name = "tilewright" if fuse else "tilewright, unfused"
        call = device.record(model.launch)
        yield model, Contender(name=name, call=call, wait=device.synchronise)
    finally:
        model.close()


def sample(graph: Graph) -> dict[str, np.ndarray]:
    """Return random inputs."""
    rng = np.random.default_rng(0)
    inputs = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        values = rng.standard_normal(tensor.shape) * (20 if tensor.dtype is DataType.INT8 else 1)
        inputs[name] = values.astype(tensor.dtype.numpy)
    return inputs


def measure_gemm(device: KernelDevice, size: int, kind: str, options: argparse.Namespace) -> None:
    """Print the rows of one product."""
    graph, half = gemm_graph(size, kind), kind == "fp16"
    if options.tune:
        tune(graph, device, half=half, budget=options.tune)
    with loaded(graph, device, half=half, fuse=True) as (_, mine):
        peers = gemm_peers(size, kind, place_of(device))
        report(f"gemm {size} {kind}", [mine, *peers], device.meter(), options.rounds)


def measure_network(
    device: KernelDevice, path: Path, half: bool, options: argparse.Namespace
) -> None:
    """Check and print the rows of one network."""
    graph = replace(tw.load(path).graph, name=path.stem)
    if options.tune:
        tune(graph, device, half=half, budget=options.tune)
    title = f"{path.stem} {'fp16' if half else 'fp32'}"
    with (
        loaded(graph, device, half=half, fuse=True) as (model, fused),
        loaded(graph, device, half=half, fuse=False) as (_, unfused),
    ):
        inputs = sample(graph)
        (values,), (result,) = inputs.values(), model.run(inputs).values()
        expected = reference(path, values)
        error = float(np.abs(result - expected).max() / np.abs(expected).max())
        if not error <= TOLERANCES[half]:
            sys.exit(f"{title}: differs from onnxruntime by {error:.1e} of the largest output")
        peers = network_peers(path, values.shape, half, place_of(device))
        report(title, [fused, unfused, *peers], device.meter(), options.rounds)


def place_of(device: KernelDevice) -> str:
    """Return where peers run."""
    return "cpu" if device.capability.is_processor else "cuda"


def open_device(name: str) -> KernelDevice:
    """Return the device, or end the program with the reason why there is none."""
    try:
        return open_gpu(Device(name))
    except DeviceError as error:
        sys.exit(f"no GPU, nothing is measured: {error}")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "opencl"], default="cuda")
    parser.add_argument("--only", nargs="+", default=["gemm", *NETWORKS])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 64])
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--rounds", type=int, default=7, help="bursts of each contender")
    parser.add_argument("--tune", metavar="N", type=int, help="measure N schedules per layer first")
    options = parser.parse_args()
    device = open_device(options.device)
    counted = "counted" if device.meter() else "not counted here"
    print(f"device: {device.capability.name}; energy: {counted}")
    if device.capability.is_processor:
        print("this is the processor: no figure below is one of a GPU")
    for line in absent_peers(place_of(device)):
        print(line)
    print(f"{'':24} {'':20} {'least time':>14} {'ratio':>8}")
    for size in options.sizes if "gemm" in options.only else ():
        for kind in TYPES:
            with told():
                measure_gemm(device, size, kind, options)
    with tempfile.TemporaryDirectory() as folder:
        for name in (name for name in NETWORKS if name in options.only):
            for batch in options.batch:
                path = save_network(name, batch, Path(folder))
                for half in (False, True):
                    with told():
                        measure_network(device, path, half, options)


@contextmanager
def told() -> Iterator[None]:
    """Print what a device cannot do, and go on."""
    try:
        yield
    except DeviceError as error:
        print(f"left out: {error}", flush=True)


if __name__ == "__main__":
    main()
