"""``tilewright run``: one inference on a device, its result, its cycles and where they went."""

import argparse
import time
from pathlib import Path
from typing import Any

from tilewright.commands.command import Command, Outcome
from tilewright.compiler.graph import Tensor
from tilewright.compiler.operators import DataType
from tilewright.input_files import read_inputs
from tilewright.isa.config_record import config_to_record
from tilewright.isa.errors import InputError
from tilewright.options import (
    add_arithmetic,
    add_config,
    add_inputs,
    add_model,
    add_outputs,
    add_threads,
    check_outputs,
    chosen_inputs,
    chosen_threads,
    load_or_compile,
    load_program_file,
)
from tilewright.output_files import choose_outputs, output_path, save_outputs
from tilewright.presentation import (
    engine_table,
    layer_table,
    output_lines,
    output_records,
    stats_lines,
    stats_record,
)
from tilewright.runtime.devices import AnyDevice, Device, counts_cycles, parse_device
from tilewright.runtime.program_run import (
    is_program,
    random_buffers,
    run_program,
)
from tilewright.runtime.result import RunResult
from tilewright.terminal import Terminal


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser, programs=True)
    add_inputs(parser)
    add_outputs(parser)
    add_config(parser, compiled=True)
    parser.add_argument(
        "--device",
        metavar="DEV",
        default=Device.SIM.value,
        help="sim, rtl, cpu, opencl, cuda, reference, pynq on a board, ulx3s:PORT,"
        " tcp://HOST:PORT, or several servers with commas (default: %(default)s)",
    )
    add_threads(parser)
    add_arithmetic(parser)
    parser.add_argument("--report", metavar="FILE.html", type=Path, help="write a page of the run")
    parser.add_argument(
        "--trace", metavar="FILE.json", type=Path, help="write a trace for Perfetto"
    )
    parser.add_argument(
        "--vcd", metavar="FILE.vcd", type=Path, help="write the waveforms of device rtl"
    )


def _execute(arguments: argparse.Namespace, terminal: Terminal) -> Outcome:
    start = time.perf_counter()
    device = parse_device(arguments.device)
    if not counts_cycles(device) and (arguments.report or arguments.trace):
        raise InputError(
            f"device {device.value!r} counts no cycles: there is nothing to report or to trace"
        )
    threads = chosen_threads(arguments, device)
    files = map(output_path, arguments.outputs)
    check_outputs(arguments.json, arguments.report, arguments.trace, arguments.vcd, *files)
    if is_program(arguments.model):
        result = _run_program(arguments, device, terminal)
    else:
        result = _run_model(arguments, device, threads, terminal)
    save_outputs(result.outputs, choose_outputs(tuple(result.outputs), arguments.outputs))
    if arguments.report:
        result.save_report(arguments.report)
    if arguments.trace:
        result.save_trace(arguments.trace)
    _print(result, arguments.model, terminal)
    return Outcome(record=_record(result, arguments, time.perf_counter() - start))


def _run_model(
    arguments: argparse.Namespace, device: AnyDevice, threads: int, terminal: Terminal
) -> RunResult:
    compiled = load_or_compile(arguments, terminal, device.value)
    choose_outputs(compiled.graph.outputs, arguments.outputs)
    inputs = chosen_inputs(arguments, compiled.graph, terminal)
    with terminal.stage(f"running on {device.value}") as progress:
        return compiled.run(
            inputs,
            device.value,
            progress=progress,
            vcd=arguments.vcd,
            threads=threads,
            half=arguments.half,
            direct=arguments.direct,
        )


def _run_program(arguments: argparse.Namespace, device: AnyDevice, terminal: Terminal) -> RunResult:
    """Run a program without a model: assembly text or a program file."""
    if not counts_cycles(device):
        raise InputError(f"a program without a model does not run on {device.value}")
    program = load_program_file(arguments)
    choose_outputs([buffer.name for buffer in program.outputs], arguments.outputs)
    buffers = [
        Tensor(name=buffer.name, shape=(buffer.size_bytes,), dtype=DataType.UINT8)
        for buffer in program.inputs
    ]
    if arguments.inputs or not buffers:
        inputs = read_inputs(buffers, arguments.inputs)
    else:
        terminal.message(f"no --input: random bytes with seed {arguments.seed}")
        inputs = random_buffers(program, arguments.seed)
    with terminal.stage(f"running on {device.value}") as progress:
        return run_program(
            program,
            inputs,
            device=device,
            name=arguments.model.stem,
            progress=progress,
            vcd=arguments.vcd,
        )


def _print(result: RunResult, model: Path, terminal: Terminal) -> None:
    config = result.compiled.config.name
    terminal.result(f"{model} on {result.device.value}, configuration {config}")
    if counts_cycles(result.device):
        for line in stats_lines(result.stats):
            terminal.result(line)
        terminal.result()
        terminal.table(engine_table(result.stats))
        if result.stats.layers:
            terminal.result()
            terminal.table(layer_table(result.stats))
    terminal.result()
    for line in output_lines(result.outputs):
        terminal.result(line)


def _record(
    result: RunResult, arguments: argparse.Namespace, wall_seconds: float
) -> dict[str, Any]:
    record: dict[str, Any] = {
        "device": result.device.value,
        "config": result.compiled.config.name,
        "configuration": config_to_record(result.compiled.config),
        "model": str(arguments.model),
        "seed": None if arguments.inputs else arguments.seed,
    }
    if counts_cycles(result.device):
        record |= stats_record(result.stats)
    record["outputs"] = output_records(result.outputs)
    record["wall_seconds"] = wall_seconds
    return record


COMMAND = Command(
    name="run",
    summary="run a model once and say where the cycles went",
    add_arguments=_add_arguments,
    execute=_execute,
)
