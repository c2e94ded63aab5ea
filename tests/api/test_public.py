"""What ``import tilewright`` offers is what scripts rely on."""

import inspect
from collections.abc import Callable
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


def test_a_preset_is_named_and_a_file_is_a_model() -> None:
    path, x = demo.MODEL_PATH, np.zeros((1, 1, 16, 16), np.float32)
    compiled = tw.compile(path, config="tiny")
    assert compiled.config == tw.presets["tiny"]
    assert tw.compile(compiled).config == tw.presets["tiny"]
    assert tw.compile(str(path)).config == tw.presets["pynq"]
    (run,) = tw.compare(path, x, devices=["sim"], config="tiny").runs
    assert run.result.compiled.config == tw.presets["tiny"]
    (run,) = tw.compare(compiled, x, devices=["sim"], config="ecp5").runs
    assert run.result.compiled.config == tw.presets["ecp5"]
    assert len(tw.diff(path, x, config="tiny")) == len(tw.diff(compiled, x))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tw.compile("none.onnx"), "there is no model file none.onnx"),
        (
            lambda: tw.compile(42),
            "a model must be a Model, a CompiledModel or the path of a model file, not 42",
        ),
        (lambda: tw.compile(demo.MODEL_PATH, config="pink"), "there is no preset 'pink'"),
        (
            lambda: tw.compile(demo.MODEL_PATH, config=3),
            "config must be an AcceleratorConfig or the name of a preset, not 3",
        ),
        (
            lambda: tw.compile(demo.MODEL_PATH).run(np.zeros((1, 1, 16, 16), np.float32), None),
            "a device must be named by a text, not None",
        ),
    ],
)
def test_wrong_arguments_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(tw.TilewrightError) as caught:
        call()
    assert str(caught.value) == message


def test_objects_show_themselves_in_one_line() -> None:
    model = tw.load(demo.MODEL_PATH)
    compiled = tw.compile(model)
    result = compiled.run(np.zeros((1, 1, 16, 16), np.float32))
    reference = compiled.run(np.zeros((1, 1, 16, 16), np.float32), device="reference")
    cycles, scores = f"{result.stats.cycles:,}", "logits float32[1, 10]"
    assert repr(model) == f"<Model digits: image float32[1, 1, 16, 16] -> {scores}>"
    assert repr(compiled) == f"<CompiledModel {compiled}>"
    assert str(compiled).startswith("digits for pynq: operators ")
    assert repr(result) == f"<RunResult digits for pynq on sim: {cycles} cycles, {scores}>"
    assert repr(reference) == f"<RunResult digits for pynq on reference: {scores}>"


@pytest.mark.parametrize("name", ["load", "compile", "compare", "diff"])
def test_functions_are_documented(name: str) -> None:
    function = getattr(tw, name)
    assert inspect.getdoc(function)
    assert "return" in inspect.signature(function).parameters or function.__annotations__["return"]
