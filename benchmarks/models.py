"""Runs quantised networks on the simulated accelerator and prints what each of them costs.

    python benchmarks/models.py [FILE ...] [--config PRESET] [--set FIELD=VALUE ...] [--markdown]

Without FILE it takes the int8 classifiers and the autoencoder of ../shared/models where that lies
beside the checkout, and the demo network. ``--markdown`` prints the table of the README. Inputs are
random: cycles do not depend on them. The exit status is 1 if an output differs from the integer
graph in a single bit.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tilewright as tw
from tilewright.config_file import change_config
from tilewright.isa.config import AcceleratorConfig
from tilewright.runtime.configurations import DEFAULT_PRESET
from tilewright.runtime.inputs import random_inputs
from tilewright.runtime.stats import RunStats

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = REPOSITORY.parent / "shared/models/models"
DEMO = REPOSITORY / "api/demo/digits.onnx"
#: Files in the folder of shared models, and what the README calls them.
TITLES = {
    "mnist_cnn_qdq_u8s8.onnx": "CNN, MNIST (ONNX QDQ)",
    "resnet8_cifar10_int8.tflite": "ResNet-8, CIFAR-10 (int8 TFLite)",
    "resnet20_cifar10_qdq_s8s8_pc.onnx": "ResNet-20, CIFAR-10 (ONNX QDQ)",
    "resnet20_cifar10_qop_u8u8_pt.onnx": "ResNet-20, CIFAR-10 (ONNX QOperator, uint8)",
    "kws_dscnn_int8.tflite": "DS-CNN, keyword spotting (int8 TFLite)",
    "mobilenet_v1_0.25_128_uint8.tflite": "MobileNet-v1 0.25 128 (uint8 TFLite)",
    "mobilenet_v2_1.0_224_ptq.tflite": "MobileNet-v2 1.0 224 (int8 TFLite)",
    "vww_96_int8.tflite": "MobileNet-v1 0.25 96, person or not (int8 TFLite)",
    "ad01_autoencoder_int8.tflite": "autoencoder, 10 dense layers (int8 TFLite)",
    DEMO.name: "digits (`api/demo/digits.onnx`)",
}
COLUMNS = ("network", "MACs", "cycles", "ms", "of the bound")
DETAILS = ("multipliers", "read", "written", "compile s", "run s", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One network on one configuration."""

    name: str
    stats: RunStats
    compile_seconds: float
    run_seconds: float
    equal: bool

    @property
    def cells(self) -> tuple[str, ...]:
        """What the README shows, in the order of `COLUMNS`."""
        stats = self.stats
        return (
            TITLES.get(self.name, self.name),
            f"{stats.macs / 1e6:.1f} M",
            f"{stats.cycles:,}",
            f"{stats.milliseconds:.3f}",
            f"{100 * stats.ideal_cycles / stats.cycles:.1f} %",
        )

    @property
    def details(self) -> tuple[str, ...]:
        """What else was measured, in the order of `DETAILS`."""
        stats = self.stats
        return (
            f"{100 * stats.utilisation:.1f} %",
            f"{stats.dram_read_bytes:,}",
            f"{stats.dram_write_bytes:,}",
            f"{self.compile_seconds:.2f}",
            f"{self.run_seconds:.2f}",
            "equal" if self.equal else "DIFFERS",
        )


def measure(path: Path, config: AcceleratorConfig) -> Measurement:
    """Compile a network, run it once, and compare its outputs with the integer graph's."""
    model = tw.load(path)
    begin = time.perf_counter()
    compiled = tw.compile(model, config=config)
    compile_seconds = time.perf_counter() - begin
    comparison = tw.compare(compiled, random_inputs(model.graph, 0), devices=["sim"])
    (run,) = comparison.runs
    return Measurement(
        name=path.name,
        stats=run.result.stats,
        compile_seconds=compile_seconds,
        run_seconds=run.result.wall_seconds,
        equal=comparison.equal,
    )


def markdown_row(cells: Sequence[str]) -> str:
    """Join the cells of a table's row."""
    return f"| {' | '.join(cells)} |"


def text_row(cells: Sequence[str]) -> str:
    """Align the cells of a row: a name, then numbers."""
    name, *numbers = cells
    return f"{name:50}" + "".join(f" {number:>12}" for number in numbers)


def main() -> int:
    """Print one line per network."""
    default = [SHARED / name for name in TITLES if (SHARED / name).is_file()]
    parser = argparse.ArgumentParser(description="Run networks on the simulated accelerator.")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--config", default=DEFAULT_PRESET, choices=sorted(tw.presets))
    parser.add_argument("--set", nargs="+", default=[], metavar="FIELD=VALUE", dest="changes")
    parser.add_argument("--markdown", action="store_true", help="print the table of the README")
    options = parser.parse_args()
    config = change_config(tw.presets[options.config], options.changes)
    if options.markdown:
        print(f"{markdown_row(COLUMNS)}\n|{'---|' * len(COLUMNS)}")
    else:
        print(f"{config.name}, {config.clock_mhz:g} MHz; the bound is the array-shape bound of the")
        print("convolutions and dense layers; read and written are bytes of DRAM")
        print(text_row((*COLUMNS, *DETAILS)))
    equal = True
    for path in options.files or [*default, DEMO]:
        measurement = measure(path, config)
        row = measurement.cells
        print(markdown_row(row) if options.markdown else text_row((*row, *measurement.details)))
        sys.stdout.flush()
        equal = equal and measurement.equal
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
