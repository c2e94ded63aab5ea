"""Entries that the operands of an operation have in a tile: base, and steps of the inner loops."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.lowering.buffers import Placed
from tilewright.compiler.lowering.nests import Access, InnerLoop
from tilewright.compiler.lowering.tables import Indices, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """Where an operand lies while the inner loops begin, and what each of them adds to that."""

    entry: int
    steps: Mapping[str, int]

    def step(self, name: str) -> int:
        """Return what one iteration of a loop adds."""
        return self.steps.get(name, 0)


def locate(access: Access, where: Placed, indices: Indices) -> Operand:
    """Return an operand's entries; its own axes lie within an entry."""
    rank = len(where.sizes)
    entry = where.entry([base.at(indices) for base in access.bases[:rank]])
    steps: dict[str, int] = {}
    for axis, stride in enumerate(where.strides):
        for name, factor in access.steps[axis].items():
            steps[name] = steps.get(name, 0) + factor * stride
    return Operand(entry=entry, steps=steps)


def reach(access: Access, counts: Mapping[str, int], rank: int) -> tuple[int, ...]:
    """Return how many indices along the first `rank` axes the inner loops run over."""
    return tuple(
        1 + sum(abs(factor) * (counts[name] - 1) for name, factor in steps.items())
        for steps in access.steps[:rank]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A part of the iterations: the first of each loop, and how many of it."""

    first: Mapping[str, int]
    counts: Mapping[str, int]


def even_areas(
    accesses: Iterable[Access],
    loops: Sequence[InnerLoop],
    indices: Indices,
    single: Iterable[str] = (),
) -> list[Area]:
    """Cut the iterations of `loops` so that in each part all operands advance evenly, those of
    the loops named by `single` one by one.
    """
    counts = {loop.name: loop.count(indices) for loop in loops}
    cuts: dict[str, set[int]] = {name: set(range(counts[name])) for name in single}
    for access in accesses:
        for base in access.bases:
            for name in base.names:
                if name in counts:
                    cuts.setdefault(name, {0}).update(_changes(base, name, counts, indices))
    stretches = [
        [
            (name, begin, end - begin)
            for begin, end in itertools.pairwise((*sorted(at), counts[name]))
        ]
        for name, at in cuts.items()
    ]
    return [
        Area(
            first={name: begin for name, begin, _ in chosen},
            counts=counts | {name: count for name, _, count in chosen},
        )
        for chosen in itertools.product(*stretches)
    ]


def _changes(base: Table, name: str, counts: Mapping[str, int], indices: Indices) -> list[int]:
    """Return the iterations of a loop where a base is not what it was in the one before."""
    where = tuple(
        slice(counts[other]) if other in counts else indices[other] for other in base.names
    )
    values = base.values[where]
    axis = [other for other in base.names if other in counts].index(name)
    differs = np.diff(values, axis=axis) != 0
    others = tuple(other for other in range(values.ndim) if other != axis)
    return [int(index) + 1 for index in np.flatnonzero(differs.any(axis=others))]
