"""Whole networks on the hardware: every byte and cycle as on the simulator."""

from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright.isa.memories import Memory
from tilewright.sim.rtl import run_rtl
from tilewright.sim.rtl_build import ToolError, find_toolchain
from tilewright.sim.simulator import simulate

NETWORKS = (
    "resnet8_cifar10_int8.tflite",
    "kws_dscnn_int8.tflite",
    "vww_96_int8.tflite",
    "ad01_autoencoder_int8.tflite",
)


@pytest.fixture(scope="module", autouse=True)
def _toolchain() -> None:
    try:
        find_toolchain()
    except ToolError as error:
        pytest.skip(f"{error}: {error.hint}")


def check(path: Path, preset: str, rng: np.random.Generator) -> None:
    compiled = tw.compile(tw.load(path), config=tw.presets[preset])
    assert compiled.programs
    for program in compiled.programs:
        dram = program.initial_dram()
        for buffer in program.inputs:
            end = buffer.address + buffer.size_bytes
            dram[buffer.address : end] = rng.integers(0, 256, buffer.size_bytes)
        hardware, simulation = run_rtl(program, dram), simulate(program, dram)
        for kind in ("dispatch", "start", "finish"):
            np.testing.assert_array_equal(
                getattr(hardware.timeline, kind), getattr(simulation.timeline, kind), kind
            )
        assert hardware.timeline.cycles == simulation.timeline.cycles
        np.testing.assert_array_equal(hardware.dram, simulation.dram)
        for memory in Memory:
            np.testing.assert_array_equal(
                hardware.scratchpads[memory], simulation.state.bytes[memory], memory.name
            )


def test_demo_network(rng: np.random.Generator) -> None:
    check(Path(str(files("tilewright.demo") / "digits.onnx")), "tiny", rng)


@pytest.mark.slow
def test_demo_network_on_pynq(rng: np.random.Generator) -> None:
    check(Path(str(files("tilewright.demo") / "digits.onnx")), "pynq", rng)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_on_pynq(name: str, shared_models: Path, rng: np.random.Generator) -> None:
    check(shared_models / "models" / name, "pynq", rng)
