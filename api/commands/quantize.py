"""``tilewright quantize``: a float model and samples to an int8 model, and what that costs."""

import argparse
import math
import zipfile
from pathlib import Path

import numpy as np

from tilewright.commands.command import Command, Outcome
from tilewright.compiler.graph import Array
from tilewright.compiler.quantisation.calibration import Method
from tilewright.compiler.quantisation.report import QuantisationReport
from tilewright.isa.errors import InputError
from tilewright.options import check_outputs
from tilewright.runtime.model import Model, load
from tilewright.runtime.quantisation import QuantizedModel, quantize
from tilewright.runtime.tables import Table
from tilewright.terminal import Terminal

#: The array of a samples file that holds the classes, where the network has no such input.
LABELS = "labels"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", type=Path, help=".onnx or .tflite file in floating point"
    )
    parser.add_argument(
        "--samples",
        metavar="FILE.npz",
        type=Path,
        required=True,
        help=(
            "an array per input, samples along the first axis, preprocessed as for the float model;"
            f" an array {LABELS!r} of classes adds the accuracy to the report"
        ),
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.onnx",
        type=Path,
        help="where to write the int8 model, as ONNX in QDQ form",
    )
    parser.add_argument(
        "--method",
        choices=[method.value for method in Method],
        default=Method.PERCENTILE.value,
        help="how ranges of activations follow from the samples (default: %(default)s)",
    )
    parser.add_argument(
        "--percentile",
        metavar="P",
        type=float,
        default=99.99,
        help="share of the values that method percentile covers (default: %(default)s)",
    )
    parser.add_argument(
        "--no-bias-correction",
        action="store_true",
        help="leave the biases as they are, whatever rounding the weights changes on average",
    )
    parser.add_argument(
        "--exclude",
        metavar="NODE",
        action="append",
        default=[],
        help="leave a node in floating point; may be given several times",
    )


def _execute(arguments: argparse.Namespace, terminal: Terminal) -> Outcome:
    check_outputs(arguments.json, arguments.output)
    with terminal.stage(f"reading {arguments.model.name}"):
        model = load(arguments.model)
    for note in model.notes:
        terminal.message(f"note: {note}")
    samples, labels = _read_samples(arguments.samples, model)
    with terminal.stage("quantising"):
        quantized = quantize(
            model,
            samples,
            labels=labels,
            method=arguments.method,
            percentile=arguments.percentile,
            bias_correction=not arguments.no_bias_correction,
            exclude=arguments.exclude,
            progress=terminal.detail,
        )
    if arguments.output:
        quantized.save_onnx(arguments.output)
    _show(quantized.report, terminal)
    return Outcome(record=_record(arguments, quantized))


def _read_samples(path: Path, model: Model) -> tuple[dict[str, Array], Array | None]:
    """Return the samples by input, and the labels; a sole array is for the only input."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise InputError(f"samples file {path} is not an .npz archive")
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"samples file {path} cannot be read: {_reason(error)}") from error
    names = {tensor.name for tensor in model.inputs}
    labels = arrays.pop(LABELS) if LABELS not in names and LABELS in arrays else None
    if len(names) == len(arrays) == 1:
        return dict(zip(names, arrays.values(), strict=True)), labels
    return arrays, labels


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "it is damaged or not an .npz archive"


def _show(report: QuantisationReport, terminal: Terminal) -> None:
    terminal.table(
        Table(
            columns=("layer", "tensor", "scale", "zero point", "SQNR dB"),
            numbers=("scale", "zero point", "SQNR dB"),
            rows=tuple(
                (
                    layer.layer,
                    layer.tensor,
                    f"{layer.scale:.6g}",
                    str(layer.zero_point),
                    f"{layer.sqnr_db:.1f}",
                )
                for layer in report.layers
            ),
        )
    )
    terminal.result()
    for name, ratio in report.outputs.items():
        terminal.result(f"output {name}: signal to quantisation noise {ratio:.1f} dB")
    for label in report.real_nodes:
        terminal.result(f"stays in floating point: {label}")
    if report.accuracy is not None:
        found = report.accuracy
        terminal.result(
            f"accuracy on {found.samples} samples: {found.float_share:.2%} in floating point,"
            f" {found.quantised_share:.2%} in int8"
        )


def _record(arguments: argparse.Namespace, quantized: QuantizedModel) -> dict[str, object]:
    report = quantized.report
    found = report.accuracy
    return {
        "model": str(arguments.model),
        "output": str(arguments.output) if arguments.output else None,
        "method": arguments.method,
        "layers": [
            {
                "layer": layer.layer,
                "tensor": layer.tensor,
                "scale": layer.scale,
                "zero_point": layer.zero_point,
                "sqnr_db": _finite(layer.sqnr_db),
            }
            for layer in report.layers
        ],
        "outputs": {name: _finite(ratio) for name, ratio in report.outputs.items()},
        "real_nodes": list(report.real_nodes),
        "accuracy": None
        if found is None
        else {
            "samples": found.samples,
            "float": found.float_share,
            "int8": found.quantised_share,
        },
    }


def _finite(value: float) -> float | None:
    """Return a number as JSON has it: nothing stands for an infinite one."""
    return value if math.isfinite(value) else None


COMMAND = Command(
    name="quantize",
    summary="quantise a float model to int8",
    add_arguments=_add_arguments,
    execute=_execute,
)
