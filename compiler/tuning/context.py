"""Search in context: which of the choices that suit kernels by themselves suit a program."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from tilewright.compiler.lowering.choices import NO_CHOICES, Choice, Choices
from tilewright.compiler.tuning.cache import TuningCache
from tilewright.compiler.tuning.problem import Judge, StageProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the tuner is."""

    phase: str
    done: int
    total: int
    #: What the last step found, in words.
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextResult:
    """Simulated cycles of a program."""

    #: By the estimate alone.
    untuned_cycles: int
    #: With what each kernel likes best by itself.
    kernel_cycles: int
    #: With what suits all of them together.
    tuned_cycles: int
    #: Programs judged.
    judged: int


#: A digest and another choice for it.
_Change: TypeAlias = tuple[str, Choice]
#: Changes judged in all rounds, for each candidate that the search of a kernel may judge.
_CHANGES_PER_BUDGET = 4
#: Cycles of a chain that is not formed: its kernels by themselves take less.
_NEVER = 1 << 62


def tune_in_context(
    stage: StageProblem,
    cache: TuningCache,
    judge: Judge,
    *,
    budget: int,
    jobs: int,
    progress: Callable[[Progress], None],
) -> ContextResult:
    """Replace, in rounds, choices that others of the same kernels beat in the whole program.

    It starts with what suits the kernels by themselves, with what is used where nothing is tuned
    for the whole, or with the estimate, whichever is best.
    All changes of a round are judged against the same program, then those that save cycles are
    applied from the best on, as long as each saves some, until a round saves none or the budget is
    spent. What results is never worse than nothing tuned.
    """
    known = {
        problem.digest: cache.alternatives(stage.config, problem.digest)
        for problem in stage.problems
    }
    untuned = stage.cycles(NO_CHOICES, judge)
    starts = _starts(stage, cache, known, judge)
    kernel_cycles = starts[0][0]
    best, choices = min(starts, key=lambda item: item[0])
    judged = first = 1 + len(starts)
    improved = True
    while improved and judged < first + _CHANGES_PER_BUDGET * budget:
        start, improved = best, False
        changes = _changes(stage, choices, known)[: first + _CHANGES_PER_BUDGET * budget - judged]
        useful: list[tuple[int, int, _Change]] = []
        for done, (change, cycles) in enumerate(
            _judge_all(stage, choices, changes, judge, jobs), 1
        ):
            if cycles < start:
                useful.append((cycles, done, change))
            text = f"{min([best, *(item[0] for item in useful)]):,} cycles"
            progress(Progress(phase="network", done=done, total=len(changes), text=text))
        judged += len(changes) + len(useful)
        for _, _, change in sorted(useful, key=lambda item: item[:2]):
            changed = {**choices, change[0]: change[1]}
            cycles = stage.cycles(Choices(by_digest=changed), judge)
            if cycles < best:
                best, choices, improved = cycles, changed, True
    if untuned <= best:
        best, choices = untuned, {}
    cache.add_network(stage.config, stage.digest, choices)
    return ContextResult(
        untuned_cycles=untuned, kernel_cycles=kernel_cycles, tuned_cycles=best, judged=judged
    )


def _starts(
    stage: StageProblem, cache: TuningCache, known: Mapping[str, tuple[Choice, ...]], judge: Judge
) -> list[tuple[int, dict[str, Choice]]]:
    """Return cycles and choices to start with: the best of each kernel by itself, what is used
    where nothing is tuned for the whole, and the estimate.
    """
    general = cache.choices(stage.config).by_digest
    return [
        (stage.cycles(Choices(by_digest=choices), judge), choices)
        for choices in (
            {digest: kept[0] for digest, kept in known.items() if kept},
            {digest: general[digest] for digest in known if digest in general},
            {digest: kept[-1] for digest, kept in known.items() if kept},
        )
    ]


def _changes(
    stage: StageProblem, choices: Mapping[str, Choice], known: Mapping[str, tuple[Choice, ...]]
) -> list[_Change]:
    """List what may be changed: other choices of what the program consists of, the costliest
    first, chains taken apart, and chains formed in place of what is there.
    """
    used = [digest for digest in stage.used(Choices(by_digest=choices)) if digest in choices]
    used.sort(key=lambda digest: -choices[digest].cycles)
    chains = [problem.digest for problem in stage.problems if len(problem.kernels) > 1]
    changes: list[_Change] = []
    for digest in used:
        own = choices[digest]
        # The cycles stay, lest the change undo the chain that it is meant for.
        others = dict.fromkeys(replace(other, cycles=own.cycles) for other in known[digest])
        changes += [(digest, other) for other in others if other != own]
        if digest in chains:
            changes.append((digest, replace(own, cycles=_NEVER)))
    for digest in chains:
        if digest not in used and known[digest]:
            changes.append((digest, replace(known[digest][0], cycles=0)))
    return changes


def _judge_all(
    stage: StageProblem,
    choices: Mapping[str, Choice],
    changes: list[_Change],
    judge: Judge,
    jobs: int,
) -> Iterator[tuple[_Change, int]]:
    # Imported late: compiling without tuning does not need it.
    from joblib import Parallel, delayed

    tasks = (
        delayed(stage.cycles)(Choices(by_digest={**choices, digest: choice}), judge)
        for digest, choice in changes
    )
    cycles = Parallel(n_jobs=jobs, return_as="generator")(tasks)
    return zip(changes, cycles, strict=True)
