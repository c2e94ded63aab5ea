"""``tilewright tune``: searches the choices of a compilation, by simulation or by measurement."""

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from typing_extensions import assert_never

from tilewright.commands.command import Command, Outcome
from tilewright.compiler.graph import Graph
from tilewright.compiler.tuning.cache import TuningCache
from tilewright.compiler.tuning.context import Progress
from tilewright.compiler.tuning.cost_model import is_learning_available
from tilewright.compiler.tuning.measured import MeasuredResult
from tilewright.compiler.tuning.store import SHIPPED, TuningStore, user_cache_path
from tilewright.compiler.tuning.tuner import DEFAULT_BUDGET, TuningResult
from tilewright.isa.errors import InputError
from tilewright.options import (
    add_config,
    add_networks,
    add_threads,
    check_outputs,
    check_quantised,
    chosen_config,
    chosen_threads,
    load_networks,
    natural_number,
    positive_number,
    showing_warnings,
)
from tilewright.runtime.devices import Device
from tilewright.runtime.measured_tuning import tune_for_gpu, tune_for_processor
from tilewright.runtime.tables import Table
from tilewright.runtime.tuning import tune_graph
from tilewright.terminal import Terminal

_DEVICES = (Device.SIM, Device.CPU, Device.OPENCL, Device.CUDA)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_networks(parser)
    add_config(parser)
    _add_search(parser)
    _add_files(parser)


def _add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        choices=[device.value for device in _DEVICES],
        default=Device.SIM.value,
        help="what to tune for: sim is the accelerator, with the simulator as judge; on the others"
        " candidates are measured (default: %(default)s)",
    )
    parser.add_argument(
        "--budget",
        metavar="N",
        type=positive_number,
        default=DEFAULT_BUDGET,
        help="candidates simulated or measured per kernel, and simulated per chain of kernels"
        " (default: %(default)s)",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=positive_number,
        default=1,
        help="processes that simulate or prepare candidates; one at a time is measured"
        " (default: %(default)s)",
    )
    add_threads(parser)
    parser.add_argument(
        "--half",
        action="store_true",
        help="tune for real numbers that are float16 in the memory of devices opencl and cuda",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=natural_number,
        default=0,
        help="of what is drawn at random where candidates are measured (default: 0)",
    )


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cache",
        metavar="FILE",
        type=Path,
        help=f"where choices are kept (default: {user_cache_path()})",
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="leave aside the choices that come with the package",
    )


def _execute(arguments: argparse.Namespace, terminal: Terminal) -> Outcome:
    path = arguments.cache or user_cache_path()
    check_outputs(arguments.json, appended=(path,))
    device = Device(arguments.device)
    if device is not Device.SIM and (arguments.config or arguments.changes):
        raise InputError(f"--config and --set describe the accelerator, not device {device.value}")
    if arguments.half and device not in (Device.OPENCL, Device.CUDA):
        raise InputError(f"--half is for devices opencl and cuda, not {device.value}")
    threads = chosen_threads(arguments, device)
    graphs = load_networks(arguments.models, terminal)
    files = (*(() if arguments.fresh else (SHIPPED,)), path)
    if device is Device.SIM:
        record = _tune_accelerator(graphs, files, arguments, terminal)
    else:
        record = _tune_measured(graphs, files, device, threads, arguments, terminal)
    terminal.result(f"choices are in {path}")
    return Outcome(record={"device": device.value, **record, "cache": str(path)})


def _tune_accelerator(
    graphs: list[Graph],
    files: tuple[Path, ...],
    arguments: argparse.Namespace,
    terminal: Terminal,
) -> dict[str, Any]:
    config = chosen_config(arguments)
    check_quantised(graphs)
    with showing_warnings(terminal):
        cache = TuningCache(*files)
    records: list[dict[str, Any]] = []
    rows = []
    for graph in graphs:
        start = time.perf_counter()
        with terminal.stage(f"tuning {graph.name} for {config.name}") as advance:
            result = tune_graph(
                graph,
                config,
                cache,
                budget=arguments.budget,
                jobs=arguments.jobs,
                progress=_showing(graph.name, advance, terminal),
            )
        seconds = time.perf_counter() - start
        records.append({"model": graph.name, **asdict(result), "wall_seconds": seconds})
        rows.append(_simulated_row(graph.name, result, seconds))
    terminal.table(
        Table(
            title=f"Tuned for {config.name}, simulated cycles",
            columns=("model", "untuned", "tuned", "saved", "searched", "simulated", "seconds"),
            rows=tuple(rows),
            numbers=("untuned", "tuned", "saved", "searched", "simulated", "seconds"),
        )
    )
    return {"config": config.name, "models": records}


