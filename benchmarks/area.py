"""Measures what the presets take of their parts, and the clock of a small one on an ECP5.

Prints the tables of `docs/area.md`. The first run takes about an hour, later ones come from the
cache.
"""

import argparse
import statistics

from tilewright.boards.area import AreaReport, Target, measure_area
from tilewright.boards.timing import PART, measure_timing
from tilewright.isa.presets import ECP5, PYNQ, TINY, ULTRA96

MEASURED = (
    (TINY, Target.XC7),
    (PYNQ, Target.XC7),
    (ULTRA96, Target.XCUP),
    (ECP5, Target.ECP5),
)
#: Presets that are placed and routed, and the starting points of the placement.
PLACED = (TINY,)
SEEDS = (1, 2, 3)


def print_areas(reports: list[AreaReport]) -> None:
    """Print a row per configuration: what it takes, and of how much."""
    print("| preset | part | LUT | registers | DSP | block RAM |")
    print("|---|---|---|---|---|---|")
    for report in reports:
        area, part = report.top.area, report.target.part
        used = (area.luts, area.registers, area.multipliers, area.block_rams)
        total = (part.luts, part.registers, part.multipliers, part.block_rams)
        cells = [
            f"{number:,} ({number / whole:.0%})".replace(".0 ", " ")
            for number, whole in zip(used, total, strict=True)
        ]
        print(f"| `{report.config.name}` | {part.name} | {' | '.join(cells)} |")


def print_units(report: AreaReport) -> None:
    """Print a row per unit of a configuration, the largest first."""
    (core,) = (unit for unit in report.top.units if unit.name == "core")
    others = [unit for unit in report.top.units if unit is not core]
    print(f"\nUnits of `{report.config.name}`:\n")
    print("| unit | LUT | registers | DSP | block RAM |")
    print("|---|---|---|---|---|")
    for unit in sorted([*core.units, *others], key=lambda unit: -unit.area.luts):
        area = unit.area
        name = unit.name if unit.number == 1 else f"{unit.name} ({unit.number})"
        print(
            f"| {name} | {area.luts:,} | {area.registers:,} | {area.multipliers}"
            f" | {area.block_rams:g} |"
        )


def print_clocks() -> None:
    """Print the clock of the small configurations for several starting points, and the path."""
    print(f"\n{PART.name}:\n")
    print("| preset | seed | MHz | longest path |")
    print("|---|---|---|---|")
    for config in PLACED:
        reports = [measure_timing(config, seed=seed) for seed in SEEDS]
        for report in reports:
            print(
                f"| `{config.name}` | {report.seed} | {report.mhz:.1f}"
                f" | {report.levels} levels, {report.begin} to {report.end} |"
            )
        clocks = [report.mhz for report in reports]
        print(f"| | least, median | {min(clocks):.1f}, {statistics.median(clocks):.1f} | |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-clock", action="store_true", help="do not place and route")
    arguments = parser.parse_args()
    reports = [measure_area(config, target) for config, target in MEASURED]
    print_areas(reports)
    for report in reports:
        print_units(report)
    if not arguments.no_clock:
        print_clocks()


if __name__ == "__main__":
    main()
