"""The program in `docs/programs.md` is legal and does what the page says."""

import re
from pathlib import Path

import numpy as np

from tilewright.isa.assembly import assemble
from tilewright.isa.semantics import MachineState, execute
from tilewright.isa.validator import validate


def test_the_example_multiplies_by_the_identity(repository: Path, rng: np.random.Generator) -> None:
    page = (repository / "docs" / "programs.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```\n(\.preset.*?)```", page, re.DOTALL)
    program = assemble(text)
    validate(program)
    (x,), (y,) = program.inputs, program.outputs
    dram = program.initial_dram()
    data = rng.integers(0, 256, x.size_bytes, dtype=np.uint8)
    dram[x.address : x.address + x.size_bytes] = data
    state = MachineState(program.config, dram)
    for instruction in program.instructions:
        execute(instruction, state)
    np.testing.assert_array_equal(dram[y.address : y.address + y.size_bytes], data)
