"""Search by measurement, a model choosing what is measured next.

Candidates are measured in batches. Most of a batch are those that the model, trained by all
measurements so far, expects to be fastest; a share is drawn at random, lest the model never learn
where it is wrong. Without a model, the candidates that differ least from the best one so far, in
the number of their values, come next, in the order in which they are listed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.tuning.cost_model import CostModel, Experience
from tilewright.compiler.tuning.store import Values

#: Candidates measured together.
BATCH = 8
#: Share of each batch that is drawn at random.
EXPLORED = 0.25
#: Candidates measured without one that is better by `_BETTER`, after which the search ends.
_PATIENCE = 32
_BETTER = 0.995
#: Measurements from which on a model is asked.
_FEWEST_MEASUREMENTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A choice, and what describes it to a model."""

    values: Values
    features: tuple[float, ...]


#: Costs of candidates measured together; None for one that cannot run.
Measure = Callable[[Sequence[Candidate]], Sequence[float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A candidate with its cost."""

    candidate: Candidate
    cost: float


class GuidedSearch:
    """Searches for one problem after the other, and learns on the way."""

    def __init__(self, model: CostModel | None, seed: int) -> None:
        self._model = model
        self._rng = np.random.default_rng(seed)
        self._experience = Experience()

    def search(
        self, candidates: Sequence[Candidate], measure: Measure, budget: int
    ) -> list[Measured]:
        """Return measurements in order, the usual choice's first, which is the first candidate."""
        usual = candidates[0]
        waiting = list(candidates[1:])
        measured: list[Measured] = []
        best, since = math.inf, 0
        while len(measured) < budget and since < _PATIENCE and (waiting or not measured):
            first = [] if measured else [usual]
            count = min(BATCH, budget - len(measured)) - len(first)
            batch = [*first, *self._next(waiting, measured, usual, count)]
            costs = measure(batch)
            waiting = [candidate for candidate in waiting if candidate not in batch]
            for candidate, cost in zip(batch, costs, strict=True):
                since += 1
                if cost is None:
                    assert measured, "the usual choice can run"
                    continue
                measured.append(Measured(candidate=candidate, cost=cost))
                self._experience.add(_relative(candidate, usual), math.log(cost / measured[0].cost))
                if cost < best * _BETTER:
                    best, since = cost, 0
        return measured

    def _next(
        self, waiting: Sequence[Candidate], measured: list[Measured], usual: Candidate, count: int
    ) -> list[Candidate]:
        if count <= 0 or not waiting:
            return []
        ranked = self._ranked(waiting, measured, usual)
        drawn = max(1, round(EXPLORED * count)) if self._model is not None else 0
        chosen = ranked[: count - drawn]
        others = ranked[count - drawn :]
        places = self._rng.permutation(len(others))[:drawn]
        return [*chosen, *(others[place] for place in places)]

    def _ranked(
        self, waiting: Sequence[Candidate], measured: list[Measured], usual: Candidate
    ) -> list[Candidate]:
        """Return the candidates in the order in which they should be measured."""
        model = self._model
        if model is None:
            others = [one for one in measured if one.candidate != usual]
            best = min(others, key=lambda one: one.cost).candidate if others else usual
            return sorted(waiting, key=lambda candidate: _differences(candidate, best))
        if len(self._experience) < _FEWEST_MEASUREMENTS:
            return [waiting[place] for place in self._rng.permutation(len(waiting))]
        self._experience.teach(model)
        rows = np.array([_relative(candidate, usual) for candidate in waiting], np.float64)
        order = np.argsort(model.predict(rows), kind="stable")
        return [waiting[place] for place in order]


def _relative(candidate: Candidate, usual: Candidate) -> tuple[float, ...]:
    """Return the features of a candidate, relative to the usual one's, and the latter."""
    pairs = zip(candidate.features, usual.features, strict=True)
    return (*(own - other for own, other in pairs), *usual.features)


def _differences(candidate: Candidate, other: Candidate) -> int:
    """Return in how many values two candidates differ."""
    if len(candidate.values) != len(other.values):
        return max(len(candidate.values), len(other.values))
    return sum(a != b for a, b in zip(candidate.values, other.values, strict=True))
