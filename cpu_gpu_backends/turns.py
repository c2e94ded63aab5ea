"""Times of some contenders on a machine that others use too: the least of many, taken in turns."""

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Times: TypeAlias = npt.NDArray[np.float64]
#: Runs a contender once and returns the nanoseconds of the whole, then of its parts.
Timed: TypeAlias = Callable[[], Times]

#: Turns of each contender.
_ROUNDS = 12
#: Nanoseconds of a turn, the first run of which warms up.
_TURN_NANOSECONDS = 3e6
#: Most runs of a turn.
_MOST_RUNS = 40
#: After so many turns, contenders that are so much slower than the fastest one get no more.
_TRIAL_ROUNDS, _HOPELESS = 3, 1.3


def least_times(contenders: Sequence[Timed], *, rounds: int = _ROUNDS) -> list[Times]:
    """Return the least nanoseconds of each contender, and of each of its parts.

    Whatever else runs on the machine makes a run slower, never faster, and meets all contenders
    alike: so the least time of many short turns is what is compared.
    """
    least = [_turn(contender) for contender in contenders]
    if not least:
        return []
    for number in range(1, rounds):
        fastest = min(float(times[0]) for times in least)
        for place, contender in enumerate(contenders):
            if number < _TRIAL_ROUNDS or least[place][0] <= _HOPELESS * fastest:
                least[place] = np.minimum(least[place], _turn(contender))
    return least


def _turn(contender: Timed) -> Times:
    contender()
    start = time.perf_counter_ns()
    least = contender()
    for _ in range(_MOST_RUNS):
        if time.perf_counter_ns() - start > _TURN_NANOSECONDS:
            break
        least = np.minimum(least, contender())
    return least
