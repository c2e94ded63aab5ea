"""Runs of `Vector`: consecutive steps with one destination, which become one result."""

from collections.abc import Iterator

import numpy as np

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import Values
from tilewright.isa.errors import ProgramError
from tilewright.isa.index_sets import Indices, sweep
from tilewright.isa.instructions import LOOP_LEVELS, Vector
from tilewright.isa.timing import steps

#: Steps up to which an instruction that reads what it writes is checked, one by one.
MAX_IN_PLACE_STEPS = 1 << 24

_CHUNK_STEPS = 1 << 16


def parameter_mask(vector: Vector, uops: Values, config: AcceleratorConfig) -> int:
    """Mask of the `prm` entries that an instruction uses: those of the last step of each run.

    A run ends where the next step has another destination. Among the micro-ops of an iteration
    that is so in all iterations alike; from one iteration to the next it depends only on the
    outermost loop that advances, because all loops inside it return from their last iteration to
    their first.
    """
    bits = config.prm_index_bits
    loops = vector.loops
    if np.any(uops[1:, 0] != uops[:-1, 0]):
        return sweep(1 << vector.prm, ((loop.extent, loop.prm) for loop in loops), bits)
    mask = 0
    index_at_end = vector.prm
    return_to_first = 0
    for level in reversed(range(LOOP_LEVELS)):
        loop = loops[level]
        if loop.extent > 1 and (loop.dst - return_to_first) % (1 << config.result_index_bits):
            swept = [(outer.extent, outer.prm) for outer in loops[:level]]
            swept.append((loop.extent - 1, loop.prm))
            mask |= sweep(1 << index_at_end % (1 << bits), swept, bits)
        index_at_end += (loop.extent - 1) * loop.prm
        return_to_first += (loop.extent - 1) * loop.dst
    return mask | 1 << index_at_end % (1 << bits)


def read_after_own_write(vector: Vector, uops: Values, config: AcceleratorConfig) -> int | None:
    """Find an entry of `acc` that an instruction reads after an earlier of its runs wrote it.

    Raises `ProgramError` for more than `MAX_IN_PLACE_STEPS` steps.
    """
    if steps(vector) > MAX_IN_PLACE_STEPS:
        raise ProgramError(
            f"an instruction that reads entries of acc which it writes must have at most"
            f" {MAX_IN_PLACE_STEPS} steps, not {steps(vector)}"
        )
    first_write = np.full(1 << config.result_index_bits, np.iinfo(np.int64).max)
    run = 0
    previous = -1
    for dst, src in _step_indices(vector, uops, config):
        runs = run + np.cumsum(np.diff(dst, prepend=previous) != 0)
        writes_before = first_write[dst]
        first_write[dst[::-1]] = runs[::-1]
        first_write[dst] = np.minimum(first_write[dst], writes_before)
        from_acc = src >= config.acc_operand_base
        entries = src[from_acc] - config.acc_operand_base
        late = np.flatnonzero(first_write[entries] < runs[from_acc])
        if late.size:
            return int(entries[late[0]])
        run, previous = int(runs[-1]), int(dst[-1])
    return None


def _step_indices(
    vector: Vector, uops: Values, config: AcceleratorConfig
) -> Iterator[tuple[Indices, Indices]]:
    """Yield destination and operand of consecutive steps, in chunks."""
    shape = (*(loop.extent for loop in vector.loops), len(uops))
    count = steps(vector)
    for begin in range(0, count, _CHUNK_STEPS):
        *iterations, uop = np.unravel_index(
            np.arange(begin, min(begin + _CHUNK_STEPS, count)), shape
        )
        dst = vector.dst + uops[uop, 0]
        src = vector.src + uops[uop, 1]
        for iteration, loop in zip(iterations, vector.loops, strict=True):
            dst = dst + iteration * loop.dst
            src = src + iteration * loop.src
        yield dst % (1 << config.result_index_bits), src % (1 << config.operand_bits)
