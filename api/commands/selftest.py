"""``tilewright selftest``: whether a device works, and how fast its memory is."""

import argparse
from typing import Any

from tilewright.commands.command import Command, Outcome
from tilewright.isa.config_record import config_to_record
from tilewright.options import add_config, check_outputs, chosen_config
from tilewright.runtime.devices import Device
from tilewright.runtime.selftest import selftest
from tilewright.runtime.selftest_report import SelfTestReport
from tilewright.terminal import Terminal


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        metavar="DEV",
        default=Device.SIM.value,
        help="sim, rtl, pynq on a board, ulx3s:PORT, or tcp://HOST:PORT (default: %(default)s)",
    )
    add_config(parser, default="the device's own, or tiny")


def _execute(arguments: argparse.Namespace, terminal: Terminal) -> Outcome:
    check_outputs(arguments.json)
    asked = arguments.config or arguments.changes
    config = chosen_config(arguments) if asked else None
    with terminal.stage(f"testing {arguments.device}"):
        report = selftest(arguments.device, config=config, progress=terminal.detail)
    terminal.result(f"{report.description}, configuration {report.config.name}")
    for table in report.tables:
        if table.rows:
            terminal.result()
            terminal.table(table)
    terminal.result()
    for line in report.advice:
        terminal.result(line)
    return Outcome(record=_record(arguments.device, report), status=0 if report.passed else 1)


def _record(device: str, report: SelfTestReport) -> dict[str, Any]:
    return {
        "device": device,
        "description": report.description,
        "config": report.config.name,
        "configuration": config_to_record(report.config),
        "passed": report.passed,
        "checks": [
            {"name": check.name, "result": check.verdict.value, "detail": check.detail}
            for check in report.checks
        ],
        "measurements": [
            {"name": item.name, "unit": item.unit, "measured": item.measured, "model": item.model}
            for item in report.measurements
        ],
        "changes": [
            {
                "field": change.field,
                "now": change.now,
                "fitting": change.fitting,
                "needs_bitstream": change.needs_bitstream,
            }
            for change in report.changes
        ],
    }


COMMAND = Command(
    name="selftest",
    summary="test a device, and measure its memory against the timing model",
    add_arguments=_add_arguments,
    execute=_execute,
)
