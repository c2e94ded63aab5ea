"""``tilewright compare``: one model on several devices, outputs and times side by side."""

import argparse

from tilewright.commands.command import Command, Outcome
from tilewright.options import (
    add_config,
    add_inputs,
    add_model,
    check_outputs,
    chosen_inputs,
    load_or_compile,
)
from tilewright.presentation import difference_record, output_records, stats_record
from tilewright.runtime.comparison import DeviceRun, compare
from tilewright.runtime.devices import Device, parse_device
from tilewright.terminal import Terminal


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_inputs(parser)
    add_config(parser, compiled=True)
    parser.add_argument(
        "--devices",
        metavar="DEV,DEV",
        default=f"{Device.SIM.value},{Device.REFERENCE.value}",
        help="names separated by commas (default: %(default)s)",
    )
    parser.add_argument(
        "--layers", action="store_true", help="compare the result and the time of each layer, too"
    )


def _execute(arguments: argparse.Namespace, terminal: Terminal) -> Outcome:
    devices = [name.strip() for name in arguments.devices.split(",") if name.strip()]
    for name in devices:
        parse_device(name)
    check_outputs(arguments.json)
    compiled = load_or_compile(arguments, terminal)
    inputs = chosen_inputs(arguments, compiled.graph, terminal)
    with terminal.stage("running") as progress:
        comparison = compare(compiled, inputs, devices, layers=arguments.layers, progress=progress)
    terminal.table(comparison.table)
    terminal.result()
    if arguments.layers:
        terminal.table(comparison.layer_table)
        terminal.result()
    for failure in comparison.failures:
        terminal.error(failure.error)
    if comparison.failures:
        failed = ", ".join(failure.device.value for failure in comparison.failures)
        terminal.result(f"not every device could run the model: {failed} failed")
    elif comparison.equal:
        terminal.result("all devices yield the same bits")
    elif comparison.agrees:
        terminal.result("all devices agree, apart from the rounding of real numbers")
    else:
        terminal.result("a device differs from the integer graph")
    return Outcome(
        record={
            "model": str(arguments.model),
            "config": compiled.config.name,
            "equal": comparison.equal,
            "runs": [_record(run) for run in comparison.runs],
            "failures": {
                failure.device.value: str(failure.error) for failure in comparison.failures
            },
        },
        status=0 if comparison.agrees else 1,
    )


def _record(run: DeviceRun) -> dict[str, object]:
    record: dict[str, object] = {
        "device": run.device.value,
        "equal": run.equal,
        "differences": {
            name: {
                "differing": difference.differing,
                "elements": difference.elements,
                "maximum": difference.maximum,
            }
            for name, difference in run.differences
        },
        "outputs": output_records(run.result.outputs),
        "wall_seconds": run.result.wall_seconds,
    }
    if run.layers:
        record["compared_layers"] = [
            {**difference_record(layer.difference), "milliseconds": layer.milliseconds}
            for layer in run.layers
        ]
    if run.joules is not None:
        record["joules"] = run.joules
    if run.result.timelines:
        record |= stats_record(run.result.stats)
    return record


COMMAND = Command(
    name="compare",
    summary="run a model on several devices, side by side",
    add_arguments=_add_arguments,
    execute=_execute,
)
