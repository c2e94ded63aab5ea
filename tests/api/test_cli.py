"""The commands, on input that is right."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import tilewright
from tilewright.isa.presets import PRESETS
from tilewright.runtime.compiled_model import CompiledModel

Run = Callable[..., Any]

#: What the JSON of ``run`` must hold, and of what type.
RUN_RECORD = {
    "device": str,
    "config": str,
    "configuration": dict,
    "model": str,
    "cycles": int,
    "clock_mhz": float,
    "milliseconds": float,
    "macs": int,
    "ideal_cycles": int,
    "utilisation": float,
    "dram_read_bytes": int,
    "dram_write_bytes": int,
    "engines": dict,
    "layers": list,
    "outputs": dict,
    "wall_seconds": float,
}
LAYER_RECORD = {
    "name": str,
    "op": str,
    "device": str,
    "cycles": int,
    "ideal_cycles": int,
    "macs": int,
    "dram_bytes": int,
    "waits": dict,
}


def load_json(path: str) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def types_of(record: dict[str, Any], names: dict[str, type]) -> dict[str, type]:
    return {name: type(record[name]) for name in names}


def test_run_writes_everything(command: Run, model: str, image_file: str) -> None:
    done = command(
        "run", model, "--input", image_file, "--config", "tiny",
        "--json", "run.json", "--report", "run.html", "--trace", "trace.json",
    )  # fmt: skip
    assert (done.status, done.err) == (0, "")
    record = load_json("run.json")
    assert types_of(record, RUN_RECORD) == RUN_RECORD
    assert all(types_of(layer, LAYER_RECORD) == LAYER_RECORD for layer in record["layers"])
    assert (record["device"], record["config"], record["model"]) == ("sim", "tiny", model)
    cycles, macs = record["cycles"], record["macs"]
    assert record["milliseconds"] == pytest.approx(cycles / 50e3)
    assert record["utilisation"] == pytest.approx(macs / (cycles * 16))
    assert sum(layer["cycles"] for layer in record["layers"]) == cycles
    assert sum(layer["macs"] for layer in record["layers"]) == macs
    assert f"cycles             {cycles:,} = " in done.out
    assert sorted(path.name for path in Path().iterdir()) == ["run.html", "run.json", "trace.json"]
    assert load_json("trace.json")["traceEvents"]


def test_run_finds_the_class_that_onnxruntime_finds(
    command: Run, model: str, image_file: str
) -> None:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"image": np.load(image_file)})
    command("run", model, "--input", f"image={image_file}", "--json", "run.json")
    output = load_json("run.json")["outputs"]["logits"]
    assert (output["shape"], output["dtype"]) == ([1, 10], "float32")
    assert output["top5"][0]["index"] == int(scores.argmax()) == 6
    assert len(output["top5"]) == 5


def test_run_takes_random_data_from_a_seed(command: Run, model: str) -> None:
    outputs = []
    for seed in ("5", "5", "6"):
        done = command("run", model, "--seed", seed, "--json", "run.json")
        assert done.err == f"no --input: random data with seed {seed}\n"
        outputs.append(load_json("run.json")["outputs"])
    assert outputs[0] == outputs[1] != outputs[2]


def test_run_on_the_reference_yields_the_same_outputs(
    command: Run, model: str, image_file: str
) -> None:
    records = []
    for device in ("sim", "reference"):
        command("run", model, "--input", image_file, "--device", device, "--json", "run.json")
        records.append(load_json("run.json"))
    assert records[0]["outputs"] == records[1]["outputs"]
    assert records[1]["device"] == "reference"
    assert "cycles" not in records[1]


def test_changes_reach_the_machine(command: Run, model: str) -> None:
    command("run", model, "--set", "clock_mhz=75", "dram.read_latency_cycles=400", "--json", "a")
    command("run", model, "--json", "b")
    slow, fast = load_json("a"), load_json("b")
    assert slow["configuration"]["dram"]["read_latency_cycles"] == 400
    assert slow["config"] == "pynq, clock_mhz=75, dram.read_latency_cycles=400"
    assert slow["cycles"] > fast["cycles"] + 360
    assert slow["outputs"] == fast["outputs"]


@pytest.mark.parametrize(
    "words",
    [
        "--set clock_mhz=75 load_bursts=4 --input image={image} MODEL",
        "--set clock_mhz=75 --set load_bursts=4 MODEL --input {image}",
        "--input {image} --set clock_mhz=75 load_bursts=4 MODEL",
        "--input={image} --set=clock_mhz=75 --set=load_bursts=4 -- MODEL",
    ],
)
def test_lists_may_stand_before_the_model(
    command: Run, model: str, image_file: str, words: str
) -> None:
    filled = words.format(image=image_file).replace("MODEL", model).split()
    done = command("run", "--json", "run.json", *filled)
    assert (done.status, done.err) == (0, "")
    record = load_json("run.json")
    assert record["config"] == "pynq, clock_mhz=75, load_bursts=4"
    assert record["outputs"]["logits"]["top5"][0]["index"] == 6


@pytest.mark.parametrize("name", ["", "logits="])
def test_outputs_are_saved(command: Run, model: str, image_file: str, name: str) -> None:
    command("run", "--input", image_file, "--output", f"{name}y.npy", model, "--json", "run.json")
    values = np.load("y.npy")
    assert (values.shape, values.dtype) == ((1, 10), np.float32)
    best = load_json("run.json")["outputs"]["logits"]["top5"][0]
    assert (int(values.argmax()), float(values.max())) == (best["index"], best["score"])


def test_assumptions_are_noted(command: Run, model: str) -> None:
    network = onnx.load(model)
    network.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    onnx.save(network, "open.onnx")
    done = command("compile", "open.onnx")
    assert done.err == "note: input 'image' has the batch size 'N', taken as 1\n"
    done = command("run", model, "--config", "tiny", "--set", "batch=2", "--seed", "1")
    assert done.err.splitlines() == [
        "note: the network's batch of 1 fills 1 of the 2 rows of each entry, as batch is 2",
        "no --input: random data with seed 1",
    ]


def test_a_configuration_comes_from_a_file(command: Run, model: str) -> None:
    Path("mine.toml").write_text('preset = "tiny"\nname = "mine"\nclock_mhz = 40\n')
    command("run", model, "--config", "mine.toml", "--json", "run.json")
    record = load_json("run.json")
    assert (record["config"], record["clock_mhz"]) == ("mine", 40.0)


def test_json_to_stdout_takes_the_place_of_the_text(command: Run, model: str) -> None:
    done = command("run", model, "--json", "-")
    assert types_of(json.loads(done.out), RUN_RECORD) == RUN_RECORD
    assert list(Path().iterdir()) == []


def test_a_compiled_model_runs_as_its_model_does(command: Run, model: str) -> None:
    done = command("compile", model, "--config", "ecp5", "-o", "m.tw", "--json", "compile.json")
    assert done.status == 0
    record = load_json("compile.json")
    (program,) = record["programs"]
    assert f"peak DRAM     {program['dram_bytes']:,} bytes" in done.out
    assert {item["target"] for item in record["placement"]} == {"accelerator", "host"}
    command("run", "m.tw", "--json", "a")
    command("run", model, "--config", "ecp5", "--json", "b")
    first, second = load_json("a"), load_json("b")
    for name in ("cycles", "layers", "outputs", "configuration"):
        assert first[name] == second[name]


def test_compile_shows_the_placement(command: Run, model: str) -> None:
    out = command("compile", model).out
    assert "residual" in out
    assert "float32 tensor 'image'" in out
    assert list(Path().iterdir()) == []


def test_disasm_prints_what_run_takes(command: Run, compiled_file: str) -> None:
    text = command("disasm", compiled_file).out
    assert text.startswith('.config name="pynq" ')
    assert text.rstrip().endswith("finish")
    Path("m.s").write_text(text)
    command("run", "m.s", "--json", "a")
    command("run", compiled_file, "--json", "b")
    assert load_json("a")["cycles"] == load_json("b")["cycles"]
    assert "digest" in load_json("a")["outputs"]["logits/vector"]


@pytest.mark.parametrize("preset", list(PRESETS))
def test_isa_prints_the_reference_page(command: Run, preset: str) -> None:
    done = command("isa", "--config", preset)
    assert done.status == 0
    assert done.out.startswith(f"# Instruction set of `{preset}`")


def test_isa_prints_the_page_in_docs(command: Run, repository: Path) -> None:
    page = (repository / "docs" / "isa.md").read_text(encoding="utf-8")
    assert command("isa").out == page


def test_the_json_of_isa_holds_every_operand(command: Run) -> None:
    command("isa", "--config", "tiny", "--json", "isa.json")
    record = load_json("isa.json")
    page = command("isa", "--config", "tiny").out
    assert [item["name"] for item in record["instructions"]] == [
        "finish", "load", "gemm", "vector", "store",
    ]  # fmt: skip
    operands = [
        operand
        for item in (*record["instructions"], *record["uops"])
        for operand in item["operands"]
    ]
    for operand in operands:
        high = operand["position"] + operand["width"] - 1
        bits = f"{high}:{operand['position']}"
        assert f"| {bits} | `{operand['name']}` | {operand['width']} |" in page
    for memory in record["memories"]:
        sizes = f"{memory['entries']} | {memory['entry_bytes']} | {memory['banks']}"
        assert f"| {memory['code']} | {memory['name']} | {sizes} |" in page


def test_compile_assembles_a_program(command: Run, compiled_file: str) -> None:
    Path("m.s").write_text(command("disasm", compiled_file).out)
    done = command("compile", "m.s", "-o", "m.twp", "--json", "compile.json")
    assert (done.status, done.err) == (0, "")
    (program,) = load_json("compile.json")["programs"]
    assert f"program       {program['instructions']:,} instructions" in done.out
    assert command("disasm", "m.twp").out == command("disasm", "m.s").out == Path("m.s").read_text()


def test_a_program_has_no_products(command: Run, compiled_file: str) -> None:
    Path("m.s").write_text(command("disasm", compiled_file).out)
    done = command("run", "m.s", "--json", "run.json")
    record = load_json("run.json")
    assert (record["macs"], record["ideal_cycles"], record["utilisation"]) == (None, None, None)
    assert {(layer["macs"], layer["ideal_cycles"]) for layer in record["layers"]} == {(None, None)}
    assert "bound " not in done.out.partition("Engines")[0]


def test_demo_reads_its_digits(command: Run) -> None:
    done = command("demo", "--images", "40", "--json", "demo.json")
    assert done.status == 0
    record = load_json("demo.json")
    right = sum(image["label"] == image["class"] for image in record["images"])
    assert len(record["images"]) == 40
    assert right >= 39
    assert done.out.count(": right") == right
    assert "█" in done.out
    assert f"cycles             {record['cycles']:,} = " in done.out


def test_diff_finds_nothing(command: Run, model: str, image_file: str) -> None:
    done = command("diff", model, "--input", image_file, "--json", "diff.json")
    record = load_json("diff.json")
    assert (done.status, record["equal"]) == (0, True)
    assert done.out.splitlines()[-1] == f"all {len(record['layers'])} tensors are equal"
    assert {"stem", "depthwise", "residual"} <= {layer["layer"] for layer in record["layers"]}


def test_compare_shows_devices_side_by_side(
    command: Run, compiled_file: str, image_file: str
) -> None:
    done = command("compare", compiled_file, "--input", image_file, "--json", "compare.json")
    record = load_json("compare.json")
    assert (done.status, record["equal"]) == (0, True)
    assert [run["device"] for run in record["runs"]] == ["sim", "reference"]
    assert record["runs"][0]["outputs"] == record["runs"][1]["outputs"]
    assert record["runs"][0]["cycles"] > 0
    assert done.out.splitlines()[-1] == "all devices yield the same bits"


def test_verbose_says_what_takes_how_long(command: Run, model: str) -> None:
    done = command("run", model, "-v")
    stages = [line.split(":")[0] for line in done.err.splitlines()]
    assert "reading digits.onnx" in stages
    assert "compiling for pynq" in stages
    assert "running on sim" in stages


def test_version(command: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command("--version")
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"tilewright {tilewright.__version__}\n"


def test_compare_shows_layers(command: Run, compiled_file: str, image_file: str) -> None:
    words = ("--input", image_file, "--devices", "sim,cpu", "--layers", "--json", "layers.json")
    done = command("compare", compiled_file, *words)
    assert "sim ms  cpu differ" in done.out
    sim, cpu = (run["compared_layers"] for run in load_json("layers.json")["runs"])
    for layers in (sim, cpu):
        assert layers[-1]["tensor"] == "logits"
        assert not any(layer["differing"] for layer in layers)
    assert all(layer["milliseconds"] > 0 for layer in cpu)


def test_compile_puts_host_code_into_the_file(command: Run, model: str) -> None:
    if shutil.which("arm-linux-gnueabihf-gcc") is None:
        pytest.skip("needs arm-linux-gnueabihf-gcc")
    done = command("compile", model, "-o", "coded.tw", "--processor", "cortex-a9")
    assert "machine code for cortex-a9: " in done.err
    code = CompiledModel.load("coded.tw").libraries.code
    assert code is not None
    assert code.processor == "cortex-a9"
    assert len(code.libraries) > 0


@pytest.mark.parametrize("name", ["run", "compile", "compare", "diff", "disasm", "isa", "demo"])
def test_every_command_has_help(
    command: Run, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command(name, "--help")
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "--json FILE" in text
    assert "--verbose" in text


def test_compile_prints_a_layer(command: Run, model: str, compiled_file: str) -> None:
    layer = command("compile", model, "--config", "tiny", "--layer", "widen")
    assert (layer.status, layer.err) == (0, "")
    assert layer.out.startswith("layer widen (Conv2d)\n\n== kernel widen: tensor expression\n")
    assert "\n== loop nest\n" in layer.out
    assert "Tensorize(stage=acc, axis=image, intrinsic=gemm)" in layer.out
    command("compile", model, "--config", "tiny", "--layer", "widen", "--json", "layer.json")
    assert load_json("layer.json")["listing"] + "\n" == layer.out

    Path("m.s").write_text(command("disasm", compiled_file).out)
    refused = command("compile", "m.s", "--layer", "widen")
    assert refused.status == 2
    assert refused.err == (
        "tilewright: --layer is for models, a program has no tensor expressions\n"
    )
