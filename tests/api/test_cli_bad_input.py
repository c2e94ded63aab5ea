"""The commands, on input that is wrong: one clear line, status 2, nothing written."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import cli, demo

Run = Callable[..., Any]

NETWORK = demo.MODEL_PATH.read_bytes()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder of files with something wrong in each."""
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "cut.onnx").write_bytes(NETWORK[: len(NETWORK) // 2])
    (tmp_path / "text.tflite").write_text("not a network")
    (tmp_path / "folder").mkdir()
    (tmp_path / "bad.toml").write_text("block_in = ")
    (tmp_path / "bad.s").write_text(".preset tiny\n.dram_bytes 64\n.code 0\nlaod\n")
    np.save(tmp_path / "nan.npy", np.full((1, 1, 16, 16), np.nan, np.float32))
    np.save(tmp_path / "flat.npy", np.zeros((1, 256), np.float32))
    np.save(tmp_path / "double.npy", np.zeros((1, 1, 16, 16)))
    (tmp_path / "junk.npy").write_bytes(b"\x93NUMPY junk")
    (tmp_path / "junk.png").write_bytes(b"\x89PNG junk")
    return tmp_path


HINT_DEFECT = "hint: this is a defect of tilewright; -v shows where it happened"
HINT_INPUTS = "inputs: 'image' float32[1, 1, 16, 16]"
PRESETS = "presets: vta, pynq, ultra96, ecp5, tiny"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("", "the following arguments are required: COMMAND", "see tilewright --help"),
        ("run", "the following arguments are required: MODEL", "see tilewright run --help"),
        ("run MODEL --fast", "unrecognized arguments: --fast", "see tilewright --help"),
        (
            "run MODEL --seed -1",
            "argument --seed: must be a whole number from 0 on, not '-1'",
            "see tilewright run --help",
        ),
        (
            "run MODEL --seed ten",
            "argument --seed: must be a whole number from 0 on, not 'ten'",
            "see tilewright run --help",
        ),
        ("run none.onnx", "there is no model file none.onnx", None),
        ("run folder", "folder is a folder, not a model file", None),
        (
            "run empty.onnx",
            "empty.onnx: the file is not an ONNX model, or holds no nodes",
            None,
        ),
        (
            "run cut.onnx",
            "cut.onnx: the file is not an ONNX model, or is damaged",
            None,
        ),
        (
            "run text.tflite",
            "text.tflite: the file is not an ONNX model, or is damaged",
            None,
        ),
        (
            "run MODEL --config pink",
            "there is no preset 'pink'",
            f"{PRESETS}; or give a .toml file, or a build's config.json",
        ),
        (
            "run MODEL --config none.toml",
            "cannot read configuration none.toml: no such file or directory",
            None,
        ),
        (
            "run MODEL --config bad.toml",
            "bad.toml: is not a TOML file: Invalid value (at end of document)",
            None,
        ),
        ("run MODEL --set block_in", "a change must be field=value, not 'block_in'", None),
        (
            "run MODEL --set block_in=0",
            "block_in must be an integer from 1 to 256, not 0",
            None,
        ),
        (
            "run COMPILED --set block_in=32",
            (
                "the program was made for another configuration than 'pynq, block_in=32':"
                " block_in 16 instead of 32"
            ),
            "compile the model for the configuration that it shall run on",
        ),
        (
            "run MODEL --device metal",
            "there is no device 'metal'",
            "devices: sim, rtl, cpu, opencl, cuda, reference, pynq, ulx3s:PORT, tcp://HOST:PORT",
        ),
        (
            "compare MODEL --devices sim,metal",
            "there is no device 'metal'",
            "devices: sim, rtl, cpu, opencl, cuda, reference, pynq, ulx3s:PORT, tcp://HOST:PORT",
        ),
        (
            "compile MODEL --processor cortex-a9",
            "--processor is for --library, or for host steps in -o FILE.tw",
            None,
        ),
        (
            "compile MODEL -o m.tw --half",
            "--half and --direct are for --library: a .tw file is for every device",
            None,
        ),
        ("run MODEL --half", "device 'sim' computes no real numbers of 16 bits", None),
        ("compare MODEL --devices ,", "name at least one device to compare", None),
        (
            "run MODEL --device reference --trace t.json",
            "device 'reference' counts no cycles: there is nothing to report or to trace",
            None,
        ),
        (
            "run bad.s --device reference",
            "a program without a model does not run on reference",
            None,
        ),
        (
            "run MODEL --input nan.npy",
            "input 'image' must hold finite values, not nan at [0, 0, 0, 0]",
            None,
        ),
        (
            "run MODEL --input flat.npy",
            "input 'image' must have the shape [1, 1, 16, 16], not [1, 256]",
            None,
        ),
        (
            "run MODEL --input double.npy",
            "input 'image' must be of type float32, not float64",
            "convert it with .astype('float32') if its values allow it",
        ),
        ("run MODEL --input none.npy", "there is no input file none.npy", None),
        ("run MODEL --input picture=nan.npy", "there is no input 'picture'", HINT_INPUTS),
        ("run MODEL --input bad.toml", "input file bad.toml must be a .npy or .png file", None),
        (
            "run MODEL --json none/run.json",
            "cannot write none/run.json: there is no folder none",
            None,
        ),
        ("run MODEL --report folder", "cannot write folder: it is a folder", None),
        ("run MODEL --report a --trace ./a", "output file a is named twice", None),
        ("tune MODEL --json a --cache ./a", "output file a is named twice", None),
        ("run MODEL --threads 2", "--threads is for device cpu, not sim", None),
        (
            "run MODEL --device reference --threads 1",
            "--threads is for device cpu, not reference",
            None,
        ),
        ("tune MODEL --threads 2", "--threads is for device cpu, not sim", None),
        ("tune MODEL --device opencl --threads 2", "--threads is for device cpu, not opencl", None),
        ("compile MODEL -o none/m.tw", "cannot write none/m.tw: there is no folder none", None),
        ("disasm none.tw", "cannot read program none.tw: no such file or directory", None),
        (
            "disasm bad.toml",
            "bad.toml: not a program file: 11 bytes are too few",
            None,
        ),
        (
            "disasm bad.s",
            "bad.s: line 4: 'laod' is no instruction",
            "instructions: finish, load, gemm, vector, store",
        ),
        (
            "demo --images 41",
            "argument --images: must be a number from 1 to 40, not '41'",
            "see tilewright demo --help",
        ),
        (
            "run MODEL --set dram.size_bytes=1",
            "dram.size_bytes must be an integer from 4096 to 4294967296, not 1",
            None,
        ),
        ("run MODEL --report -", "only --json writes to stdout: name a file instead of '-'", None),
        (
            "run --input nan.npy",
            "the following arguments are required: MODEL",
            "see tilewright run --help",
        ),
        ("run MODEL --output y.png", "output file y.png must be a .npy file", None),
        ("run MODEL --output y=y.npy", "there is no output 'y'", "outputs: logits"),
        (
            "run MODEL --output a.npy logits=b.npy",
            "output 'logits' is given twice",
            None,
        ),
        ("run MODEL --output none/y.npy", "cannot write none/y.npy: there is no folder none", None),
        ("optimise MODEL", None, "see tilewright --help"),
    ],
)
def test_one_clear_line(
    command: Run,
    files: Path,
    model: str,
    compiled_file: str,
    words: str,
    message: str | None,
    hint: str | None,
) -> None:
    before = sorted(files.rglob("*"))
    names = {"MODEL": model, "COMPILED": compiled_file}
    done = command(*(names.get(word, word) for word in words.split()))
    lines = [line for line in done.err.splitlines() if not line.startswith("no --input")]
    assert (done.status, done.out) == (2, "")
    assert lines[0].startswith("tilewright: ")
    assert len(lines) == 1 + (hint is not None)
    if message is not None:
        assert lines[0] == f"tilewright: {message}"
    if hint is not None:
        assert lines[1] == f"hint: {hint}"
    assert sorted(files.rglob("*")) == before


