"""Reshapes taken apart into axes that become other axes, so that they can change places."""

import math
from dataclasses import dataclass

Permutation = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AxisGroup:
    """Axes of the old shape that become axes of the new one; either may be none, of size 1."""

    old: tuple[int, ...]
    new: tuple[int, ...]


def axis_groups(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[AxisGroup, ...]:
    """Return the smallest groups of neighbouring axes that a reshape keeps apart."""
    groups: list[AxisGroup] = []
    i = j = 0
    while i < len(old) or j < len(new):
        first, second = i, j
        if i < len(old) and (j == len(new) or (old[i] == 1 and new[j] != 1)):
            i += 1
        elif i == len(old) or (new[j] == 1 and old[i] != 1):
            j += 1
        else:
            i, j = i + 1, j + 1
            while math.prod(old[first:i]) != math.prod(new[second:j]):
                if math.prod(old[first:i]) < math.prod(new[second:j]):
                    i += 1
                else:
                    j += 1
        groups.append(AxisGroup(tuple(range(first, i)), tuple(range(second, j))))
    return tuple(groups)


def reshape_before(
    shape: tuple[int, ...], permutation: Permutation, target: tuple[int, ...]
) -> tuple[tuple[int, ...], Permutation] | None:
    """Return a reshape and a transposition that do what a transposition and a reshape do.

    `shape` is that of the tensor that `permutation` transposes before it is reshaped to `target`.
    None where the reshape joins axes that do not lie together before the transposition.
    """
    if 0 in shape:
        return None
    transposed = tuple(shape[axis] for axis in permutation)
    places: list[tuple[float, AxisGroup]] = []
    last = -1.0
    for group in axis_groups(transposed, target):
        axes = [permutation[axis] for axis in group.old]
        long = [axis for axis in axes if shape[axis] > 1]
        between = range(min(long, default=0), max(long, default=0) + 1)
        outside = [axis for axis in between if axis not in axes and shape[axis] > 1]
        if long != sorted(long) or outside:
            return None
        place = float(min(long or axes, default=last))
        last = place + 0.5 if not axes else place
        places.append((last if not axes else place, group))
    ordered = [group for _, group in sorted(places, key=lambda item: item[0])]
    order = [axis for group in ordered for axis in group.new]
    reshaped = tuple(target[axis] for axis in order)
    return reshaped, tuple(order.index(axis) for axis in range(len(target)))