def _tune_measured(
    graphs: list[Graph],
    files: tuple[Path, ...],
    device: Device,
    threads: int,
    arguments: argparse.Namespace,
    terminal: Terminal,
) -> dict[str, Any]:
    with showing_warnings(terminal):
        store = TuningStore(*files)
    if not is_learning_available():
        terminal.message(
            "note: scikit-learn is not installed: candidates are measured in a simple order"
            " (pip install 'tilewright[tune]')"
        )
    records: list[dict[str, Any]] = []
    rows = []
    for graph in graphs:
        start = time.perf_counter()
        with terminal.stage(f"tuning {graph.name} for {device.value}") as advance:
            show = _showing(graph.name, advance, terminal)
            result = _measure(graph, store, device, threads, arguments, show)
        seconds = time.perf_counter() - start
        records.append({"model": graph.name, **asdict(result), "wall_seconds": seconds})
        rows.append(_measured_row(graph.name, result, seconds))
    shared = f", threads: {threads}" if device is Device.CPU else ""
    terminal.table(
        Table(
            title=f"Tuned for {device.value}{shared}, measured in turns",
            columns=(
                "model",
                "untuned ms",
                "tuned ms",
                "faster",
                "searched",
                "measured",
                "seconds",
            ),
            rows=tuple(rows),
            numbers=("untuned ms", "tuned ms", "faster", "searched", "measured", "seconds"),
        )
    )
    given = {"threads": threads} if device is Device.CPU else {"half": arguments.half}
    return {**given, "seed": arguments.seed, "models": records}


def _measure(
    graph: Graph,
    store: TuningStore,
    device: Device,
    threads: int,
    arguments: argparse.Namespace,
    show: Callable[[Progress], None],
) -> MeasuredResult:
    match device:
        case Device.CPU:
            return tune_for_processor(
                graph,
                store,
                threads=threads,
                budget=arguments.budget,
                jobs=arguments.jobs,
                seed=arguments.seed,
                progress=show,
            )
        case Device.OPENCL | Device.CUDA:
            return tune_for_gpu(
                graph,
                store,
                device,
                half=arguments.half,
                budget=arguments.budget,
                jobs=arguments.jobs,
                seed=arguments.seed,
                progress=show,
            )
        case Device.SIM | Device.RTL | Device.REFERENCE:
            raise AssertionError(f"nothing is measured on {device.value}")
        case _:
            assert_never(device)


def _showing(
    name: str, advance: Callable[[int, int], None], terminal: Terminal
) -> Callable[[Progress], None]:
    def show(progress: Progress) -> None:
        advance(progress.done, progress.total)
        terminal.detail(
            f"{name}, {progress.phase} {progress.done}/{progress.total}: {progress.text}"
        )

    return show


def _simulated_row(name: str, result: TuningResult, seconds: float) -> tuple[str, ...]:
    saved = 1 - result.tuned_cycles / max(1, result.untuned_cycles)
    return (
        name,
        f"{result.untuned_cycles:,}",
        f"{result.tuned_cycles:,}",
        f"{saved:.1%}",
        f"{result.searched} of {result.problems}",
        f"{result.judged:,}",
        f"{seconds:.0f}",
    )


def _measured_row(name: str, result: MeasuredResult, seconds: float) -> tuple[str, ...]:
    return (
        name,
        f"{result.untuned_nanoseconds / 1e6:.3f}",
        f"{result.tuned_nanoseconds / 1e6:.3f}",
        f"{result.untuned_nanoseconds / max(1, result.tuned_nanoseconds):.3f}x",
        f"{result.searched} of {result.problems}",
        f"{result.measured:,}",
        f"{seconds:.0f}",
    )


COMMAND = Command(
    name="tune",
    summary="search tile sizes and orders, by simulation or by measurement",
    add_arguments=_add_arguments,
    execute=_execute,
)
