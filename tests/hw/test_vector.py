"""The vector engine on scratchpads that answer collisions with noise, against exact integers."""

from fractions import Fraction
from itertools import groupby, product
from typing import Any

import numpy as np
import pytest

from tilewright.hw.vector import VectorEngine, lut_words
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import encode_uops
from tilewright.isa.instructions import (
    VECTOR_OPERAND_BITS,
    Vector,
    VectorLoop,
    VectorOperation,
    VectorTarget,
    VectorUop,
)
from tilewright.isa.presets import TINY
from tilewright.isa.timing import ISSUE_START_CYCLES, VECTOR_STAGES, steps

CONFIGS = {
    "tiny": TINY,
    "two tables, odd banks": TINY.replace(
        lut_tables=2, acc_entries=46, vec_entries=50, port_bits=32
    ),
    "batch of two": TINY.replace(batch=2),
    "no multipliers": TINY.replace(lane_multipliers=0),
}


class Machine:
    """Contents of the scratchpads, and what `Vector` does to them, lane by lane."""

    def __init__(self, config: AcceleratorConfig, rng: np.random.Generator) -> None:
        self.config = config
        lanes, outputs = config.batch * config.block_out, config.block_out
        self.uops = rng.integers(0, 4, (config.vector_uop_entries, 3))
        self.uops[rng.random(len(self.uops)) < 0.5, 1] += config.acc_operand_base
        self.vec = rng.integers(-128, 128, (config.vec_entries, lanes)).astype(np.int8)
        self.coef = rng.integers(-(2**15), 2**15, (config.coef_entries, outputs)).astype("<i2")
        self.prm = np.zeros((config.prm_entries, outputs, 2), "<u4")
        self.prm[..., 0] = rng.integers(-1000, 1000, self.prm.shape[:2]).astype("<i4").view("<u4")
        self.prm[..., 1] = rng.integers(1 << 23, 1 << 24, self.prm.shape[:2])
        self.prm[..., 1] |= rng.integers(22, 40, self.prm.shape[:2], np.uint32) << 24
        self.lut = rng.integers(-128, 128, (config.lut_tables, 256)).astype(np.int8)
        self.acc = rng.integers(-(2**12), 2**12, (config.acc_entries, lanes)).astype("<i4")
        self.acc[rng.random(self.acc.shape) < 0.1] = 2**31 - 1
        self.out = np.zeros((config.out_entries, lanes), np.int8)

    def execute(self, vector: Vector) -> None:
        config = self.config
        indices = []
        ranges = (range(loop.extent) for loop in vector.loops)
        for *iterations, uop in product(*ranges, range(vector.uop_count)):
            index = [*self.uops[vector.uop_begin + uop].tolist(), 0]
            for kind, name in enumerate(("dst", "src", "coef", "prm")):
                index[kind] += getattr(vector, name)
                for iteration, loop in zip(iterations, vector.loops, strict=True):
                    index[kind] += iteration * getattr(loop, name)
            index[1] %= 1 << config.operand_bits
            indices.append(index)
        results = []
        for dst, group in groupby(indices, key=lambda index: index[0]):
            run = list(group)
            values = [self._operand(vector, src, coef) for _, src, coef, _ in run]
            results.append(
                (
                    dst,
                    [
                        self._result(vector, lane, [int(v[lane]) for v in values], run[-1][3])
                        for lane in range(self.acc.shape[1])
                    ],
                )
            )
        for dst, values in results:
            target = self.out if vector.target is VectorTarget.OUT else self.acc
            target[dst] = values

    def _operand(self, vector: Vector, src: int, coef: int) -> list[int]:
        base = self.config.acc_operand_base
        values = [int(v) for v in (self.acc[src - base] if src >= base else self.vec[src])]
        if vector.operation is not VectorOperation.MAC:
            return values
        size = 1 << VECTOR_OPERAND_BITS
        seen = [(v + size // 2) % size - size // 2 for v in values]
        outputs = self.config.block_out
        return [v * int(self.coef[coef][lane % outputs]) for lane, v in enumerate(seen)]

    def _result(self, vector: Vector, lane: int, values: list[int], prm: int) -> int:
        combine = {VectorOperation.MAX: max, VectorOperation.MIN: min}.get(vector.operation, sum)
        run = (combine(values) + 2**31) % 2**32 - 2**31
        if vector.requantise:
            bias, word = (int(v) for v in self.prm[prm][lane % self.config.block_out])
            bias = (bias + 2**31) % 2**32 - 2**31
            scaled = Fraction((run + bias) * (word & 0xFFFFFF), 1 << (word >> 24 & 63))
            run = round(scaled) + vector.zero_point
        if vector.requantise or vector.target is VectorTarget.OUT:
            run = min(max(run, vector.low), vector.high)
        return int(self.lut[vector.lut][run + 128]) if vector.lookup else run


def draw(machine: Machine, rng: np.random.Generator) -> Vector:
    """An instruction that reads no accumulator which it writes."""
    config = machine.config
    target = VectorTarget(int(rng.integers(0, 2)))
    requantise = bool(rng.integers(0, 2))
    low, high = sorted(rng.integers(-128, 128, 2).tolist())
    count = int(rng.integers(1, 5))
    loops = tuple(
        VectorLoop(
            extent=int(rng.integers(1, 3)),
            dst=int(rng.integers(0, 3)),
            src=int(rng.integers(0, 2)),
            coef=int(rng.integers(0, 3)),
            prm=int(rng.integers(0, 3)),
        )
        for _ in range(3)
    )
    written = config.out_entries if target is VectorTarget.OUT else config.acc_entries
    return Vector(
        operation=VectorOperation(int(rng.integers(0, 4))),
        target=target,
        requantise=requantise,
        lookup=bool(rng.integers(0, 2)) and (requantise or target is VectorTarget.OUT),
        lut=int(rng.integers(0, config.lut_tables)),
        zero_point=int(rng.integers(-128, 128)),
        low=low,
        high=high,
        uop_begin=int(rng.integers(0, config.vector_uop_entries - count)),
        uop_count=count,
        dst=int(rng.integers(16, written - 16)),
        src=int(rng.integers(0, 4)),
        coef=int(rng.integers(0, config.coef_entries - 16)),
        prm=int(rng.integers(0, config.prm_entries - 16)),
        loops=loops,
        signal=int(rng.integers(0, 16)),
    )


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_random_instructions(
    run_benches: Any,
    scratchpad: Any,
    record_engine: Any,
    rng: np.random.Generator,
    config: AcceleratorConfig,
) -> None:
    engine = VectorEngine(config)
    machine = Machine(config, rng)
    instructions = [draw(machine, rng) for _ in range(50)]
    record = record_engine(engine, instructions, config)

    def bench(contents: Any, read: Any, write: Any = None) -> Any:
        model = scratchpad(contents.reshape(len(contents), -1).view(np.uint8))
        return model.bench(record.running, read, write)

    out = machine.out.copy()
    banks = machine.acc.copy().reshape(2, config.acc_bank_entries, -1)
    words = machine.lut.reshape(lut_words(config), -1)
    run_benches(
        engine,
        record.give,
        record.watch,
        bench(encode_uops(VectorUop, machine.uops, config), engine.vuop),
        bench(machine.vec, engine.vec),
        bench(machine.coef, engine.coef),
        bench(machine.prm, engine.prm),
        *(bench(words, port) for port in engine.lut),
        *(bench(banks[i], engine.acc_read[i], engine.acc_write[i]) for i in range(2)),
        bench(out, None, engine.out),
    )
    for vector in instructions:
        machine.execute(vector)
    assert np.array_equal(out, machine.out)
    assert np.array_equal(banks.reshape(machine.acc.shape), machine.acc)
    assert record.signals == [vector.signal for vector in instructions]
    lasts = [
        start + ISSUE_START_CYCLES + steps(vector) - 1
        for start, vector in zip(record.starts, instructions, strict=True)
    ]
    assert record.finishes == [last + VECTOR_STAGES for last in lasts]
    free = [
        (finish if vector.target is VectorTarget.ACC else last) + 1
        for vector, last, finish in zip(instructions, lasts, record.finishes, strict=True)
    ]
    assert record.starts[1:] == free[:-1]
