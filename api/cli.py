"""The command line: parses arguments, runs one command, and turns errors into exit statuses."""

import argparse
import io
import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tilewright import __version__
from tilewright.commands.command import Command
from tilewright.isa.errors import InputError, TilewrightError
from tilewright.terminal import Terminal, one_line

#: Exit statuses besides 0; 130 is the shell's convention for an interrupt.
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise InputError(message, hint=f"see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0, 2 for wrong usage or input, 1 for failure."""
    _open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the stream cannot hold shall not end the command.
            stream.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if argv is None else list(argv)
    terminal = Terminal()
    try:
        status = _run(words)
        sys.stdout.flush()
        return status
    except TilewrightError as error:
        terminal.error(error)
        return EXIT_USAGE
    except KeyboardInterrupt:
        terminal.message("tilewright: interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader has gone; nothing more may be written, not even at the interpreter's exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
    except MemoryError:
        terminal.message("tilewright: not enough memory")
        return EXIT_FAILURE
    except OSError as error:
        # Files are written through `write_atomically`, whose errors are of tilewright.
        where = error.filename or "the standard output"
        terminal.message(f"tilewright: cannot use {where}: {error.strerror or error}")
        return EXIT_FAILURE
    except Exception as error:  # noqa: BLE001 - the last resort: a defect of ours, never of the user
        if {"-v", "--verbose"} & set(words):
            terminal.message(traceback.format_exc())
        terminal.message(
            f"tilewright: internal error: {type(error).__name__}: {one_line(str(error))}"
        )
        terminal.message("hint: this is a defect of tilewright; -v shows where it happened")
        return EXIT_FAILURE


def _open_missing_streams() -> None:
    """Let a stream that the caller has closed swallow what is written to it."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")


def _run(words: Sequence[str]) -> int:
    # Imported late: it takes a while, and whoever interrupts it shall not see a traceback.
    from tilewright.list_options import split_lists
    from tilewright.options import STANDARD_OUTPUT
    from tilewright.runtime.files import write_atomically

    arguments = _parser().parse_args(split_lists(words))
    command: Command = arguments.command
    to_stdout = arguments.json == STANDARD_OUTPUT
    outcome = command.execute(arguments, Terminal(verbose=arguments.verbose, quiet=to_stdout))
    text = f"{json.dumps(outcome.record, indent=2, allow_nan=False)}\n"
    if to_stdout:
        sys.stdout.write(text)
    elif arguments.json:
        write_atomically(arguments.json, text.encode())
    return outcome.status


def _commands() -> tuple[Command, ...]:
    # Imported late, as in `_run`.
    from tilewright.commands import (
        area,
        build,
        compare,
        compile,
        demo,
        diff,
        disasm,
        explore,
        isa,
        quantize,
        run,
        selftest,
        serve,
        tune,
    )

    modules = (
        *(run, compile, quantize, compare, diff, tune, explore, disasm),
        *(isa, build, area, selftest, serve, demo),
    )
    return tuple(module.COMMAND for module in modules)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tilewright",
        description="Runs neural networks on a configurable FPGA accelerator.",
    )
    parser.add_argument("--version", action="version", version=f"tilewright {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in _commands():
        sub = commands.add_parser(
            command.name, help=command.summary, description=f"{command.summary.capitalize()}."
        )
        command.add_arguments(sub)
        sub.add_argument(
            "--json",
            metavar="FILE",
            type=Path,
            help="write the full result as JSON (-: to stdout, in place of the text)",
        )
        sub.add_argument("-v", "--verbose", action="store_true", help="say what takes how long")
        sub.set_defaults(command=command)
    return parser
