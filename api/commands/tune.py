"""``tilewright tune``: searches tile sizes, loop orders and chains with the simulator as judge."""

import argparse
import time
from dataclasses import asdict
from pathlib import Path

from tilewright.commands.command import Command, Outcome
from tilewright.compiler.graph import Graph
from tilewright.compiler.tuning.cache import TuningCache
from tilewright.compiler.tuning.context import Progress
from tilewright.compiler.tuning.store import SHIPPED, user_cache_path
from tilewright.compiler.tuning.tuner import DEFAULT_BUDGET, TuningResult
from tilewright.isa.config import AcceleratorConfig
from tilewright.options import (
    add_config,
    add_networks,
    check_outputs,
    chosen_config,
    load_networks,
    positive_number,
    showing_warnings,
)
from tilewright.runtime.tables import Table
from tilewright.runtime.tuning import tune_graph
from tilewright.terminal import Terminal


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_networks(parser)
    add_config(parser)
    parser.add_argument(
        "--budget",
        metavar="N",
        type=positive_number,
        default=DEFAULT_BUDGET,
        help="candidates simulated per kernel, and per chain of kernels (default: %(default)s)",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=positive_number,
        default=1,
        help="processes (default: %(default)s)",
    )
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
    check_outputs(arguments.json)
    config = chosen_config(arguments)
    graphs = load_networks(arguments.models, terminal)
    path = arguments.cache or user_cache_path()
    with showing_warnings(terminal):
        cache = TuningCache(*(() if arguments.fresh else (SHIPPED,)), path)
    records = []
    rows = []
    for graph in graphs:
        result, seconds = _tune(graph, config, cache, arguments, terminal)
        records.append({"model": graph.name, **asdict(result), "wall_seconds": seconds})
        rows.append(_row(graph.name, result, seconds))
    terminal.table(
        Table(
            title=f"Tuned for {config.name}, simulated cycles",
            columns=("model", "untuned", "tuned", "saved", "searched", "simulated", "seconds"),
            rows=tuple(rows),
            numbers=("untuned", "tuned", "saved", "searched", "simulated", "seconds"),
        )
    )
    terminal.result(f"choices are in {path}")
    return Outcome(record={"config": config.name, "cache": str(path), "models": records})


def _tune(
    graph: Graph,
    config: AcceleratorConfig,
    cache: TuningCache,
    arguments: argparse.Namespace,
    terminal: Terminal,
) -> tuple[TuningResult, float]:
    start = time.perf_counter()
    with terminal.stage(f"tuning {graph.name} for {config.name}") as advance:

        def show(progress: Progress) -> None:
            advance(progress.done, progress.total)
            terminal.detail(
                f"{graph.name}, {progress.phase} {progress.done}/{progress.total}: {progress.text}"
            )

        result = tune_graph(
            graph, config, cache, budget=arguments.budget, jobs=arguments.jobs, progress=show
        )
    return result, time.perf_counter() - start


def _row(name: str, result: TuningResult, seconds: float) -> tuple[str, ...]:
    saved = 1 - result.tuned_cycles / result.untuned_cycles
    return (
        name,
        f"{result.untuned_cycles:,}",
        f"{result.tuned_cycles:,}",
        f"{saved:.1%}",
        f"{result.searched} of {result.problems}",
        f"{result.judged:,}",
        f"{seconds:.0f}",
    )


COMMAND = Command(
    name="tune",
    summary="search tile sizes and orders with the simulator as judge",
    add_arguments=_add_arguments,
    execute=_execute,
)
