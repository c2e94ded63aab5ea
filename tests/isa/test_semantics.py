"""The semantics equal a scalar interpreter written from the instructions' descriptions."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scalar import Scalar

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import encode_uops
from tilewright.isa.errors import ProgramError
from tilewright.isa.instructions import (
    Finish,
    Gemm,
    GemmLoop,
    GemmUop,
    Load,
    Store,
    Vector,
    VectorLoop,
    VectorOperation,
    VectorTarget,
    VectorUop,
)
from tilewright.isa.memories import Memory
from tilewright.isa.presets import PRESETS
from tilewright.isa.semantics import MachineState, execute

TINY = PRESETS["tiny"]
CONFIGS = {
    "tiny": TINY,
    "batch": TINY.replace(batch=2, port_bits=128),
    "wide": TINY.replace(block_in=4, block_out=8, port_bits=32),
    "narrow": TINY.replace(block_in=16, block_out=2, acc_entries=48, inp_entries=200),
}
DRAM_BYTES = 1 << 14


def random_state(config: AcceleratorConfig, rng: np.random.Generator) -> MachineState:
    state = MachineState(config, rng.integers(0, 256, DRAM_BYTES, dtype=np.uint8))
    for data in state.bytes.values():
        data[...] = rng.integers(0, 256, data.shape, dtype=np.uint8)
    return state


def check(instruction: Any, state: MachineState) -> None:
    """Execute on both and compare the whole machine."""
    scalar = Scalar(state)
    scalar.execute(instruction)
    execute(instruction, state)
    for memory in Memory:
        expected = np.array(scalar.memories[memory], np.uint8)
        np.testing.assert_array_equal(state.bytes[memory], expected, err_msg=memory.name)
    np.testing.assert_array_equal(state.dram, np.array(scalar.dram, np.uint8))


@pytest.fixture(params=CONFIGS.values(), ids=CONFIGS.keys())
def config(request: pytest.FixtureRequest) -> AcceleratorConfig:
    return request.param


@pytest.fixture
def state(config: AcceleratorConfig, rng: np.random.Generator) -> MachineState:
    return random_state(config, rng)


def below(rng: np.random.Generator, limit: int) -> int:
    return int(rng.integers(0, limit))


def extents(rng: np.random.Generator) -> list[int]:
    return rng.permutation([1, below(rng, 4) + 1, below(rng, 5) + 1]).tolist()


def set_uops(state: MachineState, cls: type, first: int, rows: np.ndarray) -> None:
    memory = Memory.GUOP if cls is GemmUop else Memory.VUOP
    state.bytes[memory][first : first + len(rows)] = encode_uops(cls, rows, state.config)


def random_gemm(state: MachineState, rng: np.random.Generator, *, regular: bool) -> Gemm:
    """A gemm whose indices stay in range, with regular runs or with any."""
    config = state.config
    count = below(rng, 6) + 1
    room = [config.acc_entries, config.inp_entries, config.wgt_entries]
    dst = np.repeat(below(rng, 4), count) if regular else rng.integers(0, 3, count)
    uops = np.stack([dst, rng.integers(0, 8, count), rng.integers(0, 8, count)], axis=1)
    first = below(rng, config.gemm_uop_entries - count + 1)
    set_uops(state, GemmUop, first, uops)
    stride = [1, 4, 0, 5] if regular else [0, 1, 2]
    loops = tuple(
        GemmLoop(
            extent=extent,
            dst=int(rng.choice(stride)),
            src=below(rng, 4),
            wgt=int(rng.choice([0, 0, 3])),
        )
        for extent in extents(rng)
    )
    spans = [
        sum((loop.extent - 1) * getattr(loop, name) for loop in loops) + int(uops[:, column].max())
        for column, name in enumerate(("dst", "src", "wgt"))
    ]
    bases = [below(rng, limit - span) for limit, span in zip(room, spans, strict=True)]
    return Gemm(
        accumulate=bool(below(rng, 2)),
        uop_begin=first,
        uop_count=count,
        dst=bases[0],
        src=bases[1],
        wgt=bases[2],
        loops=loops,
    )


@pytest.mark.parametrize("regular", [True, False])
def test_random_gemm(state: MachineState, rng: np.random.Generator, regular: bool) -> None:
    for _ in range(60):
        check(random_gemm(state, rng, regular=regular), state)


def random_vector(state: MachineState, rng: np.random.Generator) -> Vector:
    config = state.config
    target = VectorTarget(below(rng, 2))
    count = below(rng, 6) + 1
    base = config.acc_operand_base
    dst = np.repeat(below(rng, 4), count) if below(rng, 2) else rng.integers(0, 3, count)
    src = rng.integers(0, 8, count)
    if below(rng, 3) == 0:
        src += base * rng.integers(0, 2, count)
    uops = np.stack([dst, src, rng.integers(0, 8, count)], axis=1)
    first = below(rng, config.vector_uop_entries - count + 1)
    set_uops(state, VectorUop, first, uops)
    loops = tuple(
        VectorLoop(
            extent=extent,
            dst=int(rng.choice([0, 1, 4])),
            src=below(rng, 4),
            coef=int(rng.choice([0, 0, 2])),
            prm=int(rng.choice([0, 0, 1])),
        )
        for extent in extents(rng)
    )
    span = {
        name: sum((loop.extent - 1) * getattr(loop, name) for loop in loops)
        for name in ("dst", "src", "coef", "prm")
    }
    entries = config.out_entries if target is VectorTarget.OUT else config.acc_entries
    sources = min(config.vec_entries, config.acc_entries)
    low, high = sorted(rng.integers(-128, 128, 2).tolist())
    start = below(rng, sources - span["src"] - 7)
    if src.max() < base and below(rng, 2):
        start += base
    return Vector(
        operation=VectorOperation(below(rng, 4)),
        target=target,
        requantise=bool(below(rng, 2)),
        lookup=bool(below(rng, 2)),
        lut=below(rng, config.lut_tables),
        zero_point=below(rng, 256) - 128,
        low=low,
        high=high,
        uop_begin=first,
        uop_count=count,
        dst=below(rng, entries - span["dst"] - 3),
        src=start,
        coef=below(rng, config.coef_entries - span["coef"] - 7),
        prm=below(rng, config.prm_entries - span["prm"]),
        loops=loops,
    )


def set_typical_parameters(state: MachineState, rng: np.random.Generator) -> None:
    """Biases and scales as networks have them, in half of the entries."""
    shape = state.prm[::2, :, 0].shape
    state.prm[::2, :, 0] = rng.integers(-5000, 5000, shape).astype(np.int32).view(np.uint32)
    shift = rng.integers(24, 40, shape)
    multiplier = rng.integers(1 << 23, 1 << 24, shape)
    state.prm[::2, :, 1] = multiplier | shift << 24


def test_random_vector(state: MachineState, rng: np.random.Generator) -> None:
    for _ in range(150):
        set_typical_parameters(state, rng)
        check(random_vector(state, rng), state)


def test_rounding_ties_go_to_even(config: AcceleratorConfig) -> None:
    state = MachineState(config, np.zeros(64, np.uint8))
    count = min(config.out_entries, config.acc_bank_entries, 16)
    state.acc[:count] = np.arange(-count // 2, count // 2)[:, None, None]
    state.prm[0, :, 1] = 1 | 1 << 24  # one half
    vector = Vector(
        operation=VectorOperation.SUM,
        requantise=True,
        src=config.acc_operand_base,
        loops=(VectorLoop(), VectorLoop(), VectorLoop(extent=count, dst=1, src=1)),
    )
    execute(vector, state)
    expected = [round(Fraction(value, 2)) for value in range(-count // 2, count // 2)]
    assert state.out[:count, 0, 0].tolist() == expected


@pytest.mark.parametrize(
    "total", [(1 << 29) - 1, 1 << 29, -(1 << 29) + 1, -(1 << 29), (1 << 31) - 1]
)
def test_requantisation_at_the_edge_of_float64(total: int) -> None:
    state = MachineState(TINY, np.zeros(64, np.uint8))
    for multiplier in ((1 << 24) - 1, (1 << 23) + 1, 0):
        for shift in (0, 46, 47, 53, 63):
            state.acc[0] = total
            state.prm[0, :, 0] = 5
            state.prm[0, :, 1] = multiplier | shift << 24
            check(
                Vector(operation=VectorOperation.SUM, requantise=True, src=TINY.acc_operand_base),
                state,
            )


def random_rows(
    config: AcceleratorConfig, rng: np.random.Generator, size: int, entries_limit: int
) -> dict[str, int]:
    entries, rows, planes = below(rng, 4) + 1, below(rng, 3) + 1, below(rng, 3) + 1
    unit = min(size, config.port_bytes)
    length = entries * size
    row_stride = length + unit * below(rng, 4)
    plane_stride = rows * row_stride + unit * below(rng, 4)
    if below(rng, 4) == 0:
        row_stride, plane_stride = unit * below(rng, 4), unit * below(rng, 4)
    first = unit * below(rng, 64)
    if below(rng, 4) == 0 and rows > 1:
        first += rows * length
        row_stride = 2**32 - length
    while planes * rows * entries > entries_limit:
        planes, rows, entries = 1, 1, 1
    return {
        "entries": entries,
        "rows": rows,
        "planes": planes,
        "row_stride": row_stride,
        "plane_stride": plane_stride,
        "address": first,
    }


@pytest.mark.parametrize("memory", [m for m in Memory if m not in (Memory.ACC, Memory.OUT)])
def test_random_load(state: MachineState, rng: np.random.Generator, memory: Memory) -> None:
    limit, size = state.bytes[memory].shape
    for _ in range(25):
        fields = random_rows(state.config, rng, size, limit)
        load = Load(memory=memory, dst=0, **fields)
        if below(rng, 2):
            names = ("pad_left", "pad_right", "pad_top", "pad_bottom")
            pads = dict(zip(names, rng.integers(0, 3, 4).tolist(), strict=True))
            padded = replace(load, pad_value=below(rng, 256) - 128, **pads)
            load = padded if padded.written_entries <= limit else load
        load = replace(load, dst=below(rng, limit - load.written_entries + 1))
        check(load, state)


def test_padding_only(state: MachineState) -> None:
    check(
        Load(memory=Memory.VEC, dst=3, entries=0, rows=2, pad_left=1, pad_top=1, pad_value=-5),
        state,
    )
    check(Load(memory=Memory.INP, dst=3, entries=2, rows=0, pad_bottom=2, pad_value=7), state)


def test_random_store(state: MachineState, rng: np.random.Generator) -> None:
    limit, size = state.bytes[Memory.OUT].shape
    for _ in range(50):
        fields = random_rows(state.config, rng, size, limit)
        count = fields["entries"] * fields["rows"] * fields["planes"]
        check(Store(src=below(rng, limit - count + 1), **fields), state)


def test_indices_wrap_around(rng: np.random.Generator) -> None:
    state = random_state(TINY, rng)
    set_uops(state, GemmUop, 0, np.array([[63, 255, 63]]))
    set_uops(state, VectorUop, 0, np.array([[63, 511, 63]]))
    last = GemmLoop(extent=7, dst=63, src=250, wgt=60)
    check(Gemm(dst=60, src=250, wgt=60, loops=(GemmLoop(), GemmLoop(), last)), state)
    vector_last = VectorLoop(extent=7, dst=63, src=510, coef=60, prm=31)
    check(
        Vector(
            operation=VectorOperation.MAC,
            requantise=True,
            dst=60,
            src=13,
            coef=60,
            prm=30,
            loops=(VectorLoop(), VectorLoop(), vector_last),
        ),
        state,
    )


def test_accumulators_wrap_around() -> None:
    state = MachineState(TINY, np.zeros(64, np.uint8))
    state.inp[0] = -128
    state.wgt[0] = -128
    state.acc[0] = 2**31 - 1
    execute(Gemm(accumulate=True), state)
    assert state.acc[0, 0].tolist() == [-(2**31) + 4 * 2**14 - 1] * 4


def test_a_long_reduction_is_exact(rng: np.random.Generator) -> None:
    """More terms than float32 holds exactly: 4,096 products of 2**14, plus one of 1."""
    state = MachineState(TINY, np.zeros(64, np.uint8))
    state.inp[:64] = -128
    state.wgt[:64] = -128
    state.inp[64] = 1
    state.wgt[63] = 1
    set_uops(state, GemmUop, 0, np.stack([np.zeros(64, int), np.arange(1, 65), np.arange(64)], 1))
    loops = (GemmLoop(), GemmLoop(extent=16), GemmLoop())
    execute(Gemm(uop_count=64, loops=loops), state)
    assert state.acc[0, 0].tolist() == [16 * 4 * (63 * 2**14 + 1)] * 4


def test_the_largest_sum_wraps_around() -> None:
    """2**17 products of 2**14 are 2**31, one more than int32 holds."""
    state = MachineState(TINY, np.zeros(64, np.uint8))
    state.inp[0] = state.wgt[0] = -128
    loops = (GemmLoop(extent=8), GemmLoop(extent=16), GemmLoop(extent=256))
    execute(Gemm(loops=loops), state)
    assert state.acc[0, 0].tolist() == [-(2**31)] * 4


def test_an_endless_instruction_is_refused() -> None:
    state = MachineState(TINY, np.zeros(64, np.uint8))
    with pytest.raises(ProgramError) as caught:
        execute(Gemm(loops=(GemmLoop(extent=4095),) * 3), state)
    assert str(caught.value) == (
        "an instruction must have at most 16777216 steps to be executed with data, not 68669157375"
    )


def test_finish_changes_nothing(state: MachineState) -> None:
    check(Finish(), state)


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (Gemm(src=199, uop_begin=1), "gemm reads entry 200 of inp, which has 200 entries"),
        (Gemm(dst=48), "gemm writes entry 48 of acc, which has 48 entries"),
        (
            Load(memory=Memory.INP, dst=198, entries=3),
            "load writes entry 200 of inp, which has 200 entries",
        ),
        (
            Store(src=0, address=DRAM_BYTES - 2, entries=2),
            "store accesses bytes 16382 to 16385 of DRAM, which has 16384",
        ),
    ],
)
def test_what_does_not_exist_is_refused(instruction: Any, message: str) -> None:
    state = MachineState(CONFIGS["narrow"], np.zeros(DRAM_BYTES, np.uint8))
    set_uops(state, GemmUop, 1, np.array([[0, 1, 0]]))
    with pytest.raises(ProgramError) as caught:
        execute(instruction, state)
    assert str(caught.value) == message
