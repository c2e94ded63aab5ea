"""Simulates the layers that VTA was measured on, and compares with VTA's times.

    python benchmarks/vta_layers.py [--net NAME ...] [--file FILE]

The layers and VTA's best measured times on a PYNQ-Z1 (tlc-pack/tophub, vta_v0.10) are those of
../shared/anchors/vta_layers.csv; without that file there is nothing to compare with, and the
script says so. Preset `vta` has VTA's array, scratchpads, port and clock; rows of batch 4 run on
its 4x8x8 variant. ``serial`` is the time without latency hiding: a load waits until all that was
loaded before it has been used, so that memory and computation take turns. A layer's time goes from
the first load to the last store. The exit status is 1 if a layer is slower than VTA.
"""

import argparse
import csv
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tilewright.compiler.compile import compile_graph
from tilewright.compiler.compiled import AcceleratorStep
from tilewright.compiler.graph import Graph
from tilewright.compiler.networks import LayerBuilder
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import TilewrightError
from tilewright.isa.presets import VTA
from tilewright.runtime.tables import Table, plain_table
from tilewright.runtime.tuning import Tuning, simulated_cycles, tuned_choices

ANCHORS = Path(__file__).resolve().parents[2] / "shared/anchors/vta_layers.csv"
#: VTA's arrays: batch x block_in x block_out.
MACHINES = {
    "1x16x16": VTA,
    "4x8x8": VTA.replace(
        name="vta-4x8x8",
        batch=4,
        block_in=8,
        block_out=8,
        # As many bytes of weights as 1024 entries of 16 x 16.
        wgt_entries=4096,
        inp_entries=1024,
        acc_entries=1024,
        vec_entries=1024,
        out_entries=1024,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A row of the file."""

    machine: str
    operator: str
    net: str
    size: int
    inputs: int
    outputs: int
    kernel: int
    stride: int
    pad: int
    batch: int
    groups: int
    vta_ms: float

    @property
    def name(self) -> str:
        """What the layer is."""
        groups = f" g{self.groups}" if self.groups > 1 else ""
        return (
            f"{self.size}x{self.size} {self.inputs}->{self.outputs}"
            f" {self.kernel}x{self.kernel}/{self.stride}{groups}"
        )

    @property
    def possible(self) -> float:
        """How many times faster the array could be at the most, at VTA's clock."""
        size = self.size * self.stride if self.operator == "conv2d_transpose" else self.size
        taps = self.kernel * self.kernel
        if self.operator == "conv2d_transpose":
            taps //= self.stride * self.stride
        else:
            size = (size + 2 * self.pad - self.kernel) // self.stride + 1
        macs = self.batch * size * size * self.outputs * self.inputs // self.groups * taps
        return self.vta_ms * VTA.clock_mhz * 1e3 * VTA.macs_per_cycle / macs

    @property
    def goal(self) -> float:
        """How many times faster than VTA it is to be."""
        if self.operator == "conv2d_transpose":
            return 2.0
        return 3.0 if self.net == "Resnet-50" and self.kernel == 1 and self.batch == 1 else 1.0

    def graph(self) -> Graph:
        """Build the layer by itself."""
        shape = (self.batch, self.size, self.size, self.inputs)
        layers = LayerBuilder(self.net, shape, seed=0)
        if self.operator == "conv2d_transpose":
            layers.transposed("conv", self.outputs, kernel=self.kernel, stride=self.stride)
        else:
            layers.conv(
                "conv",
                self.outputs,
                kernel=self.kernel,
                stride=self.stride,
                pad=self.pad,
                groups=self.groups,
            )
        return layers.build()


def read_layers(path: Path) -> list[Layer]:
    """Read the file."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Layer(
                machine=row["variant"],
                operator=row["op"],
                net=row["net"],
                size=int(row["size"]),
                inputs=int(row["cin"]),
                outputs=int(row["cout"]),
                kernel=int(row["kernel"]),
                stride=int(row["stride"]),
                pad=int(row["pad"]),
                batch=int(row["batch"]),
                groups=int(row["groups"]),
                vta_ms=float(row["vta_ms"]),
            )
            for row in csv.DictReader(file)
        ]


def milliseconds(layer: Layer, config: AcceleratorConfig, *, serial: bool) -> float:
    """Return the simulated time of a layer.

    Raises
    ------
    TilewrightError
        If the compiler does not take it.
    """
    choices = tuned_choices(Tuning.CACHED, config)
    compiled = compile_graph(layer.graph(), config, choices=choices, latency_hiding=not serial)
    steps = [step for step in compiled.steps if isinstance(step, AcceleratorStep)]
    if len(steps) != len(compiled.steps):
        raise TilewrightError(f"{compiled.placement[0].reason}: on the host")
    return sum(simulated_cycles(step.program) for step in steps) / config.clock_mhz / 1e3


def measure(layers: Iterable[Layer]) -> tuple[list[tuple[str, ...]], int]:
    """Return a row of cells per layer, and the number of layers that miss their goal."""
    rows, missed = [], 0
    for layer in layers:
        config = MACHINES[layer.machine]
        head = (layer.machine, layer.net, layer.name, f"{layer.vta_ms:.3f}")
        try:
            time = milliseconds(layer, config, serial=False)
            serial = milliseconds(layer, config, serial=True)
        except TilewrightError as error:
            rows.append((*head, "-", "-", f"{layer.goal:g}", "-", "-", str(error)))
            missed += 1
            continue
        ratio = layer.vta_ms / time
        missed += ratio < layer.goal
        verdict = "" if ratio >= layer.goal else "missed"
        if verdict and layer.possible < layer.goal:
            verdict = f"{layer.possible:.2f} is all that the array allows"
        cells = (
            f"{time:.3f}",
            f"{ratio:.2f}",
            f"{layer.goal:g}",
            f"{serial:.3f}",
            f"{serial / time:.2f}",
        )
        rows.append((*head, *cells, verdict))
        print(f"{layer.machine} {layer.net} {layer.name}: {ratio:.2f}", file=sys.stderr)
    return rows, missed


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Compare layers with VTA's measured times.")
    parser.add_argument("--net", nargs="+", default=[], help="only layers of these networks")
    parser.add_argument("--file", type=Path, default=ANCHORS, help="the layers and VTA's times")
    options = parser.parse_args()
    if not options.file.is_file():
        print(f"skipped: there is no {options.file.name} beside the checkout", file=sys.stderr)
        return 0
    layers = read_layers(options.file)
    chosen = [layer for layer in layers if not options.net or layer.net in options.net]
    rows, missed = measure(chosen)
    columns = (
        *("array", "network", "layer", "VTA ms", "ms", "faster", "goal", "serial ms", "hiding"),
        "",
    )
    print("VTA measured; tilewright simulated at 100 MHz")
    print(plain_table(Table(columns=columns, rows=tuple(rows), numbers=columns[3:9])))
    print(f"{len(rows) - missed} of {len(rows)} layers reach their goal")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
