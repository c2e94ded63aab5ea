"""Accuracy of the integer graph over labelled data, beside what other runtimes reach.

    python benchmarks/accuracy.py [--models FOLDER] [--simulate N] [--config PRESET] [NAME ...]

FOLDER holds `models/`, `data/` and `golden/` as described by its MANIFEST.md, from which the
published figures below are taken; NAME picks models by a part of their name. The first N samples
also run on the cycle-exact simulator. The exit status is 1 if a model is more than 0.3 points (for
the autoencoder: 1 %) from every runtime's figure, or if a simulated output differs from the integer
graph's in a bit.
"""

import argparse
import csv
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

import tilewright as tw
from tilewright.compiler.evaluate import evaluate
from tilewright.runtime.model import Model

Array = npt.NDArray[Any]

#: Input elements evaluated at once: beyond it, layers of all samples do not fit into the caches.
CHUNK_ELEMENTS = 1 << 18
#: Largest distance from the nearest runtime: points of accuracy.
TOLERANCE = 0.3
CIFAR_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
CIFAR_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Preprocessed inputs and what is right for them."""

    inputs: Array
    labels: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What a model reaches: `value` in `unit`, and how much of a difference is tolerated."""

    value: float
    unit: str
    tolerance: float


class Predictor:
    """The integer graph of a model; remembers what it was asked and what it answered."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.graph = model.graph
        self.asked: list[Array] = []
        self.answered: list[Array] = []

    def __call__(self, inputs: Array) -> Array:
        """Return the first output for all `inputs`, in chunks."""
        graph = self.graph
        chunk = max(CHUNK_ELEMENTS // inputs[0].size, 1)
        parts = [
            evaluate(graph, {graph.inputs[0]: inputs[start : start + chunk]})[graph.outputs[0]]
            for start in range(0, len(inputs), chunk)
        ]
        outputs = np.concatenate(parts)
        self.asked.extend(inputs)
        self.answered.extend(outputs)
        return outputs

    def simulate(self, count: int, config: str) -> tuple[int, int]:
        """Run the first `count` samples on the simulator; return how many, and how many equal."""
        compiled = tw.compile(self.model, config=tw.presets[config])
        count = min(count, len(self.asked))
        equal = 0
        for sample, expected in zip(self.asked[:count], self.answered[:count], strict=True):
            result = compiled.run(sample[np.newaxis])
            equal += np.array_equal(result.outputs[self.graph.outputs[0]][0], expected)
        return count, equal


Judge: TypeAlias = Callable[[Predictor, Path], Figure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model, how it is judged, and the figures of other runtimes."""

    model: str
    judge: Judge
    published: Mapping[str, float]


def top1(
    load: Callable[[Path], Samples], background: int = 0
) -> Callable[[Predictor, Path], Figure]:
    """Return a judge of classifiers whose first `background` classes do not count."""

    def judge(predict: Predictor, folder: Path) -> Figure:
        samples = load(folder)
        classes = predict(samples.inputs)[:, background:].argmax(axis=1)
        share = float(np.mean(classes == samples.labels))
        return Figure(value=100 * share, unit="% top-1", tolerance=TOLERANCE)

    return judge


def mnist(folder: Path) -> Samples:
    """Return digits as float32 NCHW, 0..255."""
    data = np.load(folder / "data/mnist_test_0_2000.npz")
    return Samples(inputs=data["x"][:, np.newaxis].astype(np.float32), labels=data["y"])


def cifar_int8(folder: Path) -> Samples:
    """Return pictures as int8 NHWC, pixel - 128."""
    data = np.load(folder / "data/cifar10_test_0_1000.npz")
    return Samples(inputs=(data["x"] ^ 0x80).view(np.int8), labels=data["y"])


def cifar_float(folder: Path) -> Samples:
    """Return pictures as float32 NCHW, normalised."""
    data = np.load(folder / "data/cifar10_test_0_1000.npz")
    images = (data["x"].astype(np.float32) / 255 - CIFAR_MEAN) / CIFAR_DEVIATION
    inputs = np.ascontiguousarray(images.transpose(0, 3, 1, 2), dtype=np.float32)
    return Samples(inputs=inputs, labels=data["y"])


def keywords(folder: Path) -> Samples:
    """Return spectrograms as stored."""
    data = np.load(folder / "data/kws01_0_300.npz")
    return Samples(inputs=data["x"], labels=data["y"])


