"""Accuracy of float classifiers before and after quantisation, by calibration method.

    python benchmarks/quantisation.py [--models FOLDER] [--methods NAME,...] [NAME ...]

FOLDER holds `models/` and `data/` as described by its MANIFEST.md. Each network is calibrated with
samples that it is not judged by. The exit status is 1 if a network loses more than one point of
accuracy with the default method.
"""

import argparse
import csv
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

import tilewright as tw
from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Graph

Array = npt.NDArray[Any]

CIFAR_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
CIFAR_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
#: Largest loss of accuracy, in points.
TOLERANCE = 1.0
DEFAULT = "percentile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Samples to calibrate with, and others with their classes."""

    calibration: Array
    inputs: Array
    labels: Array


def mnist(folder: Path) -> Data:
    """Return digits as float32 NCHW, 0..255; the last 100 calibrate."""
    data = np.load(folder / "data/mnist_test_0_2000.npz")
    x = data["x"][:, np.newaxis].astype(np.float32)
    return Data(calibration=x[1900:], inputs=x[:1000], labels=data["y"][:1000])


def _cifar(folder: Path) -> tuple[Array, Array, Array]:
    data = np.load(folder / "data/cifar10_test_0_1000.npz")
    return np.load(folder / "data/cifar10_train_calib_0_128.npz")["x"], data["x"], data["y"]


def cifar_normalised(folder: Path) -> Data:
    """Return pictures as float32 NCHW, normalised."""
    calibration, x, y = _cifar(folder)

    def prepared(images: Array) -> Array:
        normal = (images.astype(np.float32) / 255 - CIFAR_MEAN) / CIFAR_DEVIATION
        return np.ascontiguousarray(normal.transpose(0, 3, 1, 2), dtype=np.float32)

    return Data(calibration=prepared(calibration), inputs=prepared(x), labels=y)


def cifar_pixels(folder: Path) -> Data:
    """Return pictures as float32 NHWC, 0..255."""
    calibration, x, y = _cifar(folder)
    return Data(calibration=calibration.astype(np.float32), inputs=x.astype(np.float32), labels=y)


def keywords(folder: Path) -> Data:
    """Return spectrograms, dequantised; the last 60 calibrate."""
    data = np.load(folder / "data/kws01_0_300.npz")
    x = (data["x"].astype(np.float32) - 83) * np.float32(0.5847029)
    return Data(calibration=x[240:], inputs=x[:240], labels=data["y"][:240])


def photographs(folder: Path) -> Data:
    """Return photographs as float32 NCHW, ``(pixel - 127) / 128``."""
    with (folder / "data/imagenet_val/labels.csv").open() as file:
        rows = list(csv.DictReader(file))

    def images(use: str) -> Array:
        pictures = [
            np.asarray(Image.open(folder / "data/imagenet_val" / row["file"]).convert("RGB"))
            for row in rows
            if row["use"] == use
        ]
        cropped = np.stack(pictures)[:, 1:225, 1:225].astype(np.float32)
        return np.ascontiguousarray(((cropped - 127) / 128).transpose(0, 3, 1, 2))

    labels = np.array([int(row["label"]) for row in rows if row["use"] == "eval"])
    return Data(calibration=images("calib"), inputs=images("eval"), labels=labels)


CASES: dict[str, Callable[[Path], Data]] = {
    "mnist_cnn.onnx": mnist,
    "resnet20_cifar10.onnx": cifar_normalised,
    "resnet8_cifar10_float.tflite": cifar_pixels,
    "kws_dscnn_float.tflite": keywords,
    "efficientnet_lite0.onnx": photographs,
}


def right(graph: Graph, data: Data) -> int:
    """Return how many samples a network answers right."""
    chunk = max((1 << 20) // data.inputs[0].size, 1)
    total = 0
    for start in range(0, len(data.inputs), chunk):
        part = data.inputs[start : start + chunk]
        scores = evaluate(graph, {graph.inputs[0]: part})[graph.outputs[0]]
        answers = scores.reshape(len(part), -1).argmax(axis=1)
        total += int(np.count_nonzero(answers == data.labels[start : start + chunk]))
    return total


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a model's name")
    default = Path(__file__).resolve().parents[2] / "shared" / "models"
    parser.add_argument("--models", type=Path, default=default, metavar="FOLDER")
    parser.add_argument("--methods", default="min-max,percentile,entropy")
    arguments = parser.parse_args()
    print(f"{'model':32} {'method':12} {'float':>8} {'int8':>8} {'differs':>8} {'s':>7}")
    kept = True
    for name, load in CASES.items():
        if arguments.names and not any(part in name for part in arguments.names):
            continue
        data = load(arguments.models)
        model = tw.load(arguments.models / "models" / name)
        before = 100 * right(model.graph, data) / len(data.labels)
        for method in arguments.methods.split(","):
            start = perf_counter()
            quantized = tw.quantize(model, data.calibration, method=method)
            after = 100 * right(quantized.graph, data) / len(data.labels)
            seconds = perf_counter() - start
            print(
                f"{name:32} {method:12} {before:8.2f} {after:8.2f} {after - before:+8.2f}"
                f" {seconds:7.1f}",
                flush=True,
            )
            kept &= method != DEFAULT or before - after <= TOLERANCE
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
