"""The ranges of tensors: what samples show of them, and how much of it int8 shall cover."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from typing_extensions import assert_never

from tilewright.compiler.evaluate import evaluate
from tilewright.compiler.graph import Array, Graph
from tilewright.isa.errors import InputError

#: Bins of a histogram; thresholds are whole bins.
BINS = 2048
#: Values of int8, and the step between thresholds that the entropy method tries, in bins.
LEVELS, THRESHOLD_STEP = 256, 16
#: Largest range of a real number that a scale is made for; beyond it, scales overflow.
LARGEST = float(np.finfo(np.float32).max) / 512


class Method(Enum):
    """How the range of an activation follows from its values.

    `MIN_MAX` covers all of them, `PERCENTILE` a given share of each side's, `ENTROPY` what keeps
    the histogram nearest to the original in the sense of Kullback and Leibler.
    """

    MIN_MAX = "min-max"
    PERCENTILE = "percentile"
    ENTROPY = "entropy"


@dataclass(frozen=True, slots=True)
class Range:
    """An interval that holds 0."""

    low: float
    high: float

    @classmethod
    def around(cls, low: float, high: float) -> "Range":
        """Return the smallest range that holds an interval and 0."""
        return cls(min(low, 0.0), max(high, 0.0))


@dataclass(slots=True)
class _Observed:
    """What the samples have shown of one tensor so far."""

    low: float = np.inf
    high: float = -np.inf
    count: int = 0
    counts: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))
    channel_sum: Array | None = None
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Ranges by tensor, and the mean per channel of the tensors asked for."""

    ranges: Mapping[str, Range]
    means: Mapping[str, Array]


def calibrate(
    graph: Graph,
    batches: Callable[[], Iterable[Mapping[str, Array]]],
    tensors: frozenset[str],
    means: frozenset[str],
    method: Method,
    percentile: float,
) -> Calibration:
    """Return the ranges of `tensors` and the means over all but the last axis of `means`.

    `batches` hands out the samples anew at each call: a histogram needs a second pass.

    Raises
    ------
    InputError
        If there are no samples, or a tensor holds values that are not finite.
    """
    observed = {name: _Observed() for name in tensors | means}

    def extremes(name: str, values: Array) -> None:
        if name in observed:
            _observe_extremes(observed[name], name, values, name in means)

    def histogram(name: str, values: Array) -> None:
        if name in tensors:
            seen = observed[name]
            bounds = (seen.low, seen.high if seen.high > seen.low else seen.low + 1)
            seen.counts += np.histogram(values, BINS, bounds)[0]

    _run(graph, batches, extremes)
    if method is not Method.MIN_MAX:
        _run(graph, batches, histogram)
    return Calibration(
        ranges={name: _range(observed[name], method, percentile) for name in tensors},
        means={name: _mean(observed[name]) for name in means},
    )


def _run(
    graph: Graph,
    batches: Callable[[], Iterable[Mapping[str, Array]]],
    observe: Callable[[str, Array], None],
) -> None:
    ran = False
    for batch in batches():
        evaluate(graph, batch, observe)
        ran = True
    if not ran:
        raise InputError("there are no samples to calibrate with")


def _observe_extremes(seen: _Observed, name: str, values: Array, wants_mean: bool) -> None:
    if not values.size:
        return
    low, high = float(values.min()), float(values.max())
    if not (abs(low) <= LARGEST and abs(high) <= LARGEST):
        raise InputError(f"tensor {name!r} holds {low:g} to {high:g}, which cannot be quantised")
    seen.low, seen.high = min(seen.low, low), max(seen.high, high)
    seen.count += values.size
    if wants_mean:
        rows = values.reshape(-1, values.shape[-1])
        total = rows.sum(axis=0, dtype=np.float64)
        seen.channel_sum = total if seen.channel_sum is None else seen.channel_sum + total
        seen.rows += len(rows)


def _mean(seen: _Observed) -> Array:
    assert seen.channel_sum is not None, "the tensor has been observed"
    mean: Array = seen.channel_sum / seen.rows
    return mean


def _range(seen: _Observed, method: Method, percentile: float) -> Range:
    if seen.high <= seen.low:
        return Range.around(seen.low, seen.high)
    match method:
        case Method.MIN_MAX:
            return Range.around(seen.low, seen.high)
        case Method.PERCENTILE:
            return _percentile_range(seen, percentile)
        case Method.ENTROPY:
            return _entropy_range(seen)
        case _:
            assert_never(method)


def _percentile_range(seen: _Observed, percentile: float) -> Range:
    """Leave out the share of the values beyond `percentile` percent, on each side."""
    width = (seen.high - seen.low) / BINS
    below = np.cumsum(seen.counts) / max(seen.counts.sum(), 1)
    outside = 1 - percentile / 100
    first = int(np.searchsorted(below, outside, side="right"))
    last = int(np.searchsorted(below, 1 - outside, side="left"))
    return Range.around(seen.low + first * width, seen.low + min(last + 1, BINS) * width)


def _entropy_range(seen: _Observed) -> Range:
    """Try ranges that shrink towards 0 from both sides alike; take the one of least divergence.

    Zeros do not count beyond their neighbours: every range holds them exactly.
    """
    width = (seen.high - seen.low) / BINS
    centre = min(max(round(-seen.low / width), 0), BINS)
    reach = max(centre, BINS - centre)
    counts = seen.counts.copy()
    zero = min(centre, BINS - 1)
    around = counts[max(zero - 2, 0) : zero + 3]
    counts[zero] = min(counts[zero], int(np.median(around)))
    best, least = Range.around(seen.low, seen.high), np.inf
    for threshold in range(LEVELS // 2, reach + THRESHOLD_STEP, THRESHOLD_STEP):
        first, last = max(centre - threshold, 0), min(centre + threshold, BINS)
        divergence = _divergence(counts, first, last)
        if divergence < least:
            least = divergence
            best = Range.around(seen.low + first * width, seen.low + last * width)
    return best


def _divergence(counts: Array, first: int, last: int) -> float:
    """Return the divergence of a histogram from its form in `LEVELS` steps of bins first..last.

    What lies outside counts at the borders.
    """
    clipped = counts[first:last].astype(np.float64)
    kept = clipped.copy()
    clipped[0] += counts[:first].sum()
    clipped[-1] += counts[last:].sum()
    level = np.arange(last - first) * LEVELS // (last - first)
    occupied = kept > 0
    totals = np.bincount(level, kept, LEVELS)
    shares = np.bincount(level, occupied, LEVELS)
    coarse = np.where(occupied, totals[level] / np.maximum(shares[level], 1), 0.0)
    total, coarse_total = clipped.sum(), coarse.sum()
    if not total or not coarse_total:
        return float("inf")
    p, q = clipped / total, coarse / coarse_total
    seen = p > 0
    return float(np.sum(p[seen] * np.log(p[seen] / np.maximum(q[seen], 1e-12))))
