"""The use of scratchpads, on a program that one can follow by hand and against a count by cycle."""

from itertools import pairwise

import numpy as np
import pytest
from isa_programs import program_of

from tilewright.isa.memories import Memory, memory_shapes
from tilewright.isa.presets import PRESETS
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.occupancy import Occupancy, occupancies
from tilewright.runtime.report_charts import roofline
from tilewright.sim.clockwork import simulate_timing
from tilewright.sim.random_programs import random_program


def by_memory(found: tuple[Occupancy, ...]) -> dict[Memory, Occupancy]:
    return {one.memory: one for one in found}


def used_at(one: Occupancy, cycle: int) -> int:
    return int(one.used[np.flatnonzero(one.begin <= cycle)[-1]])


def test_a_program_that_one_can_follow() -> None:
    program = program_of()
    timeline = simulate_timing(program)
    found = by_memory(occupancies([program], [timeline]))
    load_inp, gemm, vector, store, load_vec = 4, 5, 6, 7, 8
    expected = {
        Memory.INP: (8, load_inp, gemm),
        Memory.WGT: (1, 3, gemm),
        Memory.ACC: (8, gemm, vector),
        Memory.OUT: (8, vector, store),
        Memory.PRM: (1, 2, vector),
        # Two micro-ops are loaded and one is read.
        Memory.GUOP: (1, 0, gemm),
        Memory.VUOP: (1, 1, vector),
        # What is loaded and never read is of no use.
        Memory.VEC: (0, load_vec, load_vec),
        Memory.COEF: (0, 0, 0),
        Memory.LUT: (0, 0, 0),
    }
    assert found.keys() == expected.keys()
    for memory, (entries, writer, reader) in expected.items():
        one = found[memory]
        first, last = int(timeline.start[writer]), int(timeline.finish[reader])
        assert one.peak == entries, memory
        assert one.mean == pytest.approx(entries * (last + 1 - first) / timeline.cycles)
        if entries:
            assert [used_at(one, c) for c in (first, last, last + 1)] == [entries, entries, 0]


def test_programs_stand_one_behind_the_other() -> None:
    program = program_of()
    timeline = simulate_timing(program)
    once = by_memory(occupancies([program], [timeline]))[Memory.INP]
    twice = by_memory(occupancies([program, program], [timeline, timeline]))[Memory.INP]
    assert twice.mean == pytest.approx(once.mean)
    for cycle in (0, timeline.cycles // 2, timeline.cycles - 1):
        assert used_at(twice, cycle) == used_at(twice, cycle + timeline.cycles)
        assert used_at(once, cycle) == used_at(twice, cycle)


@pytest.mark.parametrize("seed", range(12))
def test_no_scratchpad_is_fuller_than_full_and_bins_hold_the_highest(seed: int) -> None:
    config = PRESETS["tiny"]
    program = random_program(config, seed)
    timeline = simulate_timing(program)
    found = occupancies([program], [timeline])
    assert any(one.peak for one in found)
    for one in found:
        assert one.depth == memory_shapes(config)[one.memory].entries
        counts = np.zeros(timeline.cycles + 2, np.int64)
        for begin, end, used in zip(one.begin, [*one.begin[1:], None], one.used, strict=True):
            counts[begin:end] = used
        assert counts.min() >= 0
        assert counts.max() == one.peak <= one.depth
        assert counts[-1] == 0
        assert counts.sum() / timeline.cycles == pytest.approx(one.mean)
        bins = one.highest(7, timeline.cycles)
        edges = np.linspace(0, timeline.cycles, 8).astype(int)
        expected = [counts[low:high].max() for low, high in pairwise(edges)]
        assert bins[:-1] == expected[:-1]


def test_a_layer_of_the_roofline_stands_where_its_figures_say(
    compiled_digits: CompiledModel,
) -> None:
    result = compiled_digits.run(np.zeros((1, 1, 16, 16), np.float32))
    config = compiled_digits.config
    picture = roofline(result.stats, config)
    layers = [layer for layer in result.stats.layers if layer.macs]
    assert picture.count("<circle") == len(layers)
    for layer in layers:
        words = f"{layer.macs / layer.cycles:.1f} MACs per cycle"
        assert f"{layer.name}: {words}, {layer.macs / layer.dram_bytes:.1f} MACs per byte" in (
            picture
        )
