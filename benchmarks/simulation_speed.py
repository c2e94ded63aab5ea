"""Measures how many cycles per second the simulator computes, timing only and with data.

    python benchmarks/simulation_speed.py [MODEL] [--config PRESET] [--repeat N] [--rtl]

With --rtl it measures the Verilated hardware, too, from the start of a program to its end, copies
of memories included; what Verilator and the compiler take is not in it.

Without MODEL it takes MobileNet-v2 from ../shared/models where that lies beside the checkout, else
the demo network. The first run finds all caches empty. Seconds are those of the processor, all
cores added up, so that other work on the machine does not count and more cores do not help.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import tilewright
from tilewright.sim.clockwork import simulate_timing
from tilewright.sim.rtl import run_rtl
from tilewright.sim.rtl_build import build_bench
from tilewright.sim.simulator import simulate

REPOSITORY = Path(__file__).resolve().parents[1]
MOBILENET = REPOSITORY.parent / "shared/models/models/mobilenet_v2_1.0_224_ptq.tflite"
DEMO = REPOSITORY / "api/demo/digits.onnx"


def seconds(run: Callable[[], object]) -> float:
    """Processor time of a call."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def main() -> None:
    """Print both speeds for the first run and for the best of those after it."""
    default = MOBILENET if MOBILENET.is_file() else DEMO
    parser = argparse.ArgumentParser(description="Measure the speed of the simulator.")
    parser.add_argument("model", nargs="?", type=Path, default=default)
    parser.add_argument("--config", default="pynq", choices=sorted(tilewright.presets))
    parser.add_argument("--repeat", type=int, default=3, help="runs after the first")
    parser.add_argument("--rtl", action="store_true", help="the hardware as well")
    options = parser.parse_args()

    model = tilewright.load(options.model)
    programs = tilewright.compile(model, config=tilewright.presets[options.config]).programs
    memories = [program.initial_dram() for program in programs]

    def timing_only() -> None:
        for program in programs:
            simulate_timing(program)

    def with_data() -> None:
        for program, dram in zip(programs, memories, strict=True):
            simulate(program, dram)

    def rtl() -> None:
        for program, dram in zip(programs, memories, strict=True):
            run_rtl(program, dram)

    runs = {"timing only": timing_only, "with data": with_data}
    if options.rtl:
        build_bench(tilewright.presets[options.config])
        runs["rtl"] = rtl
    first = {name: seconds(run) for name, run in runs.items()}
    cycles = sum(simulate_timing(program).cycles for program in programs)
    instructions = sum(len(program.instructions) for program in programs)
    name = f"{options.model.name} on {options.config}"
    print(f"{name}: {cycles:,} cycles, {instructions:,} instructions")
    for name, run in runs.items():
        best = min(seconds(run) for _ in range(options.repeat))
        print(
            f"{name:12} {cycles / first[name] / 1e6:7.2f} million cycles/s in the first run,"
            f" {cycles / best / 1e6:7.2f} in the best of {options.repeat} more"
        )


if __name__ == "__main__":
    main()
