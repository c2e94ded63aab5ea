"""``tilewright area``: what a configuration takes of an FPGA, and how fast it is there."""

import argparse
from typing import TYPE_CHECKING, Any

from tilewright.commands.command import Command, Outcome
from tilewright.isa.config_record import config_to_record
from tilewright.isa.errors import InputError
from tilewright.options import add_config, check_outputs, chosen_config
from tilewright.runtime.tables import Table
from tilewright.terminal import Terminal

if TYPE_CHECKING:
    from tilewright.boards.area import Area, AreaReport, Unit
    from tilewright.boards.timing import TimingReport

_FAMILIES = ("xc7", "xcup", "ecp5")
_NUMBERS = ("number", "LUT", "registers", "DSP", "block RAM")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--family",
        choices=_FAMILIES,
        default=_FAMILIES[0],
        help="compare with an XC7Z020, an XCZU3EG or an LFE5U-85F (default: xc7)",
    )
    parser.add_argument(
        "--depth", metavar="N", type=int, default=2, help="levels of units to show (default: 2)"
    )
    parser.add_argument(
        "--timing", action="store_true", help="also place and route it (ecp5 only), for its clock"
    )


def _execute(arguments: argparse.Namespace, terminal: Terminal) -> Outcome:
    # Amaranth is loaded by few commands.
    from tilewright.boards.area import Target, measure_area
    from tilewright.boards.timing import measure_timing

    check_outputs(arguments.json)
    config = chosen_config(arguments)
    target = Target(arguments.family)
    if arguments.timing and target is not Target.ECP5:
        raise InputError("--timing needs --family ecp5", hint="no other family has a free router")
    with terminal.stage(f"mapping {config.name} to {target.value}"):
        report = measure_area(config, target)
    terminal.table(_area_table(report, arguments.depth))
    timing = None
    if arguments.timing:
        with terminal.stage(f"placing and routing {config.name}"):
            timing = measure_timing(config)
        _print_timing(timing, terminal)
    return Outcome(
        record={
            "config": config.name,
            "configuration": config_to_record(config),
            "family": target.value,
            "part": target.part.name,
            "tool": report.tool,
            "shares": report.share(report.top.area),
            "top": _unit_record(report.top),
            "timing": None if timing is None else _timing_record(timing),
        }
    )


def _area_table(report: "AreaReport", depth: int) -> Table:
    rows = [
        (f"{'  ' * level}{unit.name}", str(unit.number), *_area_cells(unit.area))
        for level, unit in report.top.walk(depth)
    ]
    part = report.target.part
    totals = (part.luts, part.registers, part.multipliers, part.block_rams)
    shares = report.share(report.top.area).values()
    rows += [
        (part.name, "", *(f"{total:,}" for total in totals)),
        ("taken", "", *(f"{share:.1%}" for share in shares)),
    ]
    return Table(
        columns=("unit", *_NUMBERS),
        numbers=_NUMBERS,
        rows=tuple(rows),
        title=f"Area of {report.config.name} ({report.tool.split('(')[0].strip()})",
    )


def _area_cells(area: "Area") -> tuple[str, ...]:
    return (
        f"{area.luts:,}",
        f"{area.registers:,}",
        f"{area.multipliers:,}",
        f"{area.block_rams:g}",
    )


def _print_timing(timing: "TimingReport", terminal: Terminal) -> None:
    terminal.result(f"clock         {timing.mhz:.1f} MHz")
    levels = f"{timing.levels} level{'' if timing.levels == 1 else 's'} of logic"
    terminal.result(f"longest path  {timing.delay_ns:.1f} ns, {levels}")
    terminal.result(f"  from        {timing.begin}")
    terminal.result(f"  to          {timing.end}")
    terminal.result(f"  through     {', '.join(timing.units)}")
    for step in timing.path:
        terminal.detail(f"  {step.delay_ns:6.2f} ns {step.kind:8} {step.cell}.{step.port}")


def _unit_record(unit: "Unit") -> dict[str, Any]:
    return {
        "name": unit.name,
        "number": unit.number,
        "luts": unit.area.luts,
        "registers": unit.area.registers,
        "multipliers": unit.area.multipliers,
        "block_rams": unit.area.block_rams,
        "units": [_unit_record(inner) for inner in unit.units],
    }


def _timing_record(timing: "TimingReport") -> dict[str, Any]:
    return {
        "tools": list(timing.tools),
        "seed": timing.seed,
        "mhz": timing.mhz,
        "levels": timing.levels,
        "delay_ns": timing.delay_ns,
        "begin": timing.begin,
        "end": timing.end,
        "units": list(timing.units),
        "path": [
            {
                "kind": step.kind,
                "cell": step.cell,
                "port": step.port,
                "delay_ns": step.delay_ns,
            }
            for step in timing.path
        ],
        "use": {
            name: {"used": used, "available": available}
            for name, (used, available) in timing.use.items()
        },
    }


COMMAND = Command(
    name="area",
    summary="measure what a configuration takes of an FPGA",
    add_arguments=_add_arguments,
    execute=_execute,
)
