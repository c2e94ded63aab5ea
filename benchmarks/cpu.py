"""Networks and matrix products on the processor, beside its peers, in one interleaved run.

    python benchmarks/cpu.py [--threads 1 2] [--realtime] [--quick] [--only bert4 gemm-1024 ...]
                             [--kinds fp32 int8 bf16]

The networks are those of `cpu_networks.py`, with random weights. Contenders take turns in short
bursts, so that other load on the machine meets all of them alike; a burst begins with two calls
that do not count. Each row gives the least and the median time of a contender in milliseconds, and
the ratio of the best peer's least time to ours. ``--realtime`` runs the bursts with real-time
priority (root), which keeps other processes out of them; ``--quick`` takes fewer bursts.

Rows bf16 are the float32 network in bfloat16, as far as each contender sees fit: `half` here, and
what OpenVINO does by default on processors that have it, which in rows fp32 is told to compute in
float32. int8 networks are one file for all: uint8 activations, int8 weights per channel. LiteRT has
the same numbers as a TFLite file; it has no int8 layer normalisation, so that it does not take part
in bert4 there.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path

import cpu_networks
import numpy as np
from cpu_peers import (
    Call,
    litert_call,
    onnxruntime_call,
    openvino_call,
    torch_call,
    torch_product,
)

import tilewright as tw
from tilewright.compiler.graph import Graph, Tensor
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import Conv2d, DataType, FloatDense
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.cpu_gpu_backends.codegen.target import host_target
from tilewright.cpu_gpu_backends.cpu.arithmetic import FLOAT32, Arithmetic
from tilewright.cpu_gpu_backends.cpu.builder import ProgramBuilder
from tilewright.cpu_gpu_backends.cpu.convolution import matrix_nest
from tilewright.cpu_gpu_backends.cpu.lower import lower_graph
from tilewright.cpu_gpu_backends.cpu.matrix_schedule import Window
from tilewright.cpu_gpu_backends.cpu.native import load_program
from tilewright.cpu_gpu_backends.cpu.program import Home, whole_view
from tilewright.cpu_gpu_backends.cpu.tiles import choose_panels, lanes, tile_rows
from tilewright.isa.integers import split_scale

KINDS = ("fp32", "int8", "bf16")
GEMM_SIZES = (512, 1024, 2048)
#: Rows of tiles, and bytes that a sum reads of each operand, when the peak is measured.
PEAK_ROWS, PEAK_BYTES = 2000, 512
ROUNDS, QUICK_ROUNDS, CALLS, WARM_UP = 8, 3, 4, 2
REALTIME_PRIORITY = 10


@contextmanager
def burst(realtime: bool) -> Iterator[None]:
    """Run with real-time priority, all threads of the process, if asked for."""
    set_priority(realtime)
    try:
        yield
    finally:
        set_priority(False)


def set_priority(realtime: bool) -> None:
    """Give all threads of the process real-time priority, or the usual one."""
    policy = os.SCHED_FIFO if realtime else os.SCHED_OTHER
    for thread in os.listdir("/proc/self/task"):
        try:
            parameter = os.sched_param(REALTIME_PRIORITY if realtime else 0)
            os.sched_setscheduler(int(thread), policy, parameter)
        except ProcessLookupError:
            continue  # it has ended since


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """How contenders are measured: with or without real-time priority, how often."""

    realtime: bool
    rounds: int


def measure(contenders: dict[str, Call], bursts: Bursts) -> dict[str, list[float]]:
    """Return the times of each contender, in milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(bursts.rounds):
        for name, call in contenders.items():
            call()
            with burst(bursts.realtime):
                for number in range(WARM_UP - 1 + CALLS):
                    start = time.perf_counter()
                    call()
                    if number >= WARM_UP - 1:
                        times[name].append((time.perf_counter() - start) * 1e3)
    return times


def ours(
    graph: Graph, inputs: list[np.ndarray], threads: int, arithmetic: Arithmetic = FLOAT32
) -> Call:
    """Return a call of the machine code of `graph`."""
    target = host_target()
    program = lower_graph(graph, target, arithmetic=arithmetic)
    return load_program(program, target).bound_call(inputs, threads)


def network_rows(
    name: str, folder: Path, threads: int, kinds: Collection[str], bursts: Bursts
) -> None:
    """Measure a network in float32, in int8, and in bfloat16."""
    sample = cpu_networks.NETWORKS[name].sample(0)
    for kind in kinds:
        save = cpu_networks.save_int8 if kind == "int8" else cpu_networks.save_float
        path, half = save(name, folder), kind == "bf16"
        graph = tw.load(path).graph
        contenders: dict[str, Call | None] = {
            "tilewright": ours(graph, [sample], threads, Arithmetic(half=half)),
            "OpenVINO": openvino_call(path, sample, threads, half=half),
        }
        if not half:
            contenders["onnxruntime"] = onnxruntime_call(path, sample, threads)
        if kind == "fp32":
            contenders["PyTorch"] = torch_call(path, sample, threads)
        if not half and (name, kind) != ("bert4", "int8"):
            contenders["LiteRT"] = litert_call(path, sample, threads)
        present = {who: call for who, call in contenders.items() if call is not None}
        print_row(f"{name} {kind}", threads, measure(present, bursts))


