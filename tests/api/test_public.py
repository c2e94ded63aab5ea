"""What ``import tilewright`` offers is what scripts rely on."""

import inspect
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import demo


def test_the_names_are_there() -> None:
    assert set(tw.__all__) <= set(dir(tw))
    assert all(hasattr(tw, name) for name in tw.__all__)
    assert tw.presets.keys() == {"vta", "pynq", "ultra96", "ecp5", "tiny"}
    assert issubclass(tw.errors.InputError, tw.TilewrightError)


def test_another_name_is_refused() -> None:
    with pytest.raises(AttributeError, match=r"^module 'tilewright' has no attribute 'nothing'$"):
        _ = tw.nothing


def test_a_script_from_reading_to_reporting(tmp_path: Path) -> None:
    model = tw.load(demo.MODEL_PATH)
    config = tw.presets["pynq"].replace(inp_entries=1024)
    compiled = tw.compile(model, config=config)
    compiled.save(tmp_path / "m.tw")
    compiled = tw.CompiledModel.load(tmp_path / "m.tw")
    assert compiled.placement
    x = np.zeros((1, 1, 16, 16), np.float32)
    result = compiled.run({"image": x}, device="sim")
    assert result.outputs["logits"].shape == (1, 10)
    assert result.stats.cycles > result.stats.ideal_cycles > 0
    assert result.stats.layers
    result.save_report(tmp_path / "report.html")
    result.save_trace(tmp_path / "trace.json")
    table = tw.compare(model, x, devices=["sim", "reference"])
    assert table.equal
    assert not any(layer.difference.differing for layer in tw.diff(model, x))


@pytest.mark.parametrize("name", ["load", "compile", "compare", "diff"])
def test_functions_are_documented(name: str) -> None:
    function = getattr(tw, name)
    assert inspect.getdoc(function)
    assert "return" in inspect.signature(function).parameters or function.__annotations__["return"]
