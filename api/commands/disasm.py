"""``tilewright disasm``: the assembly text of a compiled model or of a program file."""

import argparse
from pathlib import Path

from tilewright.commands.command import Command, Outcome
from tilewright.isa.assembly import disassemble
from tilewright.options import check_outputs
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.model_file import has_signature
from tilewright.runtime.program_run import read_program
from tilewright.terminal import Terminal


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        help="compiled .tw file, program file or assembly text (.s)",
    )


def _execute(arguments: argparse.Namespace, terminal: Terminal) -> Outcome:
    check_outputs(arguments.json)
    if has_signature(arguments.file):
        programs = CompiledModel.load(arguments.file).programs
    else:
        programs = (read_program(arguments.file),)
    texts = [disassemble(program) for program in programs]
    for text in texts:
        terminal.result(text.removesuffix("\n"))
    return Outcome(record={"file": str(arguments.file), "programs": texts})


COMMAND = Command(
    name="disasm",
    summary="print the instructions of a compiled model",
    add_arguments=_add_arguments,
    execute=_execute,
)
