"""The rules of the validator for single instructions and for data, each broken by one edit."""

import pytest
from isa_programs import (
    GEMM,
    LOAD_INP,
    LOAD_VEC,
    MULTIPLIER,
    STORE,
    VECTOR,
    program_of,
    refusal_of,
)

from tilewright.isa.validator import validate


def test_the_program_that_the_edits_start_from_is_legal() -> None:
    validate(program_of())


@pytest.mark.parametrize(
    "edits",
    [
        pytest.param(
            [(LOAD_INP, LOAD_INP.replace("dst=0", "dst=248")), (GEMM, f"{GEMM} src=248")],
            id="the last entries",
        ),
        pytest.param(
            [
                (LOAD_INP, "load memory=inp dst=3 address=1 entries=0 pad_left=8"),
                (GEMM, f"{GEMM} src=3"),
            ],
            id="padding only, whatever the address",
        ),
        pytest.param(
            [(LOAD_INP, LOAD_INP.replace("entries=8", "entries=9")), (GEMM, f"{GEMM} uop_begin=1")],
            id="a micro-op with an offset",
        ),
        pytest.param(
            [(GEMM, "gemm src=7 loop(extent=8, dst=1, src=255)")],
            id="a stride modulo the width of the index",
        ),
        pytest.param(
            [(STORE, "store src=0 address=0x2ffc entries=1 rows=8 row_stride=0xfffffffc")],
            id="a stride modulo the width of the address",
        ),
        pytest.param([(STORE, STORE.replace("0x2800", "0x2fe0"))], id="stores up to the code"),
        pytest.param([(STORE, STORE.replace("0x2800", "0x1170"))], id="stores behind constants"),
        pytest.param(
            [
                (f"{STORE} wait=vector signal=load", f"{STORE} wait=vector"),
                (f"{LOAD_VEC} wait=store", "load memory=vec dst=0 address=0x2820 entries=8"),
            ],
            id="a load beside what is stored needs no token",
        ),
        pytest.param(
            [("entries=1 signal=vector", "entries=1"), ("wait=load,gemm", "wait=gemm")],
            id="ordered through a third engine",
        ),
        pytest.param(
            [
                (VECTOR, f"{VECTOR} target=acc\n{VECTOR.replace(' requantise', '')}"),
                ("src=1) wait=load,gemm signal=store", "src=1) signal=store"),
                ("target=acc", "target=acc wait=load,gemm"),
            ],
            id="a vector instruction in place, then another",
        ),
    ],
)
def test_programs_at_the_edge_of_the_rules(edits: list[tuple[str, str]]) -> None:
    validate(program_of(*edits))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("\nfinish", ""), "the program must end with finish"),
        (
            ("\nfinish", "\nfinish\nfinish"),
            "instruction 9 (finish): finish must be the last instruction, and the only one",
        ),
        (
            ("finish", "finish wait=load"),
            "instruction 9 (finish): wait and signal must be 0, no token channel ends here",
        ),
        (
            ("signal=gemm", "signal=gemm,load"),
            "instruction 4 (load 4): signal names load, which takes no tokens from it",
        ),
        (
            (f"{STORE} wait=vector", f"{STORE} wait=vector,gemm"),
            "instruction 7 (store 0): wait names gemm, which gives it no tokens",
        ),
        (
            ("memory=inp", "memory=acc"),
            (
                "instruction 4 (load 4): memory must be one of INP, WGT, VEC, COEF, PRM, GUOP,"
                " VUOP, LUT, not ACC"
            ),
        ),
        (
            (LOAD_INP, LOAD_INP.replace("entries=8", "entries=0")),
            "instruction 4 (load 4): entries, pad_left and pad_right are 0, so nothing is written",
        ),
        (
            (VECTOR, f"{VECTOR} low=3 high=2"),
            "instruction 6 (vector 0): low must not exceed high, but 3 > 2",
        ),
        (
            (VECTOR, VECTOR.replace("requantise", "target=acc lookup")),
            "instruction 6 (vector 0): lookup needs an 8-bit result: requantise, or target OUT",
        ),
    ],
)
def test_operands_of_one_instruction(edit: tuple[str, str], message: str) -> None:
    assert refusal_of(edit) == message


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            (LOAD_INP, LOAD_INP.replace("dst=0", "dst=250")),
            "instruction 4 (load 4): dst reaches entry 257 of inp, which has 256 entries",
        ),
        (
            (GEMM, f"{GEMM} uop_begin=63 uop_count=2"),
            (
                "instruction 5 (gemm 0): uop_begin + uop_count reaches entry 64 of guop, which has"
                " 64 entries"
            ),
        ),
        (
            (VECTOR, f"{VECTOR} lookup lut=1"),
            "instruction 6 (vector 0): lut reaches entry 1 of lut, which has 1 entries",
        ),
        (
            (STORE, STORE.replace("src=0", "src=57")),
            "instruction 7 (store 0): src reaches entry 64 of out, which has 64 entries",
        ),
        (
            (LOAD_VEC, LOAD_VEC.replace("0x2800", "0x3ff0")),
            (
                "instruction 8 (load 5): accesses DRAM bytes 0x3ff0 to 0x4010, beyond dram_bytes"
                " (0x4000)"
            ),
        ),
        (
            (LOAD_VEC, LOAD_VEC.replace("0x2800", "0x2802")),
            "instruction 8 (load 5): accesses a row at DRAM byte 0x2802, which is no multiple of 4",
        ),
        (
            (LOAD_VEC, f"{LOAD_VEC} rows=2 row_stride=6"),
            "instruction 8 (load 5): accesses a row at DRAM byte 0x2806, which is no multiple of 4",
        ),
        (
            (STORE, STORE.replace("0x2800", "0x1150")),
            (
                "instruction 7 (store 0): writes DRAM byte 0x1150, which belongs to the program's"
                " constants or code"
            ),
        ),
        (
            (STORE, STORE.replace("0x2800", "0x2ff0")),
            (
                "instruction 7 (store 0): writes DRAM byte 0x3000, which belongs to the program's"
                " constants or code"
            ),
        ),
    ],
)
def test_ranges_and_alignment(edit: tuple[str, str], message: str) -> None:
    assert refusal_of(edit) == message


