"""``tilewright explore``: the fastest configurations of a grid that fit a part."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.boards.parts import XC7Z020, XCZU3EG_E, Part
from tilewright.commands.command import Command, Outcome
from tilewright.compiler.graph import Graph
from tilewright.compiler.tuning.cache import TuningCache
from tilewright.compiler.tuning.context import Progress
from tilewright.compiler.tuning.store import SHIPPED, user_cache_path
from tilewright.config_file import check_field
from tilewright.isa.config_record import config_to_record
from tilewright.isa.errors import InputError
from tilewright.list_options import ListOption, add_list
from tilewright.options import (
    add_config,
    add_networks,
    check_outputs,
    check_quantised,
    chosen_config,
    load_networks,
    positive_number,
    showing_warnings,
)
from tilewright.runtime.files import write_atomically
from tilewright.runtime.tables import Table
from tilewright.terminal import Terminal

if TYPE_CHECKING:
    from tilewright.exploration import Candidate, Exploration, ExploredTuning, Point

#: Parts that the area model is made for, by the name that the command takes.
PARTS = {"xc7z020": XC7Z020, "xczu3eg": XCZU3EG_E}

#: What is tried for an XC7Z020 where no grid is given: fields and their values.
DEFAULT_GRID: Mapping[str, tuple[str, ...]] = {
    "block_in": ("8", "16", "24", "32", "48"),
    "block_out": ("8", "16", "24", "32"),
    "wgt_entries": ("512", "1024"),
    "lane_multipliers": ("3", "1", "0"),
}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_networks(parser)
    add_config(parser)
    parser.add_argument(
        "--part",
        choices=sorted(PARTS),
        default="xc7z020",
        help="what a configuration must fit into (default: %(default)s)",
    )
    add_list(
        parser,
        ListOption.GRID,
        metavar="FIELD=VALUE,VALUE...",
        dest="grid",
        meaning=f"values to combine (default: {_grid_text()})",
    )
    parser.add_argument(
        "--limit",
        metavar="PERCENT",
        type=_percent,
        default=1.0,
        help="share of each resource that may be taken (default: 100)",
    )
    parser.add_argument(
        "--most",
        metavar="N",
        type=positive_number,
        default=12,
        help="configurations to simulate, those with the best bounds (default: %(default)s)",
    )
    parser.add_argument(
        "--jobs", metavar="N", type=positive_number, default=1, help="processes (default: 1)"
    )
    parser.add_argument(
        "--tune",
        metavar="N",
        type=positive_number,
        help="tune the models for each of the best configurations, with N candidates per kernel",
    )
    parser.add_argument("--plot", metavar="FILE.svg", type=Path, help="draw speed over area")


def _grid_text() -> str:
    return " ".join(f"{field}={','.join(values)}" for field, values in DEFAULT_GRID.items())


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most 100, not {text!r}")
    return value / 100


def _grid(words: list[str]) -> dict[str, tuple[str, ...]]:
    """Read the words of ``--grid``."""
    grid = {}
    for word in words:
        field, equals, values = word.partition("=")
        if not equals or not values:
            raise InputError(f"--grid takes field=value,value..., not {word!r}")
        check_field(field)
        grid[field] = tuple(values.split(","))
    return grid


def _execute(arguments: argparse.Namespace, terminal: Terminal) -> Outcome:
    # The area model knows the hardware, whose language a board has not.
    from tilewright.exploration import explore
    from tilewright.pareto_plot import pareto_svg

    check_outputs(arguments.json, arguments.plot)
    part = PARTS[arguments.part]
    grid = _grid(arguments.grid) or dict(DEFAULT_GRID)
    base = chosen_config(arguments)
    graphs = load_networks(arguments.models, terminal)
    check_quantised(graphs)
    with terminal.stage(f"exploring for {part.name}") as advance, showing_warnings(terminal):

        def show(done: int, total: int, point: "Point | None") -> None:
            advance(done, total)
            if point is not None:
                terminal.detail(f"{done} of {total}, {point.candidate.label}: {_rates(point)}")

        result = explore(
            graphs,
            base,
            grid,
            part,
            limit=arguments.limit,
            most=arguments.most,
            jobs=arguments.jobs,
            tuning=_tuning(arguments.tune, terminal),
            progress=show,
        )
    _print(result, graphs, part, terminal)
    if arguments.plot and result.points:
        title = f"{', '.join(graph.name for graph in graphs)} on {part.name}, simulated"
        write_atomically(arguments.plot, pareto_svg(result.points, title=title).encode())
    return Outcome(record=_record(result, graphs, part), status=0 if result.points else 1)


def _tuning(budget: int | None, terminal: Terminal) -> "ExploredTuning | None":
    from tilewright.exploration import ExploredTuning

    if budget is None:
        return None

    def show(candidate: "Candidate", progress: Progress) -> None:
        terminal.detail(
            f"{candidate.label}, {progress.phase} {progress.done}/{progress.total}: {progress.text}"
        )

    cache = TuningCache(SHIPPED, user_cache_path())
    return ExploredTuning(cache=cache, budget=budget, progress=show)


def _rates(point: "Point") -> str:
    return ", ".join(f"{rate:.2f}" for rate in point.rates) + " images/s"


def _print(result: "Exploration", graphs: list[Graph], part: Part, terminal: Terminal) -> None:
    names = tuple(f"{graph.name} /s" for graph in graphs)
    resources = ("DSP", "block RAM", "LUT")
    columns = ("best", "configuration", "tuned", *names, *resources)
    terminal.table(
        Table(
            title=f"Images per second, simulated, and share of {part.name} by the area model",
            columns=columns,
            rows=tuple(_row(point) for point in result.points),
            numbers=(*names, *resources),
        )
    )
    terminal.result(
        f"{result.tried} configurations: {result.illegal} not allowed, {result.too_large} too"
        f" large, {result.not_simulated} with worse bounds not simulated"
    )


def _row(point: "Point") -> tuple[str, ...]:
    area, shares = point.candidate.area, point.candidate.shares
    return (
        "*" if point.is_best else "",
        point.candidate.label,
        "yes" if point.is_tuned else "",
        *(f"{rate:.2f}" for rate in point.rates),
        f"{area.multipliers} ({shares.multipliers:.0%})",
        f"{area.block_rams:g} ({shares.block_rams:.0%})",
        f"{area.luts:,} ({shares.luts:.0%})",
    )


def _record(result: "Exploration", graphs: list[Graph], part: Part) -> dict[str, Any]:
    return {
        "part": part.name,
        "models": [graph.name for graph in graphs],
        "tried": result.tried,
        "illegal": result.illegal,
        "too_large": result.too_large,
        "not_simulated": result.not_simulated,
        "points": [_point_record(point) for point in result.points],
    }


def _point_record(point: "Point") -> dict[str, Any]:
    candidate = point.candidate
    return {
        "config": config_to_record(candidate.config),
        "best": point.is_best,
        "tuned": point.is_tuned,
        "cycles": list(point.cycles),
        "bounds": list(candidate.bounds),
        "images_per_second": list(point.rates),
        "area": {
            "luts": candidate.area.luts,
            "registers": candidate.area.registers,
            "multipliers": candidate.area.multipliers,
            "block_rams": candidate.area.block_rams,
        },
        "shares": {
            "luts": candidate.shares.luts,
            "registers": candidate.shares.registers,
            "multipliers": candidate.shares.multipliers,
            "block_rams": candidate.shares.block_rams,
        },
    }


COMMAND = Command(
    name="explore",
    summary="find the fastest configurations that fit an FPGA",
    add_arguments=_add_arguments,
    execute=_execute,
)
