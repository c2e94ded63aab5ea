"""A learned model of cost: boosted trees over features, trained by measurements."""

import importlib.util
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: Trees, their depth, what each one counts, and the share of the measurements that it sees.
_TREES, _DEPTH, _RATE, _SEEN = 120, 4, 0.1, 0.8
#: Fewest measurements in a leaf.
_LEAF_MEASUREMENTS = 2


class CostModel(Protocol):
    """Predicts the logarithm of a cost, relative to the usual choice's, from features."""

    def fit(self, features: Floats, costs: Floats) -> None:
        """Learn from measurements, one a row, and forget what was learnt before."""

    def predict(self, features: Floats) -> Floats:
        """Return what candidates, one a row, should cost."""


class BoostedTrees:
    """Gradient boosting by scikit-learn: exact splits in one thread, which suits small samples."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._trees: Any = None

    def fit(self, features: Floats, costs: Floats) -> None:
        """Learn from measurements, one a row, and forget what was learnt before."""
        # Imported late: compiling does not need it.
        from sklearn.ensemble import GradientBoostingRegressor

        self._trees = GradientBoostingRegressor(
            n_estimators=_TREES,
            max_depth=_DEPTH,
            learning_rate=_RATE,
            subsample=_SEEN,
            min_samples_leaf=_LEAF_MEASUREMENTS,
            random_state=self._seed,
        )
        self._trees.fit(features, costs)

    def predict(self, features: Floats) -> Floats:
        """Return what candidates, one a row, should cost."""
        assert self._trees is not None, "the model has learnt"
        predicted: Floats = self._trees.predict(features)
        return predicted


def learned_model(seed: int) -> CostModel | None:
    """Return a model that knows nothing yet; None where scikit-learn is not installed."""
    return BoostedTrees(seed) if is_learning_available() else None


def is_learning_available() -> bool:
    """Whether scikit-learn is installed."""
    return importlib.util.find_spec("sklearn") is not None


class Experience:
    """All measurements of a tuning run: features and costs relative to the usual choices'."""

    def __init__(self) -> None:
        self._features: list[Sequence[float]] = []
        self._costs: list[float] = []

    def __len__(self) -> int:
        return len(self._costs)

    def add(self, features: Sequence[float], cost: float) -> None:
        """Add a measurement."""
        self._features.append(features)
        self._costs.append(cost)

    def teach(self, model: CostModel) -> None:
        """Let a model learn everything."""
        model.fit(np.array(self._features, np.float64), np.array(self._costs, np.float64))
