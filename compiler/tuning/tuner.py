"""The tuner: searches every kernel and chain of a network in parallel, then the whole network."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tilewright.compiler.graph import Graph
from tilewright.compiler.tuning.cache import TuningCache
from tilewright.compiler.tuning.context import Progress, tune_in_context
from tilewright.compiler.tuning.problem import Judge, Problem, find_stages
from tilewright.compiler.tuning.search import Found, search
from tilewright.isa.config import AcceleratorConfig

#: Candidates per kernel where nothing else is asked for.
DEFAULT_BUDGET = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """What tuning a network has brought."""

    #: Simulated cycles of the network by the estimate alone, with what each kernel likes best by
    #: itself, and with what suits all of them together.
    untuned_cycles: int
    kernel_cycles: int
    tuned_cycles: int
    #: Kernels and chains: all of them, and those that the cache did not know.
    problems: int
    searched: int
    #: Candidates judged.
    judged: int


def tune(
    graph: Graph,
    config: AcceleratorConfig,
    judge: Judge,
    cache: TuningCache,
    *,
    budget: int = DEFAULT_BUDGET,
    jobs: int = 1,
    progress: Callable[[Progress], None] = lambda _: None,
) -> TuningResult:
    """Fill the cache with what is best for a network.

    Every finished kernel is in the cache at once, so that an interrupted run loses nothing. A
    kernel that was searched with at least this budget is not searched again.

    Parameters
    ----------
    judge
        Returns the simulated cycles of a program.
    budget
        Candidates judged per kernel, and per chain of kernels.
    jobs
        Processes, or workers of the cluster that ``joblib.parallel_config`` names.
    """
    stages = find_stages(graph, config)
    problems = {problem.digest: problem for stage in stages for problem in stage.problems}
    unknown = [
        problem for problem in problems.values() if cache.budget(config, problem.digest) < budget
    ]
    judged = 0
    for phase, chosen in (
        ("kernels", [problem for problem in unknown if len(problem.kernels) == 1]),
        ("chains of kernels", [problem for problem in unknown if len(problem.kernels) > 1]),
    ):
        finds = _search_all(chosen, config, judge, cache, budget=budget, jobs=jobs)
        for done, (problem, found) in enumerate(finds, 1):
            judged += found.judged
            first, last = found.choices[0], found.choices[-1]
            text = f"{problem.name}: {last.cycles:,} -> {first.cycles:,} cycles"
            progress(Progress(phase=phase, done=done, total=len(chosen), text=text))
    contexts = [
        tune_in_context(stage, cache, judge, budget=budget, jobs=jobs, progress=progress)
        for stage in stages
    ]
    return TuningResult(
        untuned_cycles=sum(context.untuned_cycles for context in contexts),
        kernel_cycles=sum(context.kernel_cycles for context in contexts),
        tuned_cycles=sum(context.tuned_cycles for context in contexts),
        problems=len(problems),
        searched=len(unknown),
        judged=judged + sum(context.judged for context in contexts),
    )


def _search_all(
    problems: Sequence[Problem],
    config: AcceleratorConfig,
    judge: Judge,
    cache: TuningCache,
    *,
    budget: int,
    jobs: int,
) -> Iterator[tuple[Problem, Found]]:
    """Yield what is found as it is found, and keep it."""
    # Imported late: compiling without tuning does not need it.
    from joblib import Parallel, delayed

    by_digest = {problem.digest: problem for problem in problems}
    parallel = Parallel(n_jobs=jobs, return_as="generator_unordered")
    # The largest first, so that no worker is left with one at the end.
    order = sorted(problems, key=lambda problem: -len(problem.kernels))
    tasks = (delayed(search)(problem, config, judge, budget=budget) for problem in order)
    for found in parallel(tasks):
        cache.add_kernels(config, found.digest, found.choices, budget)
        yield by_digest[found.digest], found
