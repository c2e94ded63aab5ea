"""Which kernels take turns tile by tile: chains of lane kernels and their neighbours."""

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

#: Cycles of a pooling from which on it is worth to cut its neighbours to fewer rows for it.
_LONG_CYCLES = 20_000
#: Kernels of a chain.
CHAIN_LENGTHS = (2, 3)


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
    """Cut kernels to tiles, and join lane kernels with their neighbours on the array.

    Kernels are joined where the weights of all stay on chip, so that rows can go through them one
    after the other. Where simulated cycles are known, the chains are those that save the most.
    """
    singles = [make_schedule(kernel, tensors, config, choices=choices) for kernel in kernels]
    own = choices.within(chain_digest(kernels, singles))
    if own is not choices:
        choices = own
        singles = [make_schedule(kernel, tensors, config, choices=own) for kernel in kernels]
    found = _valued_chains(kernels, singles, tensors, config, choices) if interleave else ()
    result: list[Pipeline] = []
    number = 0
    for chain in _best_cover(len(kernels), tuple(found)):
        result += [
            Pipeline(first=one, schedules=(singles[one],)) for one in range(number, chain.first)
        ]
        number = chain.first + chain.length
        result.append(_joined(chain, kernels[chain.first : number], tensors, config))
    rest = range(number, len(kernels))
    result += [Pipeline(first=one, schedules=(singles[one],)) for one in rest]
    return tuple(result)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    """Kernels that could take turns."""

    first: int
    length: int
    #: None where nothing is tuned.
    choice: Choice | None
    #: Cycles that it saves against its kernels one by one.
    gain: float


def _joined(
    chain: _Chain,
    kernels: Sequence[Kernel],
    tensors: Mapping[str, BlockedTensor],
    config: AcceleratorConfig,
) -> Pipeline:
    schedules = streamed_schedules(kernels, tensors, config)
    assert schedules is not None, "what does not fit is no chain"
    if chain.choice is None:
        return Pipeline(first=chain.first, schedules=schedules)
    return tuned_pipeline(chain.first, schedules, chain.choice)


def _alone(schedule: Schedule, choices: Choices) -> Choice | None:
    """Return the choice for a kernel by itself."""
    if schedule.shape is None or not choices.by_digest:
        return None
    return choices.of(kernels_digest([schedule.shape]))


def _valued_chains(
    kernels: Sequence[Kernel],
    singles: Sequence[Schedule],
    tensors: Mapping[str, BlockedTensor],
    config: AcceleratorConfig,
    choices: Choices,
) -> Iterator[_Chain]:
    """Yield the chains that save cycles."""
    streamed = [streamed_schedules([kernel], tensors, config) for kernel in kernels]
    for first, length in possible_chains(kernels):
        schedules = [schedule for one in streamed[first : first + length] for schedule in one or ()]
        if len(schedules) < length:
            continue
        digest = chain_digest(kernels[first : first + length], schedules)
        choice = choices.of(digest) if choices.by_digest else None
        if choice is not None and not _suits(choice, schedules):
            choice = None
        gain = 0.0
        if choice is not None:
            alone = [_alone(schedule, choices) for schedule in singles[first : first + length]]
            if None not in alone:
                gain = sum(one.cycles for one in alone if one is not None) - choice.cycles
        elif weights_stay(schedules, config) and _worthwhile(schedules):
            # The more kernels the better, but never in place of a chain whose cycles are known.
            gain = length / 1024
        if gain > 0:
            yield _Chain(first=first, length=length, choice=choice, gain=gain)


def _best_cover(count: int, chains: Sequence[_Chain]) -> tuple[_Chain, ...]:
    """Choose chains that do not overlap and save the most in all, ascending."""
    best: list[tuple[float, tuple[_Chain, ...]]] = [(0.0, ())]
    for end in range(1, count + 1):
        options = [best[end - 1]]
        for chain in chains:
            if chain.first + chain.length == end:
                saved, before = best[chain.first]
                options.append((saved + chain.gain, (*before, chain)))
        best.append(max(options, key=lambda option: option[0]))
    return best[count][1]


