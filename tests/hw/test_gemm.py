"""The gemm engine on scratchpads that answer collisions with noise, against numpy."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from tilewright.hw.gemm import GemmEngine
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import encode_uops
from tilewright.isa.instructions import Gemm, GemmLoop, GemmUop
from tilewright.isa.presets import TINY
from tilewright.isa.timing import ISSUE_START_CYCLES, gemm_stages, steps

CONFIGS = {
    "tiny": TINY,
    "packed": TINY.replace(packed_multipliers=True, block_in=8),
    "odd banks": TINY.replace(acc_entries=46, inp_entries=50, wgt_entries=37, batch=2),
}


def draw(config: AcceleratorConfig, rng: np.random.Generator, uops: np.ndarray[Any, Any]) -> Gemm:
    """An instruction that often returns to an accumulator after one or two others."""
    count = int(rng.integers(1, 5))
    begin = int(rng.integers(0, len(uops) - count))
    small = [0, 1, 2]
    loops = tuple(
        GemmLoop(
            extent=int(rng.integers(1, 4)),
            dst=int(rng.choice(small)),
            src=int(rng.choice(small)),
            wgt=int(rng.choice(small)),
        )
        for _ in range(3)
    )
    return Gemm(
        accumulate=bool(rng.integers(0, 2)),
        uop_begin=begin,
        uop_count=count,
        dst=int(rng.integers(0, config.acc_entries - 16)),
        src=int(rng.integers(0, config.inp_entries - 16)),
        wgt=int(rng.integers(0, config.wgt_entries - 16)),
        loops=loops,
        signal=int(rng.integers(0, 16)),
    )


def execute(
    gemm: Gemm,
    uops: np.ndarray[Any, Any],
    inp: np.ndarray[Any, Any],
    wgt: np.ndarray[Any, Any],
    acc: np.ndarray[Any, Any],
) -> None:
    """Step by step, with a sum per run."""
    order = []
    for *iterations, uop in product(
        *(range(loop.extent) for loop in gemm.loops), range(gemm.uop_count)
    ):
        index = uops[gemm.uop_begin + uop] + [gemm.dst, gemm.src, gemm.wgt]
        for iteration, loop in zip(iterations, gemm.loops, strict=True):
            index = index + np.multiply(iteration, [loop.dst, loop.src, loop.wgt])
        order.append(tuple(index.tolist()))
    previous = None
    for dst, src, weights in order:
        if dst != previous and not gemm.accumulate:
            acc[dst] = 0
        acc[dst] += inp[src].astype(np.int64) @ wgt[weights].astype(np.int64).T
        previous = dst


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_random_instructions(
    run_benches: Any,
    scratchpad: Any,
    record_engine: Any,
    rng: np.random.Generator,
    config: AcceleratorConfig,
) -> None:
    engine = GemmEngine(config)
    batch, rows, columns = config.batch, config.block_out, config.block_in
    uops = rng.integers(0, 4, (config.gemm_uop_entries, 3))
    inp = rng.integers(-128, 128, (config.inp_entries, batch, columns)).astype(np.int8)
    wgt = rng.integers(-128, 128, (config.wgt_entries, rows, columns)).astype(np.int8)
    acc = rng.integers(-(2**31), 2**31, (config.acc_entries, batch, rows))
    banks = acc.astype("<i4").reshape(2, config.acc_bank_entries, -1).view(np.uint8)
    instructions = [draw(config, rng, uops) for _ in range(60)]
    record = record_engine(engine, instructions, config)
    running = record.running
    run_benches(
        engine,
        record.give,
        record.watch,
        scratchpad(encode_uops(GemmUop, uops, config)).bench(running, engine.guop),
        scratchpad(inp.reshape(len(inp), -1).view(np.uint8)).bench(running, engine.inp),
        scratchpad(wgt.reshape(len(wgt), -1).view(np.uint8)).bench(running, engine.wgt),
        *(
            scratchpad(bank).bench(running, read, write)
            for bank, read, write in zip(banks, engine.acc_read, engine.acc_write, strict=True)
        ),
    )
    expected = acc.copy()
    for gemm in instructions:
        execute(gemm, uops, inp, wgt, expected)
    assert np.array_equal(
        banks.reshape(-1).view("<i4").reshape(acc.shape), expected.astype(np.int32)
    )
    assert record.signals == [gemm.signal for gemm in instructions]
    lasts = [
        start + ISSUE_START_CYCLES + steps(gemm) - 1
        for start, gemm in zip(record.starts, instructions, strict=True)
    ]
    assert record.finishes == [last + gemm_stages(config) for last in lasts]
    assert record.starts[1:] == [last + 1 for last in lasts[:-1]]
