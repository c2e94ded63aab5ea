"""Which kernels take turns tile by tile: chains around depthwise convolutions."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.compiler.lowering.choices import (
    DEFAULT_LEAD,
    NO_CHOICES,
    Choice,
    Choices,
    KernelShape,
    Tiling,
    kernels_digest,
)
from tilewright.compiler.lowering.kernels import Kernel, LaneKernel, MatrixKernel
from tilewright.compiler.lowering.lane_tiling import LaneTiling
from tilewright.compiler.lowering.lanes import LaneSchedule
from tilewright.compiler.lowering.matrix import MatrixSchedule
from tilewright.compiler.lowering.placement import Schedule, kernel_tensors, make_schedule
from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.compiler.lowering.tiling import MatrixTiling
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import CompileError
from tilewright.isa.instructions import VectorOperation

#: Kernels of the chains that are formed where nothing is tuned, and of the longest tuned one.
_DEFAULT_LENGTHS = (3, 2)
LONGEST_CHAIN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Kernels, numbered from `first` on, whose tiles are emitted in turns."""

    first: int
    schedules: tuple[Schedule, ...]
    #: Tiles that a kernel is ahead of the next one.
    lead: int = DEFAULT_LEAD

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
    after the other. Where simulated cycles are known, the chains are those that save the most.
    """
    chains = dict(_valued_chains(kernels, tensors, config, choices)) if interleave else {}
    result: list[Pipeline] = []
    number = 0
    for first, length in _best_cover(
        len(kernels), {key: gain for key, (_, gain) in chains.items()}
    ):
        singles = range(number, first)
        result += [_single(kernels[one], one, tensors, config, choices) for one in singles]
        result.append(chains[first, length][0])
        number = first + length
    singles = range(number, len(kernels))
    result += [_single(kernels[one], one, tensors, config, choices) for one in singles]
    return tuple(result)


def _single(
    kernel: Kernel,
    number: int,
    tensors: Mapping[str, BlockedTensor],
    config: AcceleratorConfig,
    choices: Choices,
) -> Pipeline:
    schedule = make_schedule(kernel, tensors, config, choices=choices)
    return Pipeline(first=number, schedules=(schedule,))


def _valued_chains(
    kernels: Sequence[Kernel],
    tensors: Mapping[str, BlockedTensor],
    config: AcceleratorConfig,
    choices: Choices,
) -> Iterator[tuple[tuple[int, int], tuple[Pipeline, float]]]:
    """Yield chains by first kernel and length, and the cycles that each saves."""
    lengths = range(2, LONGEST_CHAIN + 1) if choices.by_digest else _DEFAULT_LENGTHS
    for first, length in possible_chains(kernels, lengths):
        chosen = kernels[first : first + length]
        schedules = streamed_schedules(chosen, tensors, config)
        if schedules is None:
            continue
        choice = choices.of(chain_digest(chosen, schedules)) if choices.by_digest else None
        if choice is not None:
            pipeline = tuned_pipeline(first, schedules, choice)
            gain = _gain(chosen, tensors, config, choice, choices)
            if gain > 0:
                yield (first, length), (pipeline, gain)
        elif length in _DEFAULT_LENGTHS and weights_stay(schedules, config):
            # Longer ones first, and never in place of a chain whose cycles are known.
            yield (first, length), (Pipeline(first=first, schedules=schedules), length / 1024)


def _gain(
    kernels: Sequence[Kernel],
    tensors: Mapping[str, BlockedTensor],
    config: AcceleratorConfig,
    choice: Choice,
    choices: Choices,
) -> float:
    """Return the cycles that a chain saves against its kernels one by one; 0 if unknown."""
    total = 0
    for kernel in kernels:
        shape = make_schedule(kernel, tensors, config, choices=choices).shape
        alone = None if shape is None else choices.of(kernels_digest([shape]))
        if alone is None:
            return 0
        total += alone.cycles
    return total - choice.cycles


def _best_cover(count: int, gains: Mapping[tuple[int, int], float]) -> list[tuple[int, int]]:
    """Choose chains (first, length) that do not overlap and save the most in all, ascending."""
    best: list[tuple[float, tuple[tuple[int, int], ...]]] = [(0.0, ())]
    for end in range(1, count + 1):
        options = [best[end - 1]]
        for (first, length), gain in gains.items():
            if first + length == end:
                saved, chains = best[first]
                options.append((saved + gain, (*chains, (first, length))))
        best.append(max(options, key=lambda option: option[0]))
    return list(best[count][1])


def possible_chains(kernels: Sequence[Kernel], lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield first kernel and length of what could take turns: depthwise convolutions between
    convolutions on the array, each reading the result of the one before it.
    """
    for first in range(len(kernels)):
        for length in lengths:
            chosen = kernels[first : first + length]
            if len(chosen) == length and _alternate(chosen) and _chained(chosen):
                yield first, length


def streamed_schedules(
    kernels: Sequence[Kernel], tensors: Mapping[str, BlockedTensor], config: AcceleratorConfig
) -> tuple[Schedule, ...] | None:
    """Return schedules that finish few rows at a time, or None where they do not fit."""
    try:
        return tuple(make_schedule(kernel, tensors, config, streamed=True) for kernel in kernels)
    except CompileError:
        return None


def weights_stay(schedules: Sequence[Schedule], config: AcceleratorConfig) -> bool:
    """Whether the weights of all kernels fit `wgt` together."""
    return sum(schedule.resident_weights for schedule in schedules) <= config.wgt_entries


def tuned_pipeline(first: int, schedules: Sequence[Schedule], choice: Choice) -> Pipeline:
    """Cut schedules as chosen."""
    for schedule, tiling in zip(schedules, choice.tilings, strict=True):
        _cut(schedule, tiling)
    return Pipeline(first=first, schedules=tuple(schedules), lead=choice.lead)


def _cut(schedule: Schedule, tiling: Tiling) -> None:
    match schedule, tiling:
        case MatrixSchedule(), MatrixTiling():
            schedule.tiling = tiling
        case LaneSchedule(), LaneTiling():
            schedule.tiling = tiling
        case _:
            raise AssertionError("a choice is made for kernels of its digest")


def chain_digest(kernels: Sequence[Kernel], schedules: Sequence[Schedule]) -> str:
    """Return the digest of kernels that take turns."""
    shapes: list[KernelShape] = [
        schedule.shape for schedule in schedules if schedule.shape is not None
    ]
    makers = {kernel.output: number for number, kernel in enumerate(kernels)}
    links = [
        tuple(makers.get(name, -1) for name in kernel_tensors(kernel)[:-1]) for kernel in kernels
    ]
    return kernels_digest(shapes, links)


def _alternate(kernels: Sequence[Kernel]) -> bool:
    """Whether all are on the array or depthwise, at least one and no two in a row depthwise."""
    depthwise = [
        isinstance(kernel, LaneKernel)
        and kernel.operation is VectorOperation.MAC
        and len(kernel.sources) == 1
        for kernel in kernels
    ]
    engines = [
        lanes or isinstance(kernel, MatrixKernel)
        for kernel, lanes in zip(kernels, depthwise, strict=True)
    ]
    neighbours = any(first and second for first, second in itertools.pairwise(depthwise))
    return all(engines) and any(depthwise) and not neighbours


def _chained(kernels: Sequence[Kernel]) -> bool:
    """Whether each kernel reads the result of the one before it."""
    return all(
        before.output == kernel_tensors(after)[0] for before, after in itertools.pairwise(kernels)
    )
