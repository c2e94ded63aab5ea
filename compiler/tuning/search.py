"""Search for the tiles of one problem: candidates by estimated cycles, judged one by one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from typing_extensions import assert_never

from tilewright.compiler.lowering.chains import Pipeline, tuned_pipeline
from tilewright.compiler.lowering.choices import DEFAULT_LEAD, Choice, Tiling
from tilewright.compiler.lowering.lane_products import ProductSchedule
from tilewright.compiler.lowering.lane_tiling import legal_lane_tilings
from tilewright.compiler.lowering.lanes import LaneSchedule
from tilewright.compiler.lowering.matrix import MatrixSchedule
from tilewright.compiler.lowering.matrix_products import MatrixProductSchedule
from tilewright.compiler.lowering.placement import Schedule
from tilewright.compiler.lowering.reductions import ReductionSchedule
from tilewright.compiler.tuning.problem import Judge, Problem, problem_program
from tilewright.isa.config import AcceleratorConfig

#: Candidates judged without one that is better than the best, after which the search ends.
_PATIENCE = 48
#: Numbers of bands that all kernels of a chain are cut to, to begin with.
_BANDS = (4, 5, 7, 8, 14, 28, 56)
_LEADS = (1, 2, 3)
#: Candidates per kernel of a chain and round, for each number of rows that is tried.
_VARIANTS = 3
#: Choices that are kept for the search in context.
KEPT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the search for one problem yielded."""

    digest: str
    #: The best first, at most `KEPT`; the last one has the fewest cycles by estimate.
    choices: tuple[Choice, ...]
    #: Candidates judged.
    judged: int


class _Trial:
    """Judges choices of one problem, each once."""

    def __init__(self, problem: Problem, config: AcceleratorConfig, judge: Judge) -> None:
        self.schedules = problem.schedules(config)
        self.start = tuple(_tiling(schedule) for schedule in self.schedules)
        self._problem = problem
        self._config = config
        self._judge = judge
        self._known: dict[tuple[tuple[Tiling, ...], int], int] = {}

    @property
    def judged(self) -> int:
        return len(self._known)

    def cycles(self, tilings: tuple[Tiling, ...], lead: int) -> int:
        key = (tilings, lead)
        if key not in self._known:
            choice = Choice(tilings=tilings, lead=lead, cycles=0)
            pipeline: Pipeline = tuned_pipeline(0, self.schedules, choice)
            self._known[key] = self._judge(problem_program(self._problem, pipeline, self._config))
        return self._known[key]

    def found(self) -> Found:
        """Return the best choices, and the first one, which may suit a context better."""
        start = (self.start, DEFAULT_LEAD)
        ranked = sorted(self._known, key=lambda key: self._known[key])[: KEPT - 1]
        return Found(
            digest=self._problem.digest,
            choices=tuple(
                Choice(tilings=tilings, lead=lead, cycles=self._known[tilings, lead])
                for tilings, lead in (*ranked, start)
            ),
            judged=self.judged,
        )


def search(problem: Problem, config: AcceleratorConfig, judge: Judge, *, budget: int) -> Found:
    """Judge at most `budget` candidates, the one with the fewest estimated cycles among them."""
    trial = _Trial(problem, config, judge)
    trial.cycles(trial.start, DEFAULT_LEAD)
    if len(trial.schedules) == 1:
        _search_single(trial, config, budget)
    else:
        _search_chain(trial, config, budget)
    return trial.found()


def _search_single(trial: _Trial, config: AcceleratorConfig, budget: int) -> None:
    """Try tilings by estimated cycles until none has been better for a while."""
    best, since = trial.cycles(trial.start, DEFAULT_LEAD), 0
    for tiling in _legal(trial.schedules[0], config):
        if trial.judged >= budget or since >= _PATIENCE:
            return
        cycles = trial.cycles((tiling,), DEFAULT_LEAD)
        since = 0 if cycles < best else since + 1
        best = min(best, cycles)


def _search_chain(trial: _Trial, config: AcceleratorConfig, budget: int) -> None:
    """Cut all kernels to equally many bands, then change one kernel at a time."""
    best = min(
        ((trial.cycles(*start), start) for start in _starts(trial, config, budget)),
        default=(trial.cycles(trial.start, DEFAULT_LEAD), (trial.start, DEFAULT_LEAD)),
        key=lambda item: item[0],
    )
    improved = True
    while improved and trial.judged < budget:
        improved = False
        for candidate in _neighbours(*best[1], trial.schedules, config):
            if trial.judged >= budget:
                break
            cycles = trial.cycles(*candidate)
            if cycles < best[0]:
                best, improved = (cycles, candidate), True
                break


def _starts(
    trial: _Trial, config: AcceleratorConfig, budget: int
) -> Iterator[tuple[tuple[Tiling, ...], int]]:
    yield trial.start, DEFAULT_LEAD
    for bands in _BANDS:
        tilings = []
        for schedule in trial.schedules:
            rows = -(-_height(schedule) // bands)
            fitting = [tiling for tiling in _legal(schedule, config) if tiling.rows <= rows]
            if not fitting:
                break
            most = max(tiling.rows for tiling in fitting)
            tilings.append(next(tiling for tiling in fitting if tiling.rows == most))
        else:
            for lead in _LEADS:
                if trial.judged < budget:
                    yield tuple(tilings), lead


def _neighbours(
    tilings: tuple[Tiling, ...],
    lead: int,
    schedules: Sequence[Schedule],
    config: AcceleratorConfig,
) -> Iterator[tuple[tuple[Tiling, ...], int]]:
    """Yield choices that differ in the distance, or in the tiles of one kernel."""
    for other in _LEADS:
        if other != lead:
            yield tilings, other
    for position, schedule in enumerate(schedules):
        legal = _legal(schedule, config)
        sizes = sorted({tiling.rows for tiling in legal})
        here = sizes.index(tilings[position].rows)
        for rows in sizes[max(here - 1, 0) : here + 2]:
            variants = [tiling for tiling in legal if tiling.rows == rows][:_VARIANTS]
            for tiling in variants:
                if tiling != tilings[position]:
                    yield (*tilings[:position], tiling, *tilings[position + 1 :]), lead


def _height(schedule: Schedule) -> int:
    """Rows that a kernel computes."""
    match schedule:
        case MatrixSchedule():
            return schedule.shape.output.shape.height
        case LaneSchedule():
            return schedule.shape.rows
        case ReductionSchedule() | ProductSchedule() | MatrixProductSchedule():
            raise AssertionError("this kernel has no tiles to choose")
        case _:
            assert_never(schedule)


def _legal(schedule: Schedule, config: AcceleratorConfig) -> Sequence[Tiling]:
    match schedule:
        case MatrixSchedule():
            return schedule.legal_tilings()
        case LaneSchedule():
            return legal_lane_tilings(schedule.shape, config)
        case ReductionSchedule() | ProductSchedule() | MatrixProductSchedule():
            raise AssertionError("this kernel has no tiles to choose")
        case _:
            assert_never(schedule)


def _tiling(schedule: Schedule) -> Tiling:
    match schedule:
        case MatrixSchedule() | LaneSchedule():
            return schedule.tiling
        case ReductionSchedule() | ProductSchedule() | MatrixProductSchedule():
            raise AssertionError("this kernel has no tiles to choose")
        case _:
            assert_never(schedule)
