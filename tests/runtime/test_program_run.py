"""Programs without a model: they run if they are legal, and say what is wrong if they are not."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.isa.assembly import assemble, disassemble
from tilewright.isa.errors import InputError, ProgramError
from tilewright.isa.presets import TINY
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.inputs import random_inputs
from tilewright.runtime.program_run import (
    is_program,
    load_program,
    random_buffers,
    run_program,
)

#: Takes the smaller of each value and 5: load, vector engine, store.
CLIP = """\
.preset tiny
.dram_bytes 0x1000
.code 0x800
.buffer "from" address=0x0 size_bytes=8 role=input
.buffer "to" address=0x100 size_bytes=8 role=output
.constant 0x200
.vector_uop dst=0 src=0
.layers "clip"
.layer 0
load memory=vuop dst=0 address=0x200 entries=1
load memory=vec dst=0 address=0x0 entries=2 signal=vector
vector operation=sum high=5 loop(extent=2, dst=1, src=1) wait=load signal=store
store src=0 address=0x100 entries=2 wait=vector
.layer none
finish
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "program.s"
    path.write_text(text)
    return path


def test_a_program_runs_on_the_bytes_of_its_buffers(tmp_path: Path) -> None:
    program = load_program(written(tmp_path, CLIP))
    values = np.array([-128, -1, 0, 4, 5, 6, 100, 127], np.int8)
    result = run_program(program, {"from": values}, name="clip")
    np.testing.assert_array_equal(result.outputs["to"].view(np.int8), [-128, -1, 0, 4, 5, 5, 5, 5])
    (layer,) = result.stats.layers
    assert (layer.name, layer.cycles) == ("clip", result.stats.cycles)
    assert layer.dram_bytes == 8 + 8 + 8
    result.save_report(tmp_path / "report.html")
    result.save_trace(tmp_path / "trace.json")


def test_a_file_of_a_program_runs_as_its_text_does(tmp_path: Path) -> None:
    program = assemble(CLIP)
    path = tmp_path / "clip.program"
    program.save(path)
    assert is_program(path)
    assert load_program(path) == program


def test_the_program_of_a_model_runs_alone(compiled_digits: CompiledModel, tmp_path: Path) -> None:
    (program,) = compiled_digits.programs
    alone = load_program(written(tmp_path, disassemble(program)))
    result = run_program(alone, random_buffers(alone, 0))
    model = compiled_digits.run(random_inputs(compiled_digits.graph, 0))
    assert result.stats.cycles == model.stats.cycles


def test_random_bytes_follow_the_seed() -> None:
    program = assemble(CLIP)
    first, again, other = (random_buffers(program, seed)["from"] for seed in (1, 1, 2))
    assert first.dtype == np.uint8
    assert (first.tolist() == again.tolist(), first.tolist() == other.tolist()) == (True, False)


@pytest.mark.parametrize(
    ("line", "changed", "message"),
    [
        (
            "wait=load signal=store",
            "signal=store",
            "the tokens from load to vector do not balance: 1 are given and 0 are taken",
        ),
        (
            "entries=2 signal=vector",
            "entries=2 wait=vector signal=vector",
            (
                "deadlock: load waits for a token from vector at instruction 1 (load 1),"
                " gemm is done,"
                " vector waits for a token from load at instruction 2 (vector 0),"
                " store waits for a token from vector at instruction 3 (store 0)"
            ),
        ),
        (
            "address=0x100 entries=2",
            "address=0xffc entries=2",
            (
                "instruction 3 (store 0): accesses DRAM bytes 0xffc to 0x1004,"
                " beyond dram_bytes (0x1000)"
            ),
        ),
        (
            "memory=vec dst=0",
            "memory=vec dst=255",
            "instruction 1 (load 1): dst reaches entry 256 of vec, which has 256 entries",
        ),
        ("finish", "", "the program must end with finish"),
    ],
)
def test_an_illegal_program_is_refused(
    tmp_path: Path, line: str, changed: str, message: str
) -> None:
    assert line in CLIP
    path = written(tmp_path, CLIP.replace(line, changed))
    with pytest.raises(ProgramError) as caught:
        load_program(path)
    assert str(caught.value) == f"{path}: {message}"


def test_another_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError) as caught:
        load_program(written(tmp_path, CLIP), TINY.replace(queue_entries=8))
    assert str(caught.value) == (
        f"{tmp_path}/program.s: the program was made for another configuration than 'tiny':"
        " queue_entries 4 instead of 8"
    )


def test_a_text_without_a_machine_takes_the_one_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, CLIP.replace(".preset tiny\n", ""))
    assert load_program(path, TINY) == assemble(CLIP)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "program.s"
    path.write_bytes(b"load \xff")
    with pytest.raises(ProgramError, match=r"program\.s: assembly text must be UTF-8: .*0xff"):
        load_program(path)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input buffer 'from' is missing"),
        ({"form": np.zeros(8, np.uint8)}, "the program has no input buffer 'form'"),
        (
            {"from": np.zeros(9, np.uint8)},
            "input buffer 'from' must be 8 values of uint8 or int8, not 9 of uint8",
        ),
        (
            {"from": np.zeros(8, np.int16)},
            "input buffer 'from' must be 8 values of uint8 or int8, not 8 of int16",
        ),
    ],
)
def test_bytes_that_do_not_fit_are_refused(inputs: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError) as caught:
        run_program(assemble(CLIP), inputs)
    assert str(caught.value) == message
