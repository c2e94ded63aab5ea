"""``tilewright isa``: the reference page of the instruction set for one configuration."""

import argparse

from tilewright.commands.command import Command, Outcome
from tilewright.isa.reference import reference_page
from tilewright.options import add_config, check_outputs, chosen_config
from tilewright.terminal import Terminal


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)


def _execute(arguments: argparse.Namespace, terminal: Terminal) -> Outcome:
    check_outputs(arguments.json)
    config = chosen_config(arguments)
    page = reference_page(config)
    terminal.result(page)
    return Outcome(record={"config": config.name, "page": page})


COMMAND = Command(
    name="isa",
    summary="print the reference page of the instruction set",
    add_arguments=_add_arguments,
    execute=_execute,
)
