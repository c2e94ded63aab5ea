"""Interleaving of kernels that feed each other, so that array and vector engine work side by side.

A depthwise convolution or a pooling keeps the vector engine busy and the array idle, the
convolutions around it do the opposite. Tile by tile in turns, all engines are busy: rows of one
kernel's result are read by the next kernel while the first still computes further rows.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

from tilewright.compiler.lowering.chains import Pipeline
from tilewright.compiler.lowering.choices import DEFAULT_LEAD
from tilewright.compiler.lowering.emitter import Emitter
from tilewright.compiler.lowering.placement import naming_misfit
from tilewright.compiler.lowering.steps import RowRange, TileStep
from tilewright.compiler.lowering.tensors import BlockedTensor


def emit_pipeline(
    pipeline: Pipeline,
    emitter: Emitter,
    tensors: Mapping[str, BlockedTensor],
    layers: Sequence[int],
) -> None:
    """Append the tasks of all kernels; `layers` holds the layer of each kernel of the program."""
    steps = [schedule.steps(tensors) for schedule in pipeline.schedules]
    for position, step in interleave(steps, tensors, lead=pipeline.lead):
        emitter.kernel = pipeline.first + position
        emitter.layer = layers[emitter.kernel]
        with naming_misfit(pipeline.schedules[position].kernel.name, emitter.config):
            step.emit(emitter)


def interleave(
    kernels: Sequence[Sequence[TileStep]],
    tensors: Mapping[str, BlockedTensor],
    *,
    lead: int = DEFAULT_LEAD,
) -> Iterator[tuple[int, TileStep]]:
    """Merge the tiles of kernels of which each reads what the one before it writes.

    A tile comes after the tiles whose rows it reads, and the tiles of a kernel are spread evenly
    over those of the kernel before it, at a constant distance of `lead` tiles.
    """
    needed = [[0] * len(kernels[0])]
    for before, after in itertools.pairwise(kernels):
        needed.append(_tiles_needed(before, after, tensors))
    leads = [0, *(min(len(kernels[k - 1]), needed[k][0] + lead) for k in range(1, len(kernels)))]
    done = [0] * len(kernels)
    while any(count < len(steps) for count, steps in zip(done, kernels, strict=True)):
        for position in reversed(range(len(kernels))):
            count = done[position]
            if count == len(kernels[position]):
                continue
            if position:
                ahead, total = done[position - 1], len(kernels[position - 1])
                share = (ahead - leads[position]) * len(kernels[position])
                if ahead < needed[position][count] or (
                    ahead < total and share < (count + 1) * total
                ):
                    continue
            yield position, kernels[position][count]
            done[position] += 1
            break


def _tiles_needed(
    before: Sequence[TileStep], after: Sequence[TileStep], tensors: Mapping[str, BlockedTensor]
) -> list[int]:
    """For each tile of a kernel, how many tiles of the kernel before it must precede it."""
    missing: dict[tuple[int, int], int] = {}
    complete: dict[tuple[int, int], int] = {}
    layout = tensors[before[0].writes.tensor]
    for number, step in enumerate(before, 1):
        for row in _rows(step.writes):
            missing[row] = missing.get(row, layout.shape.width * layout.blocks) - step.share
            if not missing[row]:
                complete[row] = number
    return [
        max(
            (
                complete[row]
                for read in step.reads
                if read.tensor == before[0].writes.tensor
                for row in _rows(read)
            ),
            default=0,
        )
        for step in after
    ]


def _rows(rows: RowRange) -> Iterator[tuple[int, int]]:
    return ((rows.group, row) for row in range(rows.begin, rows.begin + rows.count))
