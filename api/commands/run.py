"""``tilewright run``: one inference on a device, its result, its cycles and where they went."""

import argparse
import time
from pathlib import Path
from typing import Any

from tilewright.commands.command import Command, Outcome
from tilewright.isa.config_record import config_to_record
from tilewright.isa.errors import InputError
from tilewright.options import (
    add_config,
    add_inputs,
    add_model,
    check_outputs,
    chosen_inputs,
    load_or_compile,
)
from tilewright.presentation import (
    layer_table,
    output_lines,
    output_records,
    stats_lines,
    stats_record,
)
from tilewright.runtime.devices import Device, parse_device
from tilewright.terminal import Terminal


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_inputs(parser)
    add_config(parser)
    parser.add_argument(
        "--device",
        metavar="DEV",
        default=Device.SIM.value,
        help=f"{' or '.join(device.value for device in Device)} (default: %(default)s)",
    )
    parser.add_argument("--report", metavar="FILE.html", type=Path, help="write a page of the run")
    parser.add_argument(
        "--trace", metavar="FILE.json", type=Path, help="write a trace for Perfetto"
    )


def _execute(arguments: argparse.Namespace, terminal: Terminal) -> Outcome:
    start = time.perf_counter()
    device = parse_device(arguments.device)
    if device is Device.REFERENCE and (arguments.report or arguments.trace):
        raise InputError(
            f"device {device.value!r} counts no cycles: there is nothing to report or to trace"
        )
    check_outputs(arguments.report, arguments.trace, arguments.json)
    compiled = load_or_compile(arguments, terminal)
    inputs = chosen_inputs(arguments, compiled.graph, terminal)
    with terminal.stage(f"running on {device.value}") as progress:
        result = compiled.run(inputs, device.value, progress=progress)
    if arguments.report:
        result.save_report(arguments.report)
    if arguments.trace:
        result.save_trace(arguments.trace)
    record: dict[str, Any] = {
        "device": device.value,
        "config": compiled.config.name,
        "configuration": config_to_record(compiled.config),
        "model": str(arguments.model),
        "input": "files" if arguments.inputs else {"random": arguments.seed},
    }
    terminal.result(f"{arguments.model} on {device.value}, configuration {compiled.config.name}")
    if device is Device.SIM:
        stats = result.stats
        record |= stats_record(stats)
        for line in stats_lines(stats):
            terminal.result(line)
        terminal.result()
        terminal.table(layer_table(stats))
    terminal.result()
    for line in output_lines(result.outputs):
        terminal.result(line)
    record["outputs"] = output_records(result.outputs)
    record["wall_seconds"] = time.perf_counter() - start
    return Outcome(record=record)


COMMAND = Command(
    name="run",
    summary="run a model once and say where the cycles went",
    add_arguments=_add_arguments,
    execute=_execute,
)
