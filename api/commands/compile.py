"""``tilewright compile``: a model or a program in assembly text to one file, and its sizes."""

import argparse
from collections import Counter
from pathlib import Path

from tilewright.commands.command import Command, Outcome
from tilewright.compiler.compiled import HostStep, Placement
from tilewright.compiler.lowering.listing import list_layer
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_to_record
from tilewright.isa.errors import InputError
from tilewright.isa.program import Program
from tilewright.options import (
    add_arithmetic,
    add_config,
    add_model,
    check_outputs,
    load_or_compile,
    load_program_file,
)
from tilewright.presentation import placement_records, placement_table
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.devices import Device
from tilewright.runtime.files import write_atomically
from tilewright.runtime.program_run import is_program
from tilewright.runtime.tuning import Tuning, tuned_choices
from tilewright.terminal import Terminal


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser, programs=True)
    add_config(parser, compiled=True)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="where to save the compiled model (.tw), or the program (.twp) of assembly text",
    )
    parser.add_argument(
        "--library",
        metavar="FILE.o|FILE.so",
        type=Path,
        help="compile the network for a processor: objects or a shared library, and a C header",
    )
    parser.add_argument(
        "--processor",
        metavar="NAME",
        help="of the library: host (the default), x86-64-v3, cortex-a53 or cortex-a9; without one,"
        " of the board: host steps of -o m.tw are compiled for its cortex-a9 or cortex-a53",
    )
    add_arithmetic(parser)
    parser.add_argument(
        "--layer",
        metavar="NAME",
        help="print one layer instead: tensor expression, schedule, loop nest, instructions",
    )


def _execute(arguments: argparse.Namespace, terminal: Terminal) -> Outcome:
    check_outputs(arguments.json, arguments.output, arguments.library)
    _check_options(arguments)
    if is_program(arguments.model):
        if arguments.layer:
            raise InputError("--layer is for models, a program has no tensor expressions")
        program = load_program_file(arguments)
        if arguments.output:
            write_atomically(arguments.output, program.to_bytes())
        return _show(arguments, program.config, (program,), (), terminal)
    only_library = arguments.library is not None and arguments.output is None
    compiled = load_or_compile(arguments, terminal, Device.CPU.value if only_library else None)
    if arguments.output:
        if arguments.processor and not arguments.library:
            compiled = _with_host_code(compiled, arguments.processor, terminal)
        compiled.save(arguments.output)
    if arguments.library:
        _save_library(compiled, arguments, terminal)
    if arguments.layer:
        config = compiled.config
        choices = tuned_choices(Tuning.CACHED, config)
        text = list_layer(compiled.graph, config, arguments.layer, choices=choices)
        terminal.result(text)
        return Outcome(record={"model": str(arguments.model), "listing": text})
    return _show(arguments, compiled.config, compiled.programs, compiled.placement, terminal)


def _check_options(arguments: argparse.Namespace) -> None:
    if (arguments.half or arguments.direct) and not arguments.library:
        raise InputError("--half and --direct are for --library: a .tw file is for every device")
    if arguments.processor and not (arguments.library or arguments.output):
        raise InputError("--processor is for --library, or for host steps in -o FILE.tw")
    if is_program(arguments.model) and (arguments.library or arguments.processor):
        raise InputError("a program for the accelerator does not run on a processor")


def _with_host_code(compiled: CompiledModel, processor: str, terminal: Terminal) -> CompiledModel:
    with terminal.stage(f"compiling host steps for {processor}"):
        result = compiled.with_host_code(processor)
    coded = result.libraries.node_names
    steps = (step for step in compiled.compiled.steps if isinstance(step, HostStep))
    others = [node.label for step in steps for node in step.nodes if node.name not in coded]
    terminal.message(f"machine code for {processor}: {len(coded)} operators of the host")
    if others:
        terminal.message(f"in numpy there, for the same bits: {', '.join(others)}")
    return result


def _save_library(
    compiled: CompiledModel, arguments: argparse.Namespace, terminal: Terminal
) -> None:
    processor = arguments.processor or "host"
    with terminal.stage(f"compiling for {processor}"):
        files = compiled.save_library(
            arguments.library, processor, half=arguments.half, direct=arguments.direct
        )
    for file in files:
        terminal.message(f"wrote {file}")


def _show(
    arguments: argparse.Namespace,
    config: AcceleratorConfig,
    programs: tuple[Program, ...],
    placement: tuple[Placement, ...],
    terminal: Terminal,
) -> Outcome:
    terminal.result(f"{arguments.model} for configuration {config.name}")
    for line in _size_lines(programs):
        terminal.result(line)
    if placement:
        terminal.result()
        terminal.table(placement_table(placement))
    return Outcome(
        record={
            "model": str(arguments.model),
            "config": config.name,
            "configuration": config_to_record(config),
            "output": str(arguments.output) if arguments.output else None,
            "programs": [_record(program) for program in programs],
            "placement": placement_records(placement),
        }
    )


def _record(program: Program) -> dict[str, object]:
    return {
        "instructions": len(program.instructions),
        "code_bytes": program.code_bytes,
        "constant_bytes": _constant_bytes(program),
        "dram_bytes": program.dram_bytes,
    }


def _size_lines(programs: tuple[Program, ...]) -> list[str]:
    lines = []
    for program in programs:
        kinds = Counter(type(instruction).__name__ for instruction in program.instructions)
        counts = ", ".join(f"{count:,} {kind.lower()}" for kind, count in kinds.most_common())
        lines += [
            f"program       {len(program.instructions):,} instructions ({counts})",
            f"code          {program.code_bytes:,} bytes",
            f"constants     {_constant_bytes(program):,} bytes",
            f"peak DRAM     {program.dram_bytes:,} bytes, code and constants included",
        ]
    return lines or ["no operator runs on the accelerator"]


def _constant_bytes(program: Program) -> int:
    return sum(len(item.data) for item in program.constants)


COMMAND = Command(
    name="compile",
    summary="compile a model, or assemble a program, and say what runs where",
    add_arguments=_add_arguments,
    execute=_execute,
)
