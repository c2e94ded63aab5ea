"""``tilewright tune`` from the command line: what it finds is kept, and found again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tilewright.compiler.compiled import AcceleratorStep
from tilewright.sim.clockwork import simulate_timing


@pytest.fixture
def tune(
    command: Callable[..., Any], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Tune the demo network with few candidates; returns the record of the only model."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def run(*words: str) -> Any:
        done = command("tune", model, "--budget", "3", "--json", "record.json", *words)
        assert done.status == 0, done.err
        (found,) = json.loads(Path("record.json").read_text())["models"]
        return found

    return run


def test_a_second_run_has_nothing_left_to_search(tune: Callable[..., Any], tmp_path: Path) -> None:
    first = tune("--cache", "own.tuning", "--fresh")
    assert 0 < first["searched"] == first["problems"]
    second = tune("--cache", "own.tuning", "--fresh")
    assert second["searched"] == 0
    assert second["tuned_cycles"] == first["tuned_cycles"] <= first["untuned_cycles"]
    lines = (tmp_path / "own.tuning").read_text().splitlines()
    assert len(lines) > first["problems"]


def test_a_compilation_takes_the_cycles_that_tune_has_told(
    tune: Callable[..., Any], model: str
) -> None:
    found = tune()
    compiled = tw.compile(tw.load(model), config=tw.presets["pynq"])
    programs = [
        step.program for step in compiled.compiled.steps if isinstance(step, AcceleratorStep)
    ]
    assert sum(simulate_timing(program).cycles for program in programs) == found["tuned_cycles"]


def test_the_processor_is_tuned_and_runs_what_was_found(
    tune: Callable[..., Any], command: Callable[..., Any], model: str, tmp_path: Path
) -> None:
    first = tune("--device", "cpu", "--threads", "2")
    assert 0 < first["searched"] == first["problems"]
    assert first["measured"] <= 3 * first["problems"]
    assert first["tuned_nanoseconds"] <= first["untuned_nanoseconds"]
    lines = (tmp_path / "tilewright" / "choices.tuning").read_text().splitlines()
    assert len(lines) == 1 + first["problems"] + 1
    assert tune("--device", "cpu", "--threads", "2")["searched"] == 0
    done = command("compare", model, "--devices", "reference,cpu")
    assert done.status == 0, done.err
    record = json.loads(Path("record.json").read_text())
    assert (record["device"], record["threads"], record["seed"]) == ("cpu", 2, 0)


def test_configurations_are_for_the_accelerator(command: Callable[..., Any], model: str) -> None:
    done = command("tune", model, "--device", "cpu", "--config", "pynq")
    assert done.status == 2
    assert done.err == "tilewright: --config and --set describe the accelerator, not device cpu\n"


@pytest.mark.parametrize("device", ["sim", "cpu"])
def test_half_is_for_gpus(command: Callable[..., Any], model: str, device: str) -> None:
    done = command("tune", model, "--device", device, "--half")
    assert done.status == 2
    assert done.err == f"tilewright: --half is for devices opencl and cuda, not {device}\n"


@pytest.mark.parametrize("name", ["tune", "explore"])
def test_networks_in_floating_point_take_no_cycles(command: Callable[..., Any], name: str) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, [1, 4]) for end in "xy"]
    graph = helper.make_graph([node], "real", ends[:1], ends[1:])
    Path("real.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    done = command(name, "real.onnx")
    assert done.status == 2
    assert done.err.splitlines()[-2:] == [
        "tilewright: network 'real' is in floating point: nothing of it runs on the accelerator",
        "hint: tilewright quantize makes an int8 network of it",
    ]
