"""Simulates the usual networks, built in code with random weights, and says where cycles went.

    python benchmarks/networks.py [NETWORK ...] [--config PRESET] [--untuned] [--check]

``goal`` is what the network is to stay below on `pynq`. ``of the bound`` compares with the
array-shape bound: multiply-accumulates of convolutions and dense layers, channels rounded up to
whole blocks, depthwise convolutions on the lanes one after the other with the rest; where they
overlap, more than 100 % is possible. The second table says for each engine what it did in each
cycle. ``--check`` also computes the result and compares it with the integer graph, bit for bit;
the exit status is 1 if it differs, or if a goal is missed.
"""

import argparse
import sys
import time
from dataclasses import dataclass

import numpy as np

import tilewright as tw
from tilewright.compiler.compile import compile_graph
from tilewright.compiler.compiled import AcceleratorStep, CompiledGraph
from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.networks import Network, build_network
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.memories import Engine
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.inputs import random_inputs
from tilewright.runtime.stats import RunStats, run_stats
from tilewright.runtime.tables import Table, plain_table
from tilewright.runtime.tuning import Tuning, tuned_choices
from tilewright.sim.clockwork import simulate_timing

#: Million cycles on `pynq`, first layer and classifier included, one image.
GOALS = {
    Network.RESNET_18: 7.9,
    Network.RESNET_34: 15.0,
    Network.RESNET_50: 18.5,
    Network.MOBILENET_V1: 3.2,
    Network.MOBILENET_V2: 2.45,
    Network.RESNET_20: 0.19,
}
COLUMNS = ("network", "cycles", "goal", "of the bound", "ms", "images/s", "compile s", "result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One network on one configuration."""

    network: Network
    stats: RunStats
    #: Seconds of the processor.
    compile_seconds: float
    #: None where it was not computed.
    equal: bool | None

    @property
    def reached(self) -> bool:
        """Whether the network stays below its goal and is right."""
        return self.stats.cycles <= GOALS[self.network] * 1e6 and self.equal is not False

    @property
    def cells(self) -> tuple[str, ...]:
        """In the order of `COLUMNS`."""
        stats = self.stats
        verdict = {None: "not computed", True: "equal", False: "DIFFERS"}[self.equal]
        return (
            self.network.value,
            f"{stats.cycles:,}",
            f"{GOALS[self.network]:g} M",
            f"{stats.ideal_cycles / stats.cycles:.1%}",
            f"{stats.milliseconds:.2f}",
            f"{1e3 / stats.milliseconds:.1f}",
            f"{self.compile_seconds:.1f}",
            verdict,
        )


def measure(
    network: Network, config: AcceleratorConfig, tuning: Tuning, *, check: bool
) -> Measurement:
    """Compile and simulate a network."""
    graph = build_network(network)
    begin = time.process_time()
    compiled = compile_graph(graph, config, choices=tuned_choices(tuning, config))
    seconds = time.process_time() - begin
    timelines = [
        simulate_timing(step.program)
        for step in compiled.steps
        if isinstance(step, AcceleratorStep)
    ]
    return Measurement(
        network=network,
        stats=run_stats(compiled, timelines),
        compile_seconds=seconds,
        equal=is_exact(compiled) if check else None,
    )


def is_exact(compiled: CompiledGraph) -> bool:
    """Run with random data, and compare with the integer graph."""
    graph = compiled.graph
    inputs = random_inputs(graph, 0)

    def show(done: int, total: int) -> None:
        print(f"\r{graph.name}: {done:,} of {total:,} instructions", end="", file=sys.stderr)

    result = CompiledModel(compiled=compiled).run(inputs, progress=show)
    print(file=sys.stderr)
    expected = evaluate(graph, inputs)
    return all(np.array_equal(result.outputs[name], expected[name]) for name in graph.outputs)


def waits_table(measurements: list[Measurement]) -> Table:
    """Say for each network and engine what became of the cycles, in thousands."""
    rows = []
    for item in measurements:
        for engine in Engine:
            account = item.stats.engines[engine]
            values = (
                account.busy,
                account.memory_wait,
                *account.token_wait,
                account.fetch_wait,
                account.drain,
                account.done,
            )
            rows.append(
                (item.network.value, engine.name.lower(), *(f"{v / 1e3:,.0f}" for v in values))
            )
    tokens = tuple(f"for {engine.name.lower()}" for engine in Engine)
    columns = ("busy", "memory", *tokens, "instructions", "pipeline", "done")
    return Table(
        title="thousand cycles in which each engine was busy or waited",
        columns=("network", "engine", *columns),
        rows=tuple(rows),
        numbers=columns,
    )


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Simulate the usual networks.")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", type=Network)
    parser.add_argument("--config", default="pynq", choices=sorted(tw.presets))
    parser.add_argument("--untuned", action="store_true", help="use no tuned choices")
    parser.add_argument("--check", action="store_true", help="compare results bit for bit")
    options = parser.parse_args()
    config = tw.presets[options.config]
    tuning = Tuning.NONE if options.untuned else Tuning.CACHED
    print(f"{config.name}, {config.clock_mhz:g} MHz, simulated, one image, random weights")
    measurements = []
    for network in options.networks or Network:
        measurements.append(measure(network, config, tuning, check=options.check))
        print(f"{network.value}: {measurements[-1].stats.cycles:,} cycles", file=sys.stderr)
    rows = tuple(item.cells for item in measurements)
    print(plain_table(Table(columns=COLUMNS, rows=rows, numbers=COLUMNS[1:-1])))
    print()
    print(plain_table(waits_table(measurements)))
    return 0 if options.config != "pynq" or all(item.reached for item in measurements) else 1


if __name__ == "__main__":
    sys.exit(main())
