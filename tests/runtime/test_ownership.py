"""Every cycle counts for one layer, by the rule of the module, cycle by cycle."""

import numpy as np
import pytest

from tilewright.isa.memories import Engine
from tilewright.isa.presets import PRESETS
from tilewright.runtime.compiled_model import CompiledModel
from tilewright.runtime.model import Model, compile_model
from tilewright.runtime.ownership import layer_ownership
from tilewright.runtime.segments import LAYER_ROW, merge_segments
from tilewright.sim.clockwork import simulate_timing
from tilewright.sim.timeline import Timeline


def owners_by_cycle(timeline: Timeline, layers: tuple[int, ...]) -> list[int]:
    """Say for each cycle which layer it counts for, one cycle after the other."""
    at_work: dict[Engine, dict[int, int]] = {engine: {} for engine in Engine}
    for position, layer in enumerate(layers):
        if timeline.engine[position] >= 0:
            end = int(timeline.last_step[position])
            length = int(timeline.busy[position] + timeline.memory_wait[position])
            for cycle in range(end - length + 1, end + 1):
                assert cycle not in at_work[Engine(timeline.engine[position])]
                at_work[Engine(timeline.engine[position])][cycle] = layer
    owners: list[int] = []
    waiting = 0
    for cycle in range(timeline.cycles):
        for engine in (Engine.GEMM, Engine.VECTOR, Engine.LOAD, Engine.STORE):
            if cycle in at_work[engine]:
                owners += [at_work[engine][cycle]] * (waiting + 1)
                waiting = 0
                break
        else:
            waiting += 1
    return owners + [owners[-1]] * waiting


@pytest.mark.parametrize("preset", ["pynq", "tiny"])
def test_it_is_the_rule(digits: Model, preset: str) -> None:
    (program,) = compile_model(digits, PRESETS[preset]).programs
    timeline = simulate_timing(program)
    ownership = layer_ownership(timeline, program.layer_of_instruction)
    found = np.repeat(ownership.layer, ownership.cycles)
    np.testing.assert_array_equal(found, owners_by_cycle(timeline, program.layer_of_instruction))
    np.testing.assert_array_equal(
        ownership.begin, np.concatenate(([0], np.cumsum(ownership.cycles)[:-1]))
    )
    assert np.all(np.diff(ownership.layer) != 0)


def test_without_layers_nobody_owns_anything(compiled_digits: CompiledModel) -> None:
    (program,) = compiled_digits.programs
    timeline = simulate_timing(program)
    ownership = layer_ownership(timeline, ())
    assert ownership.layer.tolist() == [-1]
    assert ownership.cycles.tolist() == [timeline.cycles]


def test_segments_are_few_however_long_the_run(
    compiled_digits: CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    (step,) = (item for item in compiled_digits.compiled.steps if hasattr(item, "program"))
    timeline = simulate_timing(step.program)
    fine = merge_segments([step], [timeline])
    monkeypatch.setattr("tilewright.runtime.segments.RESOLUTION", 1 / 20)
    coarse = merge_segments([step], [timeline])
    assert len(coarse) < len(fine) / 2
    for engine in (LAYER_ROW, *Engine):
        busy = [sum(s.busy for s in found if s.engine == engine) for found in (fine, coarse)]
        assert busy[0] == busy[1]