@pytest.mark.parametrize("name", ["junk.npy", "junk.png"])
def test_damaged_inputs_are_named(command: Run, files: Path, model: str, name: str) -> None:
    done = command("run", model, "--input", name)
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert line.startswith(f"tilewright: cannot read {name} as a ")


def test_assembly_errors_name_the_line(command: Run, files: Path) -> None:
    done = command("run", "bad.s")
    assert done.status == 2
    assert done.err.startswith("tilewright: bad.s: line 4: 'laod' is no instruction")


def test_a_truncated_compiled_model_is_refused(
    command: Run, files: Path, compiled_file: str
) -> None:
    data = Path(compiled_file).read_bytes()
    for size in (8, 47, 100, len(data) // 2, len(data) - 1):
        Path("cut.tw").write_bytes(data[:size])
        done = command("run", "cut.tw")
        assert done.status == 2
        (line,) = done.err.splitlines()
        assert line.startswith("tilewright: cut.tw: ")


def test_a_tile_that_does_not_fit_is_named(command: Run, model: str) -> None:
    done = command("run", model, "--set", "inp_entries=2")
    assert done.status == 2
    assert done.err.splitlines() == [
        (
            "tilewright: 'stem' does not fit configuration 'pynq, inp_entries=2':"
            " the smallest tile does not fit scratchpad inp (9 of 2 entries)"
        ),
        "hint: use a configuration with deeper scratchpads",
    ]


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "tilewright: interrupted\n"),
        (MemoryError(), 1, "tilewright: not enough memory\n"),
        (
            OSError(28, "No space left on device"),
            1,
            "tilewright: cannot use the standard output: No space left on device\n",
        ),
        (
            RuntimeError("a\nb"),
            1,
            f"tilewright: internal error: RuntimeError: a b\n{HINT_DEFECT}\n",
        ),
    ],
)
def test_what_else_may_happen(
    command: Run,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    raised: BaseException,
    status: int,
    message: str,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr("tilewright.options.compile_model", fail)
    done = command("compile", model, "-o", "m.tw")
    assert (done.status, done.err) == (status, message)
    assert list(Path().iterdir()) == []


def test_verbose_shows_where_a_defect_is(
    command: Run, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.options.compile_model", None)
    assert "Traceback" in command("compile", model, "-v").err
    assert "Traceback" not in command("compile", model).err


def start(*words: str, **options: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tilewright", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_a_reader_that_goes_away_is_no_error_worth_a_traceback(compiled_file: str) -> None:
    process = start("disasm", compiled_file)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (cli.EXIT_FAILURE, "")


def test_a_stream_without_unicode_is_written_to() -> None:
    process = start("demo", "--images", "1", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "\\u2588" in out


def test_wrong_input_ends_the_process_with_two(tmp_path: Path) -> None:
    process = start("run", "none.onnx", cwd=tmp_path)
    assert process.communicate(timeout=60) == ("", "tilewright: there is no model file none.onnx\n")
    assert process.returncode == 2


@pytest.mark.parametrize("closed", [1, 2])
def test_a_closed_stream_ends_no_command(closed: int, tmp_path: Path) -> None:
    process = start("isa", "--json", "isa.json", cwd=tmp_path, preexec_fn=lambda: os.close(closed))
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert (tmp_path / "isa.json").stat().st_size > 1000


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_standard_output_is_named() -> None:
    with open("/dev/full", "w") as full:
        process = subprocess.Popen(
            [sys.executable, "-m", "tilewright", "isa"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
        _, err = process.communicate(timeout=60)
    assert process.returncode == cli.EXIT_FAILURE
    assert err == "tilewright: cannot use the standard output: No space left on device\n"


def test_an_interrupt_while_modules_load_leaves_no_traceback() -> None:
    script = (
        "import sys, tilewright.cli as cli\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'tilewright.options': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.exit(cli.main(['isa']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (cli.EXIT_INTERRUPTED, "")
    assert done.stderr == "tilewright: interrupted\n"
