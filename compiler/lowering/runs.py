"""Blocks of products as gemm instructions: equal products, evenly shifted operands."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

#: For each product of a block the entry of `inp` that it reads, from any common origin on.
Sources: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """Blocks, one behind the other, that one gemm instruction computes."""

    #: Number of the first block, and how many there are.
    first: int
    count: int
    #: int64 ``[n, 3]``, the fields of `GemmUop`.
    uops: npt.NDArray[np.int64]
    #: Offset into the weights, and what each further block adds.
    wgt: int
    wgt_step: int
    #: Offset into the input tile, and what each further block adds.
    src: int
    src_step: int


def group_runs(blocks: Sequence[Sources], group: int) -> tuple[Run, ...]:
    """Join neighbours among each `group` blocks as far as their products agree.

    The weights of the blocks lie one behind the other.
    """
    starts = np.cumsum([0, *(len(block) for block in blocks)]).tolist()
    runs: list[Run] = []
    for begin in range(0, len(blocks), group):
        numbers = range(begin, min(begin + group, len(blocks)))
        runs += _joined(_run(blocks[n], n, starts[n]) for n in numbers if len(blocks[n]))
    return tuple(runs)


def _run(sources: Sources, number: int, start: int) -> Run:
    src = int(sources.min())
    fields = (np.zeros_like(sources), sources - src, np.arange(len(sources)))
    return Run(
        first=number,
        count=1,
        uops=np.stack(fields, axis=1),
        wgt=start,
        wgt_step=0,
        src=src,
        src_step=0,
    )


def _joined(runs: Iterable[Run]) -> list[Run]:
    result: list[Run] = []
    for run in runs:
        longer = _join(result[-1], run) if result else None
        if longer is None:
            result.append(run)
        else:
            result[-1] = longer
    return result


def _join(run: Run, block: Run) -> Run | None:
    """Extend a run by one block, or return None where it does not fit the pattern."""
    if block.first != run.first + run.count or not np.array_equal(block.uops, run.uops):
        return None
    wgt_step, src_step = block.wgt - run.wgt, block.src - run.src
    if run.count > 1:
        even = wgt_step == run.count * run.wgt_step and src_step == run.count * run.src_step
        return replace(run, count=run.count + 1) if even else None
    if src_step < 0:
        return None
    return replace(run, count=2, wgt_step=wgt_step, src_step=src_step)
