"""Interleaving of kernels that feed each other, so that array and vector engine work side by side.

A depthwise convolution keeps the vector engine busy and the array idle, the convolutions around it
do the opposite. Tile by tile in turns, all engines are busy: rows of one kernel's result are read
by the next kernel while the first still computes further rows.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.compiler.lowering.choices import NO_CHOICES, Choices, KernelShape
from tilewright.compiler.lowering.emitter import Emitter
from tilewright.compiler.lowering.kernels import Kernel, LaneKernel, MatrixKernel
from tilewright.compiler.lowering.placement import (
    Schedule,
    kernel_tensors,
    make_schedule,
    naming_misfit,
)
from tilewright.compiler.lowering.steps import RowRange, TileStep
from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import CompileError
from tilewright.isa.instructions import VectorOperation

#: Tiles that a kernel is ahead of the one that reads its rows: store and load in between take
#: their time.
_LEAD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Kernels, numbered from `first` on, whose tiles are emitted in turns."""

    first: int
    schedules: tuple[Schedule, ...]

    @property
    def last(self) -> int:
        """Number of the last kernel."""
        return self.first + len(self.schedules) - 1


def make_pipelines(
    kernels: Sequence[Kernel],
    tensors: Mapping[str, BlockedTensor],
    config: AcceleratorConfig,
    *,
    interleave: bool,
    choices: Choices = NO_CHOICES,
) -> tuple[Pipeline, ...]:
    """Cut kernels to tiles, and join each depthwise convolution with its neighbours.

    Kernels are joined where the weights of all stay on chip, so that rows can go through them one
    after the other.
    """
    result: list[Pipeline] = []
    number = 0
    while number < len(kernels):
        joined = _join(kernels, number, tensors, config, choices) if interleave else None
        if joined is None:
            joined = (make_schedule(kernels[number], tensors, config, choices=choices),)
        result.append(Pipeline(first=number, schedules=joined))
        number += len(joined)
    return tuple(result)


def _join(
    kernels: Sequence[Kernel],
    first: int,
    tensors: Mapping[str, BlockedTensor],
    config: AcceleratorConfig,
    choices: Choices,
) -> tuple[Schedule, ...] | None:
    """Return schedules of the kernels from `first` on that go in turns, if there are any."""
    for length in (3, 2):
        chosen = kernels[first : first + length]
        if len(chosen) < length or not _alternate(chosen) or not _chained(chosen):
            continue
        try:
            schedules = tuple(
                make_schedule(kernel, tensors, config, streamed=True, choices=choices)
                for kernel in chosen
            )
        except CompileError:
            continue
        weights = sum(schedule.resident_weights for schedule in schedules)
        if weights <= config.wgt_entries and choices.joined(_shapes(schedules)):
            return schedules
    return None


def _shapes(schedules: Sequence[Schedule]) -> tuple[KernelShape, ...]:
    return tuple(schedule.shape for schedule in schedules if schedule.shape is not None)


def _alternate(kernels: Sequence[Kernel]) -> bool:
    """Whether exactly one kernel is depthwise and the others are on the array."""
    depthwise = [
        isinstance(kernel, LaneKernel)
        and kernel.operation is VectorOperation.MAC
        and len(kernel.sources) == 1
        for kernel in kernels
    ]
    array = [isinstance(kernel, MatrixKernel) for kernel in kernels]
    middle = depthwise[1] if len(kernels) == 3 else depthwise[0] or depthwise[1]
    return middle and sum(depthwise) == 1 and sum(array) == len(kernels) - 1


def _chained(kernels: Sequence[Kernel]) -> bool:
    """Whether each kernel reads the result of the one before it."""
    return all(
        before.output == kernel_tensors(after)[0] for before, after in itertools.pairwise(kernels)
    )


def emit_pipeline(
    pipeline: Pipeline,
    emitter: Emitter,
    tensors: Mapping[str, BlockedTensor],
    layers: Sequence[int],
) -> None:
    """Append the tasks of all kernels; `layers` holds the layer of each kernel of the program."""
    steps = [schedule.steps(tensors) for schedule in pipeline.schedules]
    for position, step in interleave(steps, tensors):
        emitter.kernel = pipeline.first + position
        emitter.layer = layers[emitter.kernel]
        with naming_misfit(pipeline.schedules[position].kernel.name, emitter.config):
            step.emit(emitter)


def interleave(
    kernels: Sequence[Sequence[TileStep]], tensors: Mapping[str, BlockedTensor]
) -> Iterator[tuple[int, TileStep]]:
    """Merge the tiles of kernels of which each reads what the one before it writes.

    A tile comes after the tiles whose rows it reads, and the tiles of a kernel are spread evenly
    over those of the kernel before it, at a constant distance.
    """
    needed = [[0] * len(kernels[0])]
    for before, after in itertools.pairwise(kernels):
        needed.append(_tiles_needed(before, after, tensors))
    leads = [0, *(min(len(kernels[k - 1]), needed[k][0] + _LEAD) for k in range(1, len(kernels)))]
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
