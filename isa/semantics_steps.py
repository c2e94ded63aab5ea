"""Order of the steps of `Gemm` and `Vector`: which entries each step and each run of steps uses.

An instruction makes the steps ``for i0: for i1: for i2: for uop:``. Consecutive steps with one
destination form a run. Nearly all instructions are regular: the runs are the same for every
iteration, and no destination comes twice. Their steps are arranged as a box (common, other, within)
whose first axis changes the weights or coefficients, whose second leaves them alone, and whose
third runs over the steps of one run, so that whole boxes are computed at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from tilewright.isa.errors import ProgramError
from tilewright.isa.instructions import GemmLoop, VectorLoop
from tilewright.isa.semantics_state import Indices, UopFields

Loops: TypeAlias = tuple[GemmLoop, ...] | tuple[VectorLoop, ...]

#: Extents of an instruction's axes: three loops, micro-op groups, micro-ops of a group.
_AXES = 5
#: Steps of the longest instruction whose indices are tabulated.
MAX_STEPS = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tables:
    """Indices without the instruction's base, and the largest index of each table."""

    #: Destinations.
    dst: Indices
    #: First operands.
    src: Indices
    #: Second operands: weights or coefficients.
    second: Indices
    #: Entries of `prm`.
    prm: Indices
    dst_top: int
    src_top: int
    second_top: int
    prm_top: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoxSteps(_Tables):
    """Steps of a regular instruction: all runs alike, all destinations different.

    `dst` is (common, other), one of each run; `src` is (common, other, within), its first axis 1
    where it does not change anything; `second` is (common, within); `prm` is (common,), of the
    last step of each run.
    """


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ListedSteps(_Tables):
    """Steps of any instruction one by one: every table is (steps,)."""

    #: First step of each run, (runs,).
    run_begins: Indices
    #: Last step of each run, (runs,).
    run_ends: Indices


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Columns:
    """Contributions of loops and micro-ops to one kind of index."""

    #: Added per iteration of each loop.
    strides: tuple[int, ...]
    #: Of each micro-op.
    uops: Indices
    #: Width of the index.
    bits: int

    def box(self, extents: Sequence[int], groups: int) -> Indices:
        """Tabulate the index over the five axes, broadcast only over axes that change it."""
        inner = self.uops.reshape(groups, -1)
        if not inner.any():
            inner = np.zeros((1, 1), np.intp)
        table = inner.reshape((1,) * len(extents) + inner.shape)
        for axis, (extent, stride) in enumerate(zip(extents, self.strides, strict=True)):
            if stride:
                shape = [1] * _AXES
                shape[axis] = extent
                table = table + (np.arange(extent, dtype=np.intp) * stride).reshape(shape)
        return table & ((1 << self.bits) - 1)


@lru_cache(maxsize=1024)
def arrange(
    loops: Loops, uops: bytes, fields: UopFields, prm_bits: int, *, any_order: bool
) -> BoxSteps | ListedSteps:
    """Arrange the steps of an instruction.

    Parameters
    ----------
    loops
        Loops of the instruction, outermost first.
    uops
        Its encoded micro-ops.
    fields
        Position and width of their fields.
    prm_bits
        Width of a parameter index.
    any_order
        The runs are added to what their destination holds, so their order does not matter.

    Raises
    ------
    ProgramError
        For more than `MAX_STEPS` steps.
    """
    words = np.frombuffer(uops, dtype="<u8")
    decoded = [
        (words >> np.uint64(position) & np.uint64((1 << width) - 1)).astype(np.intp)
        for position, width in fields
    ]
    strides = list(zip(*(_strides(loop) for loop in loops), strict=True))
    no_prm = np.zeros(len(words), np.intp)
    columns = [
        _Columns(strides=stride, uops=uop, bits=bits)
        for stride, uop, bits in zip(
            strides, [*decoded, no_prm], [*(width for _, width in fields), prm_bits], strict=True
        )
    ]
    extents = tuple(loop.extent for loop in loops)
    count = math.prod(extents) * len(words)
    if count > MAX_STEPS:
        raise ProgramError(
            f"an instruction must have at most {MAX_STEPS} steps to be executed with data,"
            f" not {count}"
        )
    return _box(columns, extents, any_order=any_order) or _listed(columns, extents)


def _strides(loop: GemmLoop | VectorLoop) -> tuple[int, int, int, int]:
    match loop:
        case GemmLoop():
            return loop.dst, loop.src, loop.wgt, 0
        case VectorLoop():
            return loop.dst, loop.src, loop.coef, loop.prm


def _box(
    columns: Sequence[_Columns], extents: tuple[int, ...], *, any_order: bool
) -> BoxSteps | None:
    dst = columns[0]
    groups = _uop_groups(dst.uops)
    if groups is None:
        return None
    shape = (*extents, groups, len(dst.uops) // groups)
    tables = [np.broadcast_to(column.box(extents, groups), shape) for column in columns]
    within = _axes_within_runs(dst, shape, any_order=any_order)
    common = [
        axis
        for axis in range(_AXES)
        if axis not in within and _moves(tables[2], axis) | _moves(tables[3], axis)
    ]
    other = [axis for axis in range(_AXES) if axis not in within and axis not in common]
    sizes = [int(np.prod([shape[axis] for axis in axes])) for axes in (common, other, within)]
    boxes = [table.transpose(*common, *other, *within).reshape(sizes) for table in tables]
    destinations = boxes[0][:, :, 0]
    if np.unique(destinations).size != destinations.size:
        return None
    sources = boxes[1]
    if not any(_moves(tables[1], axis) for axis in common):
        sources = sources[:1]
    return BoxSteps(**_tables(destinations, sources, boxes[2][:, 0, :], boxes[3][:, 0, -1]))


def _tables(dst: Indices, src: Indices, second: Indices, prm: Indices) -> dict[str, Any]:
    tables = {"dst": dst, "src": src, "second": second, "prm": prm}
    tops = {f"{name}_top": int(table.max()) for name, table in tables.items()}
    return {name: table.copy() for name, table in tables.items()} | tops


def _moves(table: Indices, axis: int) -> bool:
    """Whether a table changes along an axis."""
    if table.shape[axis] == 1 or table.strides[axis] == 0:
        return False
    return bool((table != table.take([0], axis)).any())


def _uop_groups(dst: Indices) -> int | None:
    """Number of equally long groups of consecutive micro-ops with one destination, if regular."""
    begins = np.flatnonzero(np.diff(dst, prepend=-1))
    if dst.size % begins.size or np.any(
        np.diff(begins, append=dst.size) != dst.size // begins.size
    ):
        return None
    return int(begins.size)


def _axes_within_runs(dst: _Columns, shape: Sequence[int], *, any_order: bool) -> list[int]:
    """Axes along which one destination stays: the innermost ones, or all if order is free."""
    within = [_AXES - 1]
    for axis in reversed(range(_AXES - 1)):
        moves = axis == _AXES - 2 or dst.strides[axis] % (1 << dst.bits)
        if shape[axis] > 1 and moves:
            if not any_order:
                break
        else:
            within.insert(0, axis)
    return within


def _listed(columns: Sequence[_Columns], extents: tuple[int, ...]) -> ListedSteps:
    count = len(columns[0].uops)
    shape = (*extents, 1, count)
    dst, src, second, prm = (
        np.broadcast_to(column.box(extents, 1), shape).reshape(-1) for column in columns
    )
    begins = np.flatnonzero(np.diff(dst, prepend=-1))
    return ListedSteps(
        **_tables(dst, src, second, prm),
        run_begins=begins,
        run_ends=np.append(begins[1:], dst.size) - 1,
    )
