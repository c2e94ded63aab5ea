"""``tilewright build``: a bitstream for a board, or everything that its tool needs to make one."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.boards.board import Board
from tilewright.boards.catalogue import BOARDS, PYNQ_OPEN, parse_board
from tilewright.boards.parts import least_use
from tilewright.boards.toolchains import Toolchain, choose_toolchain
from tilewright.commands.command import Command, Outcome
from tilewright.config_file import change_config, parse_config
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.config_record import config_digest, config_to_record
from tilewright.options import add_config, check_outputs
from tilewright.terminal import Terminal

if TYPE_CHECKING:
    from tilewright.boards.project import Project


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--board", metavar="NAME", required=True, help=f"one of {', '.join(BOARDS)}"
    )
    add_config(parser)
    parser.add_argument(
        "--toolchain",
        metavar="NAME",
        help=f"{' or '.join(item.value for item in Toolchain)} (default: the board's first)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="write the project, do not run the tool"
    )
    parser.add_argument(
        "-o", "--output", metavar="DIR", type=Path, required=True, help="folder of the project"
    )


def _execute(arguments: argparse.Namespace, terminal: Terminal) -> Outcome:
    # Amaranth is loaded by this command alone.
    from tilewright.boards.project import make_project

    check_outputs(arguments.json)
    board = parse_board(arguments.board)
    toolchain = choose_toolchain(board, arguments.toolchain)
    config = _config(arguments, board, toolchain)
    with terminal.stage(f"writing {arguments.output}"):
        project = make_project(board, config, toolchain)
        project.write(arguments.output)
    built = not arguments.dry_run and not project.missing_tools
    if built:
        with terminal.stage(f"running {project.command[0]}"):
            project.run(arguments.output)
    _print(project, arguments.output, built, terminal)
    return Outcome(
        record={
            "board": board.name,
            "part": board.part.name,
            "config": config.name,
            "configuration": config_to_record(config),
            "digest": config_digest(config),
            "toolchain": toolchain.value,
            "output": str(arguments.output),
            "files": sorted(project.files),
            "command": list(project.command),
            "missing_tools": list(project.missing_tools),
            "routed_mhz": project.routed_mhz(arguments.output) if built else None,
            "bitstream": str(arguments.output / project.bitstream) if built else None,
        }
    )


def _config(arguments: argparse.Namespace, board: Board, toolchain: Toolchain) -> AcceleratorConfig:
    """Return what was asked for, or what suits board and toolchain."""
    if arguments.config == PYNQ_OPEN.name:
        base = PYNQ_OPEN
    elif arguments.config:
        base = parse_config(arguments.config)
    else:
        base = PYNQ_OPEN if toolchain is Toolchain.OPENXC7 else board.config
    return change_config(base, arguments.changes)


def _print(project: "Project", folder: Path, built: bool, terminal: Terminal) -> None:
    board, config = project.board, project.config
    use = least_use(config, board.part)
    terminal.result(f"{config.name} for {board.title} ({board.part.name})")
    terminal.result(f"digest        {config_digest(config)[:32]}")
    terminal.result(f"clock         {config.clock_mhz:g} MHz")
    terminal.result(f"scratchpads   {use.block_rams} of {board.part.block_rams} block RAMs")
    if built:
        routed = project.routed_mhz(folder)
        if routed is not None:
            terminal.result(f"routed        {routed:.1f} MHz")
        terminal.result(f"bitstream     {folder / project.bitstream}")
        return
    terminal.result(f"project       {folder}: {', '.join(sorted(project.files))}")
    run = f"cd {folder} && {' '.join(project.command)}"
    if project.missing_tools:
        missing = ", ".join(project.missing_tools)
        terminal.message(f"no bitstream: {missing} is not on the path; where it is, run: {run}")
    else:
        terminal.message(f"no bitstream was asked for; to make it, run: {run}")


COMMAND = Command(
    name="build",
    summary="build a bitstream for a board",
    add_arguments=_add_arguments,
    execute=_execute,
)
