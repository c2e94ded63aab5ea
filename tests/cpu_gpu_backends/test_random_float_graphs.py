"""Random networks of real numbers as machine code, against numpy's evaluation."""

import numpy as np
import pytest
from random_float_networks import random_float_graph

from tilewright.compiler.evaluate import evaluate
from tilewright.cpu_gpu_backends.codegen.target import X86_64_V3, CpuTarget, host_target
from tilewright.cpu_gpu_backends.cpu import chain_plans
from tilewright.cpu_gpu_backends.cpu.lower import lower_graph
from tilewright.cpu_gpu_backends.cpu.native import load_program
from tilewright.runtime.inputs import random_inputs

#: Largest difference, relative to the largest output: several layers of large Winograd tiles.
TOLERANCE = 1e-4


def check(seed: int, target: CpuTarget, *, check_bounds: bool) -> None:
    """Run a network twice, with one thread and with three."""
    graph = random_float_graph(seed)
    program = load_program(lower_graph(graph, target), target, check_bounds=check_bounds)
    for run, threads in enumerate((1, 3)):
        inputs = random_inputs(graph, run)
        (expected,) = evaluate(graph, inputs).values()
        (found,) = program.run([inputs[name] for name in graph.inputs], threads)
        error = np.abs(found.reshape(expected.shape) - expected).max()
        assert error <= TOLERANCE * max(1.0, np.abs(expected).max()), f"seed {seed}:\n{graph}"


@pytest.mark.parametrize("seed", range(5))
def test_random_networks_are_close_to_the_graph(seed: int) -> None:
    check(seed, host_target(), check_bounds=bool(seed % 2))


@pytest.mark.parametrize("seed", [8, 153, 177, 249])
def test_in_chains_where_nothing_is_large(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_plans, "_FEWEST_BYTES", 0)
    check(seed, host_target(), check_bounds=bool(seed % 2))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_random_networks(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 3 == 0:
        monkeypatch.setattr(chain_plans, "_FEWEST_BYTES", 0)
    narrow = seed % 5 == 0 and "x86_64" in host_target().triple
    check(seed, X86_64_V3 if narrow else host_target(), check_bounds=bool(seed % 2))
