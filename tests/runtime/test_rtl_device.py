"""Device ``rtl``: the Verilated hardware behind the same face as the simulator."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import tilewright as tw
from tilewright.demo import MODEL_PATH
from tilewright.isa.errors import InputError
from tilewright.runtime.board_devices import open_machine
from tilewright.runtime.devices import Device
from tilewright.sim.rtl_build import ToolError, find_toolchain


@pytest.fixture(scope="module")
def _toolchain() -> None:
    try:
        find_toolchain()
    except ToolError as error:
        pytest.skip(f"{error}: {error.hint}")


@pytest.mark.usefixtures("_toolchain")
def test_a_network_runs_on_the_hardware_as_on_the_simulator(
    image: npt.NDArray[np.float32],
) -> None:
    compiled = tw.compile(MODEL_PATH, config="tiny")
    hardware, simulated = compiled.run(image, "rtl"), compiled.run(image, "sim")
    assert hardware.stats.cycles == simulated.stats.cycles
    assert hardware.stats.engines == simulated.stats.engines
    for name, values in simulated.outputs.items():
        np.testing.assert_array_equal(hardware.outputs[name], values)


def test_only_the_hardware_has_waveforms(
    compiled_digits: tw.CompiledModel, image: npt.NDArray[np.float32], tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        compiled_digits.run(image, "sim", vcd=tmp_path / "run.vcd")
    assert str(caught.value) == "device 'sim' has no waveforms, 'rtl' has"


def test_missing_tools_are_named(
    compiled_digits: tw.CompiledModel,
    image: npt.NDArray[np.float32],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ToolError) as caught:
        compiled_digits.run(image, "rtl")
    assert caught.value.hint is not None
    assert "install" in caught.value.hint


def test_the_machine_of_the_hardware_says_what_it_is() -> None:
    with open_machine(Device.RTL) as machine:
        assert machine.description == "the Verilated hardware"
