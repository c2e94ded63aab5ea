"""``tilewright demo``: a trained network classifies a handwritten digit on the accelerator."""

import argparse

import numpy as np

from tilewright import demo
from tilewright.commands.command import Command, Outcome
from tilewright.compiler.compiled import Target
from tilewright.compiler.graph import Array
from tilewright.options import add_config, check_outputs, chosen_config, load_and_compile
from tilewright.presentation import (
    engine_table,
    layer_table,
    placement_records,
    placement_table,
    stats_lines,
    stats_record,
)
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.result import RunResult
from tilewright.terminal import Terminal

#: How many labelled images there are.
MAX_IMAGES = 40

#: Characters from empty to full.
_SHADES = " ░▒▓█"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--images",
        metavar="N",
        type=_image_count,
        default=4,
        help=f"how many images to classify, 1 to {MAX_IMAGES} (default: %(default)s)",
    )


def _execute(arguments: argparse.Namespace, terminal: Terminal) -> Outcome:
    check_outputs(arguments.json)
    config = chosen_config(arguments)
    samples = demo.load_samples()
    compiled = load_and_compile(demo.MODEL_PATH, config, terminal)
    images, labels = samples.images[: arguments.images], samples.labels[: arguments.images]
    results = []
    with terminal.stage("simulating") as progress:
        for index, image in enumerate(images):
            results.append(compiled.run(image[None]))
            progress(index + 1, len(images))
    classes = [_class(result) for result in results]
    terminal.result(f"A network of int8 weights reads {len(images)} handwritten digits on the")
    terminal.result(f"cycle-exact simulator of the accelerator, configuration {config.name}:")
    terminal.result()
    for line in _pictures(images):
        terminal.result(line)
    for label, found in zip(labels.tolist(), classes, strict=True):
        verdict = "right" if found == label else "wrong"
        terminal.result(f"label {label}, network says {found}: {verdict}")
    _print_run(compiled, results[0], terminal)
    return Outcome(record=_record(compiled, results, classes, labels.tolist()))


def _image_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_IMAGES:
        raise argparse.ArgumentTypeError(f"must be a number from 1 to {MAX_IMAGES}, not {text!r}")
    return int(text)


def _class(result: RunResult) -> int:
    (scores,) = result.outputs.values()
    return int(np.argmax(scores))


def _pictures(images: Array) -> list[str]:
    """Draw images ``[n, 1, height, width]`` of 0 to 1 side by side, two columns per pixel."""
    levels = np.rint(images[:, 0] * (len(_SHADES) - 1)).astype(int)
    rows = np.concatenate(list(levels), axis=1)[::2]
    return ["".join(_SHADES[level] for level in row).rstrip() for row in rows]


def _print_run(compiled: CompiledModel, result: RunResult, terminal: Terminal) -> None:
    stats = result.stats
    terminal.result()
    for line in stats_lines(stats):
        terminal.result(line)
    terminal.result()
    terminal.table(layer_table(stats))
    terminal.result()
    terminal.table(engine_table(stats))
    terminal.result()
    terminal.table(placement_table(compiled.placement))


def _record(
    compiled: CompiledModel, results: list[RunResult], classes: list[int], labels: list[int]
) -> dict[str, object]:
    return {
        "config": compiled.config.name,
        "images": [
            {"label": label, "class": found} for label, found in zip(labels, classes, strict=True)
        ],
        **stats_record(results[0].stats),
        "on_accelerator": sum(item.target is Target.ACCELERATOR for item in compiled.placement),
        "placement": placement_records(compiled.placement),
        "wall_seconds": sum(result.wall_seconds for result in results),
    }


COMMAND = Command(
    name="demo",
    summary="classify handwritten digits on the simulated accelerator",
    add_arguments=_add_arguments,
    execute=_execute,
)