def product_graph(rows: int, columns: int, depth: int) -> Graph:
    """Return one dense layer in float32 with random weights."""
    build = GraphBuilder("gemm")
    x = build.add_input(Tensor(name="x", shape=(rows, depth), dtype=DataType.FLOAT32))
    rng = np.random.default_rng(1)
    weights = build.add_constant("w", rng.standard_normal((columns, depth)).astype(np.float32))
    y = build.add(FloatDense(), [x, weights], node="dense")
    return build.build([y])


def byte_product_graph(rows: int, columns: int, depth: int) -> Graph:
    """Return one layer of int8 values, requantised, with random weights."""
    build = GraphBuilder("gemm")
    shape = (1, rows, 1, depth)
    x = build.add_input(Tensor(name="x", shape=shape, dtype=DataType.INT8))
    rng = np.random.default_rng(1)
    weights = rng.integers(-127, 128, (columns, 1, 1, depth)).astype(np.int8)
    multiplier, shift = split_scale(np.full(columns, 1e-4, np.float32))
    constants = (
        weights,
        np.zeros(columns, np.int32),
        multiplier.astype(np.int32),
        shift.astype(np.int32),
    )
    operands = [build.add_constant(f"c{i}", values) for i, values in enumerate(constants)]
    op = Conv2d(input_zero_point=0, zero_point=0, low=-128, high=127)
    y = build.add(op, [x, *operands], node="dense")
    return build.build([y])


def product_call(rows: int, columns: int, depth: int, dtype: DataType, threads: int) -> Call:
    """Return a product of random values of a type by random weights."""
    rng = np.random.default_rng(0)
    if dtype is DataType.INT8:
        values = rng.integers(-128, 128, (1, rows, 1, depth)).astype(np.int8)
        return ours(byte_product_graph(rows, columns, depth), [values], threads)
    real = rng.standard_normal((rows, depth)).astype(np.float32)
    return ours(product_graph(rows, columns, depth), [real], threads)


def peak_call(dtype: DataType, threads: int) -> tuple[Call, int]:
    """Return sums in registers with operands in the nearest cache, and how many operations."""
    target, rows, small = host_target(), PEAK_ROWS, dtype is DataType.INT8
    depth = PEAK_BYTES if small else PEAK_BYTES // 4
    panels = choose_panels(2 * lanes(target), rows, target)
    columns = tile_rows(panels.width, target)
    window = Window(
        batch=1,
        rows=rows,
        columns=columns,
        row_step=0,  # every row of tiles reads the same few numbers
        column_step=depth,
        kernel_rows=1,
        row_dilation=1,
        kernel_columns=1,
        column_dilation=1,
        length=depth,
    )
    nest = matrix_nest(
        window,
        panels,
        dtype=ScalarType.UINT8 if small else ScalarType.FLOAT32,
        weight_dtype=ScalarType(dtype.value),
        epilogue=lambda total, at: total,
        target=target,
    )
    build = ProgramBuilder("peak")
    places = {
        tensor.name: whole_view(
            build.buffer(tensor.name, tensor.dtype, prod(tensor.shape), Home.WORKSPACE),
            tensor.shape,
        )
        for tensor in (*nest.inputs, *nest.outputs)
    }
    build.kernel("peak", nest, places)
    call = load_program(build.build(), target).bound_call([], threads)
    return call, 2 * rows * columns * panels.channels * depth


def gemm_rows(size: int, threads: int, bursts: Bursts) -> None:
    """Measure square products of float32 and of int8 matrices, and the peak beside them."""
    for dtype in (DataType.FLOAT32, DataType.INT8):
        peak, operations = peak_call(dtype, threads)
        contenders = {"tilewright": product_call(size, size, size, dtype, threads), "peak": peak}
        if dtype is DataType.FLOAT32 and (peer := torch_product(size, threads)) is not None:
            contenders["PyTorch"] = peer
        times = measure(contenders, bursts)
        most = 1e-6 * operations / min(times.pop("peak"))
        reached = 2e-6 * size**3 / min(times["tilewright"])
        share = reached / most
        print_row(f"gemm-{size} {dtype}", threads, times)
        print(f"{'':22} {reached:.1f} GOP/s = {share:.1%} of {most:.1f}")


def print_row(name: str, threads: int, times: dict[str, list[float]]) -> None:
    """Print least and median times and the ratio to the best peer."""
    cells = [f"{who} {min(t):.2f}/{np.median(t):.2f}" for who, t in times.items()]
    peers = [min(t) for who, t in times.items() if who != "tilewright"]
    ratio = f"{min(peers) / min(times['tilewright']):.2f}x" if peers else "-"
    print(f"{name:22} {threads} thread(s)  {ratio:>6}  {', '.join(cells)}", flush=True)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    arguments = parser.parse_args()
    wanted = arguments.only or [*cpu_networks.NETWORKS, *(f"gemm-{n}" for n in GEMM_SIZES)]
    sizes = [size for size in GEMM_SIZES if f"gemm-{size}" in wanted]
    rounds = QUICK_ROUNDS if arguments.quick else ROUNDS
    bursts = Bursts(realtime=arguments.realtime, rounds=rounds)
    with tempfile.TemporaryDirectory() as folder:
        for threads in arguments.threads:
            for name in cpu_networks.NETWORKS:
                if name in wanted:
                    network_rows(name, Path(folder), threads, arguments.kinds, bursts)
            for size in sizes:
                gemm_rows(size, threads, bursts)


if __name__ == "__main__":
    main()
