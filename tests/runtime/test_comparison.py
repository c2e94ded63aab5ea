"""Devices side by side."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from tilewright.isa.errors import InputError
from tilewright.runtime.comparison import compare
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.devices import Device
from tilewright.runtime.model import Model


def test_devices_come_in_the_order_asked_for(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32]
) -> None:
    table = compare(compiled_digits, image, ["reference", "sim", "reference"])
    assert [run.device for run in table.runs] == [Device.REFERENCE, Device.SIM]
    assert table.equal
    ((name, difference),) = table.runs[1].differences
    assert (name, difference.differing, difference.elements) == ("logits", 0, 10)
    lines = str(table).splitlines()
    assert len(lines) == 3
    columns = ["device", "output", "differ", "at", "most", "by", "cycles", "ms", "seconds", "here"]
    assert lines[0].split() == columns
    stats = table.runs[1].result.stats
    cells = [
        "sim",
        "logits",
        "0",
        "of",
        "10",
        "0",
        f"{stats.cycles:,}",
        f"{stats.milliseconds:.3f}",
    ]
    assert lines[2].split()[:-1] == cells


def test_a_model_is_compiled_first(digits: Model, image: npt.NDArray[np.float32]) -> None:
    table = compare(digits, image)
    assert [run.device for run in table.runs] == [Device.SIM, Device.REFERENCE]
    assert table.runs[0].result.compiled.config.name == "pynq"


def test_a_difference_is_seen(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32]
) -> None:
    table = compare(compiled_digits, image, ["sim"])
    (run,) = table.runs
    ((name, difference),) = run.differences
    off = replace(difference, differing=1, maximum=2.0)
    changed = replace(table, runs=(replace(run, differences=((name, off),)),))
    assert not changed.equal
    assert "1 of 10" in str(changed)


def test_no_device_is_refused(
    compiled_digits: CompiledModel, image: npt.NDArray[np.float32]
) -> None:
    with pytest.raises(InputError) as caught:
        compare(compiled_digits, image, [])
    assert str(caught.value) == "name at least one device to compare"
