"""Whole networks on the hardware: every byte and cycle as on the simulator."""

from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from rtl_runs import run_on_both

import tilewright as tw
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.presets import PYNQ, TINY
from tilewright.sim.rtl_build import ToolError, find_toolchain

NETWORKS = (
    "resnet8_cifar10_int8.tflite",
    "kws_dscnn_int8.tflite",
    "vww_96_int8.tflite",
    "ad01_autoencoder_int8.tflite",
)

#: The fastest that `tilewright explore` finds for an XC7Z020, see docs/tuning.md.
FASTEST = PYNQ.replace(name="24x16", block_in=24, wgt_entries=512, lane_multipliers=1)


@pytest.fixture(scope="module", autouse=True)
def _toolchain() -> None:
    try:
        find_toolchain()
    except ToolError as error:
        pytest.skip(f"{error}: {error.hint}")


def check(path: Path, config: AcceleratorConfig, rng: np.random.Generator) -> None:
    compiled = tw.compile(tw.load(path), config=config)
    assert compiled.programs
    for program in compiled.programs:
        dram = program.initial_dram()
        for buffer in program.inputs:
            end = buffer.address + buffer.size_bytes
            dram[buffer.address : end] = rng.integers(0, 256, buffer.size_bytes)
        run_on_both(program, dram)


def test_demo_network(rng: np.random.Generator) -> None:
    check(Path(str(files("tilewright.demo") / "digits.onnx")), TINY, rng)


@pytest.mark.slow
@pytest.mark.parametrize("config", [PYNQ, FASTEST], ids=lambda config: config.name)
def test_demo_network_on_large_machines(
    config: AcceleratorConfig, rng: np.random.Generator
) -> None:
    check(Path(str(files("tilewright.demo") / "digits.onnx")), config, rng)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("config", [PYNQ, FASTEST], ids=lambda config: config.name)
def test_networks(
    config: AcceleratorConfig, name: str, shared_models: Path, rng: np.random.Generator
) -> None:
    check(shared_models / "models" / name, config, rng)
