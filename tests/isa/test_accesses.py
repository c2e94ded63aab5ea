"""Accesses equal what an enumeration of all steps reads and writes."""

import itertools
import random
from typing import Any

import numpy as np
import pytest
from effort import growth
from hypothesis import given, settings
from hypothesis import strategies as st
from isa_strategies import instructions

from tilewright.isa.accesses import Accesses, accesses
from tilewright.isa.errors import ProgramError
from tilewright.isa.index_sets import indices_of, mask_of, rotate, sweep
from tilewright.isa.instructions import (
    Gemm,
    GemmLoop,
    Load,
    Store,
    Vector,
    VectorLoop,
    VectorOperation,
    VectorTarget,
)
from tilewright.isa.memories import Memory, memory_shape
from tilewright.isa.presets import PRESETS

TINY = PRESETS["tiny"]
#: Depths that are no powers of two, and a look-up table to choose.
ODD = TINY.replace(
    inp_entries=100,
    wgt_entries=33,
    acc_entries=50,
    vec_entries=70,
    coef_entries=20,
    prm_entries=9,
    out_entries=40,
    gemm_uop_entries=12,
    vector_uop_entries=12,
    lut_tables=3,
)

Entries = dict[str, set[int]]


def add(target: Entries, memory: Memory, entry: int) -> None:
    if entry >= memory_shape(memory, ODD).entries:
        raise IndexError
    target.setdefault(memory.name, set()).add(entry)


def enumerated_gemm(gemm: Gemm, uops: list[list[int]]) -> tuple[Entries, Entries]:
    reads: Entries = {}
    writes: Entries = {}
    for number in range(gemm.uop_begin, gemm.uop_begin + gemm.uop_count):
        add(reads, Memory.GUOP, number)
    for i in itertools.product(*(range(loop.extent) for loop in gemm.loops)):
        pairs = list(zip(gemm.loops, i, strict=True))
        for dst, src, wgt in uops:
            acc = (gemm.dst + dst + sum(x.dst * n for x, n in pairs)) % 64
            add(reads, Memory.INP, (gemm.src + src + sum(x.src * n for x, n in pairs)) % 128)
            add(reads, Memory.WGT, (gemm.wgt + wgt + sum(x.wgt * n for x, n in pairs)) % 64)
            add(writes, Memory.ACC, acc)
            if gemm.accumulate:
                add(reads, Memory.ACC, acc)
    return reads, writes


def enumerated_vector(vector: Vector, uops: list[list[int]]) -> tuple[Entries, Entries]:
    reads: Entries = {}
    writes: Entries = {}
    for number in range(vector.uop_begin, vector.uop_begin + vector.uop_count):
        add(reads, Memory.VUOP, number)
    steps = []
    for i in itertools.product(*(range(loop.extent) for loop in vector.loops)):
        pairs = list(zip(vector.loops, i, strict=True))
        for dst, src, coef in uops:
            steps.append(
                (
                    (vector.dst + dst + sum(x.dst * n for x, n in pairs)) % 64,
                    (vector.src + src + sum(x.src * n for x, n in pairs)) % 256,
                    (vector.coef + coef + sum(x.coef * n for x, n in pairs)) % 32,
                    (vector.prm + sum(x.prm * n for x, n in pairs)) % 16,
                )
            )
    target = Memory.OUT if vector.target is VectorTarget.OUT else Memory.ACC
    for position, (dst, src, coef, prm) in enumerate(steps):
        add(reads, Memory.ACC if src >= 128 else Memory.VEC, src % 128)
        if vector.operation is VectorOperation.MAC:
            add(reads, Memory.COEF, coef)
        if position + 1 == len(steps) or steps[position + 1][0] != dst:
            add(writes, target, dst)
            if vector.requantise:
                add(reads, Memory.PRM, prm)
            if vector.lookup:
                add(reads, Memory.LUT, vector.lut)
    return reads, writes


def as_sets(found: Accesses) -> tuple[Entries, Entries]:
    for access in (*found.reads, *found.writes):
        np.testing.assert_array_equal(access.entries, np.unique(access.entries))
    return tuple(  # type: ignore[return-value]
        {access.memory.name: set(access.entries.tolist()) for access in side}
        for side in (found.reads, found.writes)
    )


def extents(rng: random.Random) -> int:
    return rng.choice([1, 1, 2, 3, 5])


def stride(rng: random.Random, bits: int) -> int:
    return rng.choice([0, 0, 1, 2, rng.randrange(1 << bits), (1 << bits) - 1])


