"""The guided search: it finds planted optima with fewer measurements than chance, and is seeded."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from tilewright.compiler.tuning.cost_model import CostModel, learned_model
from tilewright.compiler.tuning.guided import Candidate, GuidedSearch, Measured

#: Two sizes of a tile, an order and a depth, like those of a kernel.
SIZES = tuple(product(range(12), range(12), (0, 1), (1, 2, 4, 8)))
BUDGET = 48


def candidates() -> list[Candidate]:
    usual = Candidate(values=(), features=(3.0, 3.0, 0.0, 2.0))
    return [usual, *(Candidate(values=size, features=tuple(map(float, size))) for size in SIZES)]


class Machine:
    """Times with a planted optimum, whose best columns depend on the rows, and some noise."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.rows, self.columns = rng.integers(2, 10, 2)
        self.outside = int(rng.integers(0, 2))
        self.rng = rng
        self.measured = 0

    def time(self, candidate: Candidate) -> float:
        rows, columns, outside, depth = candidate.features
        away = (rows - self.rows) ** 2 + (columns - self.columns - (rows - self.rows) / 2) ** 2
        slow = 1.0 + 0.02 * away + 0.2 * (outside != self.outside) + 0.1 * abs(depth - 4) / 4
        return 1000 * slow

    def measure(self, batch: Sequence[Candidate]) -> list[float | None]:
        self.measured += len(batch)
        return [self.time(one) * float(self.rng.uniform(1, 1.01)) for one in batch]


def searched(model: CostModel | None, seed: int) -> tuple[Machine, list[Measured]]:
    machine = Machine(seed)
    found = GuidedSearch(model, seed).search(candidates(), machine.measure, BUDGET)
    return machine, found


def needed(machine: Machine, order: Sequence[Candidate]) -> int:
    """How many measurements come up to the first one within 3 % of the optimum."""
    best = min(machine.time(one) for one in candidates())
    good = (number for number, one in enumerate(order, 1) if machine.time(one) <= 1.03 * best)
    return next(good, len(SIZES))


def test_a_learned_model_needs_fewer_measurements_than_chance() -> None:
    guided, drawn = [], []
    for seed in range(5):
        machine, found = searched(learned_model(seed), seed)
        guided.append(needed(machine, [one.candidate for one in found]))
        order = np.random.default_rng(seed).permutation(len(SIZES))
        drawn.append(needed(machine, [candidates()[1 + place] for place in order]))
    assert max(guided) <= BUDGET, "every optimum is found"
    assert np.mean(guided) < 0.6 * np.mean(drawn), (guided, drawn)


def test_without_a_model_the_search_walks_from_the_best_so_far() -> None:
    _, found = searched(None, 0)
    assert found[0].candidate.values == ()
    assert [one.candidate.values for one in found[1:8]] == list(SIZES[:7])
    best = min(found[1:16], key=lambda one: one.cost).candidate.values
    following = found[16].candidate.values
    assert sum(a != b for a, b in zip(best, following, strict=True)) == 1


@pytest.mark.parametrize("seed", [0, 1])
def test_a_search_is_repeated_by_its_seed(seed: int) -> None:
    _, first = searched(learned_model(seed), seed)
    _, second = searched(learned_model(seed), seed)
    assert first == second
    assert len({one.candidate.values for one in first}) == len(first) <= BUDGET


def test_what_cannot_run_is_left_out() -> None:
    machine = Machine(3)

    def measure(batch: Sequence[Candidate]) -> list[float | None]:
        times = machine.measure(batch)
        return [
            None if one.values and one.values[3] == 8 else time
            for one, time in zip(batch, times, strict=True)
        ]

    found = GuidedSearch(learned_model(3), 3).search(candidates(), measure, BUDGET)
    assert found
    assert all(not one.candidate.values or one.candidate.values[3] != 8 for one in found)


def test_what_one_search_learns_serves_the_next() -> None:
    """The second search begins with what the model thinks best, not with what chance draws."""
    machine = Machine(4)
    search = GuidedSearch(learned_model(4), 4)
    search.search(candidates(), machine.measure, BUDGET)
    again = search.search(candidates(), machine.measure, 8)
    assert needed(machine, [one.candidate for one in again]) <= 8
