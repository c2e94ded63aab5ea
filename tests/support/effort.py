"""Comparison of how much processor time two actions take, which other processes hardly change."""

from collections.abc import Callable
from time import process_time


def effort(action: Callable[[], object], repeats: int = 5) -> float:
    """Return the least processor time in seconds that an action took."""
    times = []
    for _ in range(repeats):
        begin = process_time()
        action()
        times.append(process_time() - begin)
    return min(times)


def growth(small: Callable[[], object], large: Callable[[], object]) -> float:
    """Return how many times the effort of `small` the one of `large` is."""
    # Alternating, so that both see the machine as it is.
    return min(effort(large, 3) / max(effort(small, 3), 1e-6) for _ in range(3))
