"""Runs quantised networks on the simulated accelerator and prints what each of them costs.

    python benchmarks/models.py [FILE ...] [--config PRESET] [--set FIELD=VALUE ...]

Without FILE it takes the int8 classifiers and the autoencoder of ../shared/models where that lies
beside the checkout, and the demo network. Inputs are random: cycles do not depend on them. The
exit status is 1 if an output differs from the integer graph in a single bit.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import tilewright as tw
from tilewright.config_file import change_config
from tilewright.isa.config import AcceleratorConfig
from tilewright.runtime.inputs import random_inputs
from tilewright.runtime.stats import RunStats

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = REPOSITORY.parent / "shared/models/models"
NAMES = (
    "mnist_cnn_qdq_u8s8.onnx",
    "resnet8_cifar10_int8.tflite",
    "resnet20_cifar10_qdq_s8s8_pc.onnx",
    "resnet20_cifar10_qop_u8u8_pt.onnx",
    "kws_dscnn_int8.tflite",
    "mobilenet_v1_0.25_128_uint8.tflite",
    "mobilenet_v2_1.0_224_ptq.tflite",
    "vww_96_int8.tflite",
    "ad01_autoencoder_int8.tflite",
)
HEADER = (
    f"{'model':34} {'MACs':>12} {'cycles':>10} {'ms':>8} {'bound':>6} {'used':>6}"
    f" {'read':>10} {'written':>10} {'compile s':>9} {'run s':>6}  output"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One network on one configuration."""

    name: str
    stats: RunStats
    compile_seconds: float
    run_seconds: float
    equal: bool

    def __str__(self) -> str:
        stats = self.stats
        return (
            f"{self.name:34} {stats.macs:>12,} {stats.cycles:>10,} {stats.milliseconds:>8.3f}"
            f" {stats.ideal_cycles / stats.cycles:>6.1%} {stats.utilisation:>6.1%}"
            f" {stats.dram_read_bytes:>10,} {stats.dram_write_bytes:>10,}"
            f" {self.compile_seconds:>9.2f} {self.run_seconds:>6.2f}"
            f"  {'equal' if self.equal else 'DIFFERS'}"
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


def main() -> int:
    """Print one line per network."""
    default = [SHARED / name for name in NAMES if (SHARED / name).is_file()]
    parser = argparse.ArgumentParser(description="Run networks on the simulated accelerator.")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--config", default="pynq", choices=sorted(tw.presets))
    parser.add_argument("--set", nargs="+", default=[], metavar="FIELD=VALUE", dest="changes")
    options = parser.parse_args()
    config = change_config(tw.presets[options.config], options.changes)
    files = options.files or [*default, REPOSITORY / "api/demo/digits.onnx"]
    print(
        f"{config.name}, {config.clock_mhz:g} MHz; bound: share of the array-shape bound reached;"
    )
    print("used: share of the multipliers' time; read, written: bytes of DRAM")
    print(HEADER)
    equal = True
    for path in files:
        measurement = measure(path, config)
        print(measurement, flush=True)
        equal = equal and measurement.equal
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