@pytest.mark.parametrize(
    ("edit", "place"),
    [
        ((GEMM, f"{GEMM} src=1"), "5 (gemm 0): reads entry 8 of inp"),
        ((GEMM, f"{GEMM} wgt=1"), "5 (gemm 0): reads entry 1 of wgt"),
        ((GEMM, f"{GEMM} accumulate"), "5 (gemm 0): reads entry 0 of acc"),
        ((GEMM, f"{GEMM} uop_begin=1 uop_count=2"), "5 (gemm 0): reads entry 2 of guop"),
        ((VECTOR, f"{VECTOR} uop_begin=2"), "6 (vector 0): reads entry 2 of vuop"),
        ((VECTOR, VECTOR.replace("256", "257")), "6 (vector 0): reads entry 8 of acc"),
        ((VECTOR, VECTOR.replace("256", "0")), "6 (vector 0): reads entry 0 of vec"),
        ((VECTOR, VECTOR.replace("sum", "mac")), "6 (vector 0): reads entry 0 of coef"),
        ((VECTOR, f"{VECTOR} prm=1"), "6 (vector 0): reads entry 1 of prm"),
        ((VECTOR, f"{VECTOR} lookup"), "6 (vector 0): reads entry 0 of lut"),
        ((STORE, STORE.replace("src=0", "src=1")), "7 (store 0): reads entry 8 of out"),
    ],
)
def test_reads_of_what_was_never_written(edit: tuple[str, str], place: str) -> None:
    assert refusal_of(edit) == f"instruction {place}, which nothing has written before"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            ("guop dst=0 address=0x1000", "guop dst=0 address=0x2000"),
            (
                "instruction 0 (load 0): micro-ops must be loaded from constants of the program, so"
                " that what guop holds is known before it runs"
            ),
        ),
        (
            (".gemm_uop src=1", ".int32 0 0x10000000"),
            "instruction 0 (load 0): micro-op 1 (GemmUop): bits from 20 on must be zero",
        ),
        (
            (f"{MULTIPLIER} 0", f"{MULTIPLIER.replace('0x178', '0x408')} 0"),
            "instruction 2 (load 2): loads a requantisation shift of 64, more than 63",
        ),
    ],
)
def test_data_that_is_known_before(edit: tuple[str, str], message: str) -> None:
    assert refusal_of(edit) == message


def test_loads_of_more_entries_than_there_are_need_no_memory() -> None:
    assert refusal_of((LOAD_INP, f"{LOAD_INP} rows=4095 planes=4095 pad_right=255")) == (
        "instruction 4 (load 4): dst reaches entry 4410253574 of inp, which has 256 entries"
    )