def possible_chains(kernels: Sequence[Kernel]) -> Iterator[tuple[int, int]]:
    """Yield first kernel and length of what could take turns: kernels on array and vector engine
    of which each reads the result of the one before it.
    """
    for first in range(len(kernels)):
        for length in CHAIN_LENGTHS:
            chosen = kernels[first : first + length]
            if len(chosen) == length and _alternate(chosen) and _chained(chosen):
                yield first, length


def streamed_schedules(
    kernels: Sequence[Kernel], tensors: Mapping[str, BlockedTensor], config: AcceleratorConfig
) -> tuple[Schedule, ...] | None:
    """Return schedules that finish few rows at a time, or None where they do not fit."""
    try:
        schedules = tuple(
            make_schedule(kernel, tensors, config, streamed=True) for kernel in kernels
        )
    except CompileError:
        return None
    return schedules if all(schedule.shape for schedule in schedules) else None


def _worthwhile(schedules: Sequence[Schedule]) -> bool:
    """Whether the lanes have much to do: a depthwise convolution, or a large pooling."""
    lanes = [schedule for schedule in schedules if isinstance(schedule, LaneSchedule)]
    return any(
        schedule.kernel.operation is VectorOperation.MAC or schedule.ideal_cycles >= _LONG_CYCLES
        for schedule in lanes
    )


def weights_stay(schedules: Sequence[Schedule], config: AcceleratorConfig) -> bool:
    """Whether the weights of all kernels fit `wgt` together."""
    return sum(schedule.resident_weights for schedule in schedules) <= config.wgt_entries


def _suits(choice: Choice, schedules: Sequence[Schedule]) -> bool:
    """Whether a choice, perhaps of a file that another program wrote, has tiles for each kernel."""
    wanted = (LaneTiling if isinstance(one, LaneSchedule) else MatrixTiling for one in schedules)
    return [type(tiling) for tiling in choice.tilings] == list(wanted)


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


def pipeline_digest(kernels: Sequence[Kernel], schedules: Sequence[Schedule]) -> str:
    """Return the digest by which the choice for kernels that take turns, or for one, is known."""
    if len(schedules) == 1 and schedules[0].shape is not None:
        return kernels_digest([schedules[0].shape])
    return chain_digest(kernels, schedules)


def chain_digest(kernels: Sequence[Kernel], schedules: Sequence[Schedule]) -> str:
    """Return the digest of kernels that follow each other."""
    shapes: list[KernelShape] = [
        schedule.shape for schedule in schedules if schedule.shape is not None
    ]
    makers = {kernel.output: number for number, kernel in enumerate(kernels)}
    links = [
        tuple(makers.get(name, -1) for name in kernel_tensors(kernel)[:-1]) for kernel in kernels
    ]
    return kernels_digest(shapes, links)


def _alternate(kernels: Sequence[Kernel]) -> bool:
    """Whether no two in a row work on the same one of array and vector engine, but for two
    convolutions on the array between lane kernels.
    """
    lanes = [
        isinstance(kernel, LaneKernel) and len(kernel.sources) == 1 and kernel.repeat == (1, 1)
        for kernel in kernels
    ]
    engines = [
        on_lanes or (isinstance(kernel, MatrixKernel) and kernel.phases == (1, 1))
        for kernel, on_lanes in zip(kernels, lanes, strict=True)
    ]
    neighbours = any(first and second for first, second in itertools.pairwise(lanes))
    return all(engines) and any(lanes) and not all(lanes) and not neighbours


def _chained(kernels: Sequence[Kernel]) -> bool:
    """Whether each kernel reads the result of the one before it."""
    return all(
        before.output == kernel_tensors(after)[0] for before, after in itertools.pairwise(kernels)
    )
