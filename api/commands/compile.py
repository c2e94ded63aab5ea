"""``tilewright compile``: a model file to a compiled model, with its placement and sizes."""

import argparse
from collections import Counter
from pathlib import Path

from tilewright.commands.command import Command, Outcome
from tilewright.isa.config_record import config_to_record
from tilewright.options import add_config, add_model, check_outputs, load_or_compile
from tilewright.presentation import placement_records, placement_table
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.terminal import Terminal


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_config(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE.tw", type=Path, help="where to save the compiled model"
    )


def _execute(arguments: argparse.Namespace, terminal: Terminal) -> Outcome:
    check_outputs(arguments.output, arguments.json)
    compiled = load_or_compile(arguments, terminal)
    if arguments.output:
        compiled.save(arguments.output)
    terminal.result(f"{arguments.model} for configuration {compiled.config.name}")
    for line in _size_lines(compiled):
        terminal.result(line)
    terminal.result()
    terminal.table(placement_table(compiled.placement))
    return Outcome(
        record={
            "model": str(arguments.model),
            "config": compiled.config.name,
            "configuration": config_to_record(compiled.config),
            "output": str(arguments.output) if arguments.output else None,
            "programs": [
                {
                    "instructions": len(program.instructions),
                    "code_bytes": program.code_bytes,
                    "constant_bytes": sum(len(item.data) for item in program.constants),
                    "dram_bytes": program.dram_bytes,
                }
                for program in compiled.programs
            ],
            "placement": placement_records(compiled.placement),
        }
    )


def _size_lines(compiled: CompiledModel) -> list[str]:
    lines = []
    for program in compiled.programs:
        kinds = Counter(type(instruction).__name__ for instruction in program.instructions)
        counts = ", ".join(f"{count:,} {kind.lower()}" for kind, count in kinds.most_common())
        constants = sum(len(item.data) for item in program.constants)
        lines += [
            f"program       {len(program.instructions):,} instructions ({counts})",
            f"code          {program.code_bytes:,} bytes",
            f"constants     {constants:,} bytes",
            f"peak DRAM     {program.dram_bytes:,} bytes, code and constants included",
        ]
    return lines or ["no operator runs on the accelerator"]


COMMAND = Command(
    name="compile",
    summary="compile a model and say what runs where",
    add_arguments=_add_arguments,
    execute=_execute,
)
