"""``tilewright diff``: the simulator against the integer graph, layer by layer."""

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
from tilewright.presentation import difference_record
from tilewright.runtime.difference import LayerDifference, diff
from tilewright.runtime.tables import Table
from tilewright.terminal import Terminal


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_inputs(parser)
    add_config(parser, compiled=True)


def _execute(arguments: argparse.Namespace, terminal: Terminal) -> Outcome:
    check_outputs(arguments.json)
    compiled = load_or_compile(arguments, terminal)
    inputs = chosen_inputs(arguments, compiled.graph, terminal)
    with terminal.stage("comparing") as progress:
        layers = diff(compiled, inputs, progress=progress)
    terminal.table(_table(layers))
    differing = [layer for layer in layers if layer.difference.differing]
    terminal.result()
    terminal.result(
        f"{len(differing)} of {len(layers)} tensors differ, the first is {differing[0].tensor}"
        if differing
        else f"all {len(layers)} tensors are equal"
    )
    return Outcome(
        record={
            "model": str(arguments.model),
            "config": compiled.config.name,
            "equal": not differing,
            "layers": [difference_record(layer) for layer in layers],
        },
        status=1 if differing else 0,
    )


def _table(layers: tuple[LayerDifference, ...]) -> Table:
    return Table(
        columns=("layer", "operator", "elements", "differ", "at most by"),
        numbers=("elements", "differ", "at most by"),
        rows=tuple(
            (
                layer.layer,
                layer.op,
                f"{layer.difference.elements:,}",
                f"{layer.difference.share:.2%}" if layer.difference.differing else "0",
                f"{layer.difference.maximum:g}",
            )
            for layer in layers
        ),
    )


COMMAND = Command(
    name="diff",
    summary="compare simulator and integer graph layer by layer",
    add_arguments=_add_arguments,
    execute=_execute,
)