def imagenet(size: int) -> Callable[[Path], Samples]:
    """Return a loader of photographs as uint8 NHWC of `size`: 224 is cropped, 128 resized."""

    def load(folder: Path) -> Samples:
        with (folder / "data/imagenet_val/labels.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row["use"] == "eval"]
        inputs = [photograph(folder / "data/imagenet_val" / row["file"], size) for row in rows]
        return Samples(
            inputs=np.stack(inputs), labels=np.array([int(row["label"]) for row in rows])
        )

    return load


def photograph(path: Path, size: int) -> Array:
    """Return one photograph of 227 pixels as uint8 ``[size, size, 3]``."""
    image = Image.open(path).convert("RGB")
    if size == 224:
        return np.asarray(image)[1:225, 1:225]
    return np.asarray(image.resize((size, size), Image.Resampling.BICUBIC))


def golden_agreement(predict: Predictor, folder: Path) -> Figure:
    """Judge by the share of stored outputs that no runtime's differs from by more than a step."""
    golden = np.load(folder / "golden" / f"{predict.graph.name}.tflite.npz")
    keys = sorted(key for key in golden if key.startswith("in"))
    right = 0
    for key in keys:
        output = predict(golden[key]).astype(int)
        index = key.split(":")[0].removeprefix("in")
        names = [name for name in golden if f"_out{index}:" in name]
        right += min(int(np.abs(output - golden[name]).max()) for name in names) <= 1
    return Figure(value=100 * right / len(keys), unit="% golden outputs", tolerance=TOLERANCE)


def anomaly_score(predict: Predictor, folder: Path) -> Figure:
    """Judge the autoencoder by its mean squared error over 196 windows of 5 frames."""
    frames = np.fromfile(folder / "data/ad01_normal_id_01_00000000_f32_200x128.bin", np.float32)
    frames = frames.reshape(200, 128)
    windows = np.stack([frames[start : start + 5].reshape(-1) for start in range(196)])
    graph = predict.graph
    source, result = graph.tensors[graph.inputs[0]], graph.tensors[graph.outputs[0]]
    assert source.scale is not None
    assert source.zero_point is not None
    assert result.scale is not None
    assert result.zero_point is not None
    steps = np.rint(windows / np.float32(source.scale)) + source.zero_point
    output = predict(np.clip(steps, -128, 127).astype(np.int8))
    rebuilt = (output.astype(np.float32) - result.zero_point) * np.float32(result.scale)
    error = float(np.mean((windows - rebuilt) ** 2))
    return Figure(value=error, unit="mean squared error", tolerance=0.01 * 10.2603)


CASES = (
    Case(model="mnist_cnn_qdq_u8s8.onnx", judge=top1(mnist), published={"onnxruntime": 98.30}),
    Case(
        model="resnet8_cifar10_int8.tflite",
        judge=top1(cifar_int8),
        published={"LiteRT XNNPACK": 87.80, "LiteRT builtin": 87.70},
    ),
    Case(
        model="resnet20_cifar10_qdq_s8s8_pc.onnx",
        judge=top1(cifar_float),
        published={"onnxruntime": 91.20},
    ),
    Case(
        model="resnet20_cifar10_qop_u8u8_pt.onnx",
        judge=top1(cifar_float),
        published={"onnxruntime": 91.60},
    ),
    Case(
        model="kws_dscnn_int8.tflite",
        judge=top1(keywords),
        published={"LiteRT XNNPACK": 92.00, "LiteRT builtin": 92.00},
    ),
    Case(
        model="mobilenet_v1_0.25_128_uint8.tflite",
        judge=top1(imagenet(128), background=1),
        published={"LiteRT XNNPACK": 47.50, "LiteRT builtin": 47.50},
    ),
    Case(
        model="mobilenet_v2_1.0_224_ptq.tflite",
        judge=top1(imagenet(224), background=1),
        published={"LiteRT XNNPACK": 77.50, "LiteRT builtin": 79.17},
    ),
    Case(
        model="vww_96_int8.tflite",
        judge=golden_agreement,
        published={"any LiteRT kernels": 100.0},
    ),
    Case(
        model="ad01_autoencoder_int8.tflite",
        judge=anomaly_score,
        published={"MLPerf Tiny": 10.2603, "LiteRT XNNPACK": 10.2652},
    ),
)


def run(case: Case, folder: Path, samples: int, config: str) -> bool:
    """Evaluate one model, print its line and tell whether it is near enough to a runtime."""
    start = perf_counter()
    predict = Predictor(tw.load(folder / "models" / case.model))
    figure = case.judge(predict, folder)
    simulated, equal = predict.simulate(samples, config)
    seconds = perf_counter() - start
    nearest = min(case.published, key=lambda name: abs(case.published[name] - figure.value))
    difference = figure.value - case.published[nearest]
    print(
        f"{case.model:36} {figure.value:9.4f} {figure.unit:18} "
        f"{case.published[nearest]:9.4f} {nearest:18} {difference:+8.4f} "
        f"{f'{equal} of {simulated}':>10} {seconds:6.1f}",
        flush=True,
    )
    return abs(difference) <= figure.tolerance and equal == simulated


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a model's name")
    default = Path(__file__).resolve().parents[2] / "shared" / "models"
    parser.add_argument("--models", type=Path, default=default, metavar="FOLDER")
    parser.add_argument("--simulate", type=int, default=16, metavar="N", help="samples (16)")
    parser.add_argument("--config", choices=sorted(tw.presets), default="pynq")
    arguments = parser.parse_args()
    chosen = [
        case
        for case in CASES
        if not arguments.names or any(name in case.model for name in arguments.names)
    ]
    print(
        f"{'model':36} {'here':>9} {'':18} {'there':>9} {'nearest runtime':18} "
        f"{'differs':>8} {'sim equal':>10} {'s':>6}"
    )
    near = [run(case, arguments.models, arguments.simulate, arguments.config) for case in chosen]
    return 0 if all(near) else 1


if __name__ == "__main__":
    sys.exit(main())
