"""The sequencer against nested loops."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from tilewright.hw.sequencer import Sequencer, index_kinds
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import layout
from tilewright.isa.instructions import Gemm, Vector
from tilewright.isa.presets import PYNQ, TINY
from tilewright.isa.timing import ISSUE_START_CYCLES


def draw(
    cls: type[Gemm] | type[Vector], config: AcceleratorConfig, rng: np.random.Generator
) -> dict[str, int]:
    """Operands of an instruction by their name in the hardware, extents small."""
    values = {}
    for item in layout(cls, config)[1:]:
        name = item.field.path.replace(".", "_")
        values[name] = int(rng.integers(item.low, item.high, endpoint=True))
        if name.endswith("extent") or name == "uop_count":
            values[name] = int(rng.choice([1, 1, 2, 3]))
    return values


def steps(values: dict[str, int], kinds: tuple[str, ...], widths: dict[str, int]) -> list[Any]:
    extents = [range(values[f"loops_{level}_extent"]) for level in range(3)]
    result = []
    for *iterations, uop in product(*extents, range(values["uop_count"])):
        step = {"uop": (values["uop_begin"] + uop) % (1 << widths["uop"])}
        for kind in kinds:
            moved = sum(n * values[f"loops_{i}_{kind}"] for i, n in enumerate(iterations))
            step[kind] = (values[kind] + moved) % (1 << widths[kind])
        result.append(step)
    return result


@pytest.mark.parametrize("cls", [Gemm, Vector])
@pytest.mark.parametrize("config", [TINY, PYNQ], ids=lambda config: config.name)
def test_steps_of_random_instructions(
    run_benches: Any,
    rng: np.random.Generator,
    cls: type[Gemm] | type[Vector],
    config: AcceleratorConfig,
) -> None:
    sequencer = Sequencer(cls, config)
    kinds = index_kinds(cls)
    members = sequencer.step.shape().members
    widths = {name: shape.width for name, shape in members.items()}
    instructions = [draw(cls, config, rng) for _ in range(30)]
    taken: list[int] = []
    made: list[tuple[int, dict[str, int], bool, bool]] = []
    ended = False

    async def give(ctx: Any) -> None:
        nonlocal ended
        cycle = 0
        for values in instructions:
            pause = 1 + int(rng.choice([0, 0, 3]))
            await ctx.tick().repeat(pause)
            cycle += pause
            ctx.set(sequencer.instruction.payload, values)
            ctx.set(sequencer.instruction.valid, 1)
            while not ctx.get(sequencer.instruction.ready):
                await ctx.tick()
                cycle += 1
            taken.append(cycle)
            await ctx.tick()
            cycle += 1
            ctx.set(sequencer.instruction.valid, 0)
        while not ctx.get(sequencer.instruction.ready):
            await ctx.tick()
        ended = True

    async def watch(ctx: Any) -> None:
        cycle = 0
        while not ended:
            if ctx.get(sequencer.valid):
                step = sequencer.step
                indices = {name: ctx.get(step[name]) for name in ("uop", *kinds)}
                made.append((cycle, indices, ctx.get(step.first), ctx.get(step.last)))
            await ctx.tick()
            cycle += 1

    run_benches(sequencer, give, watch)
    expected = [steps(values, kinds, widths) for values in instructions]
    assert made == [
        (start + ISSUE_START_CYCLES + number, step, number == 0, number == len(made_by) - 1)
        for start, made_by in zip(taken, expected, strict=True)
        for number, step in enumerate(made_by)
    ]