def test_gemm_and_vector_against_enumeration() -> None:
    rng = random.Random(5)
    outcomes = {True: 0, False: 0}
    for _ in range(1500):
        count = rng.randint(1, 4)
        begin = rng.randrange(10)
        gemm = Gemm(
            accumulate=rng.random() < 0.5,
            uop_begin=begin,
            uop_count=count,
            dst=rng.randrange(45),
            src=rng.randrange(100),
            wgt=rng.randrange(30),
            loops=tuple(
                GemmLoop(
                    extent=extents(rng), dst=stride(rng, 6), src=stride(rng, 7), wgt=stride(rng, 6)
                )
                for _ in range(3)
            ),
        )
        vector = Vector(
            operation=rng.choice(list(VectorOperation)),
            target=rng.choice(list(VectorTarget)),
            requantise=rng.random() < 0.7,
            lookup=rng.random() < 0.5,
            lut=rng.randrange(4),
            uop_begin=begin,
            uop_count=count,
            dst=rng.randrange(40),
            src=rng.choice([rng.randrange(60), 128 + rng.randrange(40)]),
            coef=rng.randrange(16),
            prm=rng.randrange(8),
            loops=tuple(
                VectorLoop(
                    extent=extents(rng),
                    dst=stride(rng, 6),
                    src=rng.choice([0, 1, 3, 255]),
                    coef=stride(rng, 5),
                    prm=stride(rng, 4),
                )
                for _ in range(3)
            ),
        )
        same = rng.random() < 0.5
        uops = [
            [7 if same else rng.randrange(3), rng.randrange(4), rng.randrange(4)]
            for _ in range(count)
        ]
        cases: list[tuple[Any, Any]] = [(gemm, enumerated_gemm), (vector, enumerated_vector)]
        for instruction, enumerated in cases:
            try:
                expected = enumerated(instruction, uops)
            except IndexError:
                with pytest.raises(
                    ProgramError, match=r" reaches entry \d+ of \w+, which has \d+ "
                ):
                    accesses(instruction, ODD, np.array(uops))
                outcomes[False] += 1
            else:
                assert as_sets(accesses(instruction, ODD, np.array(uops))) == expected
                outcomes[True] += 1
    assert min(outcomes.values()) > 500, outcomes


def bytes_of(ranges: Any) -> list[int]:
    return [b for start in ranges.starts.tolist() for b in range(start, start + ranges.size_bytes)]


@given(st.data())
@settings(max_examples=200)
def test_transfers_against_enumeration(data: st.DataObject) -> None:
    small = st.integers(1, 5)
    stride = st.sampled_from([0, 4, 8, 12, 16, 40, (1 << 32) - 16])
    shape = {
        "entries": data.draw(small),
        "rows": data.draw(small),
        "planes": data.draw(small),
        "row_stride": data.draw(stride),
        "plane_stride": data.draw(stride),
        "address": data.draw(st.sampled_from([0, 64, 4096, (1 << 32) - 8])),
    }
    pads = {
        f"pad_{side}": data.draw(st.integers(0, 2)) for side in ("left", "right", "top", "bottom")
    }
    load = Load(memory=Memory.INP, dst=2, **shape, **pads)
    store = Store(src=3, **shape)
    height = shape["rows"] + pads["pad_top"] + pads["pad_bottom"]
    width = shape["entries"] + pads["pad_left"] + pads["pad_right"]
    expected = [
        (shape["address"] + plane * shape["plane_stride"] + row * shape["row_stride"]) % (1 << 32)
        + offset
        for plane in range(shape["planes"])
        for row in range(shape["rows"])
        for offset in range(4 * shape["entries"])
    ]
    config = ODD.replace(inp_entries=512, out_entries=512)
    loaded, stored = accesses(load, config), accesses(store, config)
    assert bytes_of(loaded.dram_reads) == bytes_of(stored.dram_writes) == expected
    assert as_sets(loaded) == ({}, {"INP": set(range(2, 2 + shape["planes"] * height * width))})
    assert as_sets(stored) == ({"OUT": set(range(3, 3 + len(expected) // 4))}, {})
    assert loaded.dram_writes is None
    assert stored.dram_reads is None


def test_a_load_that_only_pads_reads_nothing() -> None:
    found = accesses(Load(memory=Memory.VEC, dst=4, entries=0, rows=3, pad_left=2), TINY)
    assert found.dram_reads is None
    assert as_sets(found) == ({}, {"VEC": set(range(4, 10))})


@given(st.sets(st.integers(0, 63)), st.integers(-200, 200))
def test_masks(indices: set[int], distance: int) -> None:
    mask = mask_of(np.array(sorted(indices), dtype=np.int64), 6)
    assert set(indices_of(mask).tolist()) == indices
    assert set(indices_of(rotate(mask, distance, 6)).tolist()) == {
        (index + distance) % 64 for index in indices
    }


@given(
    st.sets(st.integers(0, 31), min_size=1),
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 31))),
)
def test_sweeps(indices: set[int], loops: list[tuple[int, int]]) -> None:
    expected = indices
    for extent, stride_ in loops:
        expected = {(i + n * stride_) % 32 for i in expected for n in range(extent)}
    mask = mask_of(np.array(sorted(indices), dtype=np.int64), 5)
    assert set(indices_of(sweep(mask, loops, 5)).tolist()) == expected


@given(st.data())
@settings(max_examples=100)
def test_operands_are_answered_or_refused(data: st.DataObject) -> None:
    instruction = data.draw(instructions(TINY))
    try:
        accesses(instruction, TINY, np.array([[0, 1, 2], [3, 0, 1]]))
    except ProgramError:
        pass


@pytest.mark.parametrize("stride", [1, 7, 63])
def test_the_effort_does_not_follow_the_steps(stride: int) -> None:
    uops = np.array([[0, 1, 2], [3, 0, 1]])
    small, large = (
        Gemm(uop_count=2, loops=(GemmLoop(extent=extent, dst=stride, src=stride, wgt=stride),) * 3)
        for extent in (2, 4095)
    )
    ratio = growth(
        lambda: accesses(small, TINY, uops),
        lambda: accesses(large, TINY, uops),
    )
    # Steps are 8.6e9 times as many.
    assert ratio < 100
