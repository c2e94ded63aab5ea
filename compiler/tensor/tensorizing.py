"""Matching of a stage's inner loops with the pattern of an intrinsic."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations

from tilewright.compiler.tensor.build import all_of, equal, minimum
from tilewright.compiler.tensor.expressions import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Tensor,
    Var,
)
from tilewright.compiler.tensor.intervals import Ranges
from tilewright.compiler.tensor.intrinsics import Intrinsic
from tilewright.compiler.tensor.linear import Linear, difference, from_linear, to_linear
from tilewright.compiler.tensor.operations import Operator
from tilewright.compiler.tensor.primitives import ScheduleError
from tilewright.compiler.tensor.printing import format_expression
from tilewright.compiler.tensor.realisation import Loop, Realisation
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.simplify import simplify
from tilewright.compiler.tensor.statements import IntrinsicCall, Region
from tilewright.compiler.tensor.traversal import children, loads, substitute, variables


class Mismatch(Exception):
    """Two expressions do not match; the message says where."""


@dataclass(slots=True)
class _Bindings:
    """What the operands and parameters of a pattern stand for."""

    inner: frozenset[str]
    ranges: Ranges
    open_names: frozenset[str]
    regions: dict[str, Region] = field(default_factory=dict)
    parameters: dict[str, Expr] = field(default_factory=dict)


def match_intrinsic(
    intrinsic: Intrinsic, place: Realisation, element: Expr, depth: int
) -> IntrinsicCall:
    """Return the use of `intrinsic` that does what the loops from `depth` inwards do.

    Parameters
    ----------
    element
        The stage's element, or the term of its reduction, over loop variables and storage.

    Raises
    ------
    ScheduleError
        If it computes something else, over other extents, or in other memories.
    """
    try:
        return _match(intrinsic, place, element, depth)
    except Mismatch as mismatch:
        where = f"tensorize of stage {place.stage.name!r} at axis {place.stage.loops[depth]!r}"
        raise ScheduleError(f"{where} with {intrinsic.name!r}: {mismatch}") from mismatch


def _match(intrinsic: Intrinsic, place: Realisation, element: Expr, depth: int) -> IntrinsicCall:
    inner = place.loops[depth:]
    pattern = _pattern_element(intrinsic, place)
    pairs = _pair_loops(intrinsic, inner)
    names = frozenset(loop.var.name for loop in inner)
    extents = {axis: _constant(loop.extent) for axis, loop in pairs.items()}
    for guard in (*place.guards, *place.reduce_guards):
        if variables(guard) & names:
            _shorten(extents, guard, pairs, intrinsic)
    bindings = _Bindings(
        inner=names,
        ranges=place.ranges,
        open_names=frozenset(var.name for var in intrinsic.parameters),
    )
    renamed: dict[str, Expr] = {axis: loop.var for axis, loop in pairs.items()}
    _unify(substitute(pattern, renamed), element, bindings)
    output_axes = tuple(renamed[axis.name] for axis in intrinsic.data_axes)
    output = _region(intrinsic.pattern, output_axes, Load(place.storage, place.indices), bindings)
    return IntrinsicCall(
        intrinsic=intrinsic,
        extents=tuple(extents[axis.name] for axis in intrinsic.axes),
        output=output,
        inputs=tuple(bindings.regions[operand.name] for operand in intrinsic.operands),
        parameters=tuple(bindings.parameters[var.name] for var in intrinsic.parameters),
        first=_first(intrinsic, place.loops[:depth]),
    )


def _pattern_element(intrinsic: Intrinsic, place: Realisation) -> Expr:
    definition = intrinsic.pattern.definition
    assert definition is not None, "checked when the intrinsic was declared"
    wanted, given = intrinsic.reduce, place.stage.reduce
    kinds = [
        "no" if reduce is None else f"a {reduce.reduction.value}" for reduce in (wanted, given)
    ]
    if kinds[0] != kinds[1]:
        raise Mismatch(f"the intrinsic is {kinds[0]} reduction, the stage is {kinds[1]} reduction")
    return definition.body if wanted is None else wanted.body


def _pair_loops(intrinsic: Intrinsic, inner: tuple[Loop, ...]) -> dict[str, Loop]:
    """Return the loop of each axis of the pattern, in order, data and reduce axes apart."""
    pairs = {}
    for axes, reduces in ((intrinsic.data_axes, False), (intrinsic.reduce_axes, True)):
        loops = [loop for loop in inner if loop.reduces is reduces]
        if len(loops) != len(axes):
            kind = "reduce" if reduces else "data"
            found = ", ".join(loop.name for loop in loops) or "none"
            wanted = ", ".join(axis.name for axis in axes) or "none"
            raise Mismatch(f"the {kind} loops are {found}, the intrinsic's axes {wanted}")
        for axis, loop in zip(axes, loops, strict=True):
            flexible = axis.name in intrinsic.flexible
            if loop.extent > axis.extent or (loop.extent < axis.extent and not flexible):
                limit = f"at most {axis.extent}" if flexible else str(axis.extent)
                raise Mismatch(
                    f"axis {axis.name!r} has {limit} iterations, loop {loop.name!r} {loop.extent}"
                )
            pairs[axis.name] = loop
    return pairs


def _shorten(
    extents: dict[str, Expr], guard: Expr, pairs: dict[str, Loop], intrinsic: Intrinsic
) -> None:
    """Turn a guard ``offset + loop < limit`` into a smaller extent of a flexible axis."""
    inner = {loop.var: axis for axis, loop in pairs.items()}
    if isinstance(guard, Binary) and guard.operator is Operator.LESS:
        room = difference(guard.right, guard.left)
        cut = [(atom, factor) for atom, factor in room.terms if _uses(atom, inner)]
        if len(cut) == 1 and cut[0][1] == -1 and isinstance(cut[0][0], Var):
            axis = inner[cut[0][0]]
            if axis in intrinsic.flexible:
                limit = from_linear(room + to_linear(cut[0][0]))
                extents[axis] = minimum(extents[axis], limit)
                return
    raise Mismatch(f"the guard {format_expression(guard)} cuts through the tile")


def _uses(atom: Expr, inner: Mapping[Var, str]) -> bool:
    return any(var.name in variables(atom) for var in inner)


def _constant(value: int) -> Expr:
    return Const(value, ScalarType.INDEX)


def unguarded(place: Realisation, depth: int) -> tuple[Expr, ...]:
    """Return the guards of a tensorized stage that its intrinsic does not take care of."""
    names = frozenset(loop.var.name for loop in place.loops[depth:])
    guards = (*place.guards, *place.reduce_guards)
    return tuple(guard for guard in guards if not variables(guard) & names)


def _unify(pattern: Expr, expr: Expr, bindings: _Bindings) -> None:
    if isinstance(pattern, Load):
        if not isinstance(expr, Load):
            raise Mismatch(f"{_text(pattern)} is {_text(expr)}, no element of a tensor")
        region = _region(pattern.tensor, pattern.indices, expr, bindings)
        known = bindings.regions.setdefault(pattern.tensor.name, region)
        if known != region:
            raise Mismatch(f"operand {pattern.tensor.name!r} stands for two regions")
        return
    if isinstance(pattern, Var) and pattern.name not in bindings.inner:
        _bind_parameter(pattern, expr, bindings)
        return
    is_sum = not loads(pattern)
    if is_sum and pattern.dtype is ScalarType.INDEX and expr.dtype is ScalarType.INDEX:
        _unify_index(pattern, expr, bindings)
        return
    if is_sum and isinstance(pattern, Binary) and pattern.left.dtype is ScalarType.INDEX:
        if isinstance(expr, Binary) and pattern.operator is expr.operator:
            _unify_index(pattern.right - pattern.left, expr.right - expr.left, bindings)
            return
    if _head(pattern) != _head(expr):
        raise Mismatch(f"{_text(pattern)} is {_text(expr)}")
    for wanted, given in zip(children(pattern), children(expr), strict=True):
        _unify(wanted, given, bindings)


def _unify_index(pattern: Expr, expr: Expr, bindings: _Bindings) -> None:
    """Solve ``pattern == expr`` for the one parameter that it may hold still unknown."""
    gap = difference(simplify(expr, bindings.ranges), substitute(pattern, bindings.parameters))
    unknown = [
        (atom, factor)
        for atom, factor in gap.terms
        if isinstance(atom, Var) and atom.name in bindings.open_names
    ]
    if len(unknown) == 1 and abs(unknown[0][1]) == 1:
        var, factor = unknown[0]
        value = (gap + Linear(((var, -factor),), 0)).scaled(-factor)
        _bind_parameter(var, simplify(from_linear(value), bindings.ranges), bindings)
    elif simplify(from_linear(gap), bindings.ranges) != _constant(0):
        raise Mismatch(f"{_text(pattern)} is {_text(expr)}")


def _text(expr: Expr) -> str:
    return format_expression(expr)


def _head(expr: Expr) -> tuple[object, ...]:
    """Return what two nodes must have in common besides their operands."""
    match expr:
        case Binary():
            return (Binary, expr.operator)
        case Call():
            return (Call, expr.function)
        case Const():
            return (Const, expr.value, expr.dtype)
        case Cast():
            return (Cast, expr.dtype)
        case Reduce():
            return (Reduce, expr.reduction)
        case _:
            return (type(expr),)


def _bind_parameter(pattern: Var, expr: Expr, bindings: _Bindings) -> None:
    if expr.dtype is not pattern.dtype:
        raise Mismatch(f"parameter {pattern.name!r} is {pattern.dtype}, not {expr.dtype}")
    if variables(expr) & bindings.inner:
        raise Mismatch(f"parameter {pattern.name!r} is {_text(expr)}, which varies in the tile")
    if bindings.parameters.setdefault(pattern.name, expr) != expr:
        raise Mismatch(f"parameter {pattern.name!r} stands for two values")


def _region(operand: Tensor, indices: tuple[Expr, ...], load: Load, bindings: _Bindings) -> Region:
    """Return the region of `load`'s tensor that `operand` covers; `indices` are the pattern's."""
    tensor = load.tensor
    if tensor.dtype is not operand.dtype or tensor.scope != operand.scope:
        raise Mismatch(
            f"operand {operand.name!r} is {operand.dtype} in {operand.scope}, "
            f"{tensor.name!r} is {tensor.dtype} in {tensor.scope}"
        )
    if any(map(loads, indices)):
        return _gathered(indices, load, bindings)
    # Where an axis of one iteration leaves a choice, the tile is the innermost part of the tensor.
    for axes in reversed(tuple(combinations(range(len(tensor.shape)), len(indices)))):
        offsets = list(load.indices)
        for axis, index in zip(axes, indices, strict=True):
            offsets[axis] = offsets[axis] - index
        simplified = tuple(simplify(offset, bindings.ranges) for offset in offsets)
        if not any(variables(offset) & bindings.inner for offset in simplified):
            return Region(tensor=tensor, offsets=simplified, axes=axes)
    wanted = ", ".join(map(_text, indices))
    raise Mismatch(f"{operand.name}[{wanted}] is {_text(load)}, which runs through it otherwise")


def _gathered(indices: tuple[Expr, ...], load: Load, bindings: _Bindings) -> Region:
    """Return the whole of a tensor that is indexed by data, as the pattern indexes it."""
    if len(indices) != len(load.indices):
        raise Mismatch(f"{_text(load)} has {len(load.indices)} indices, not {len(indices)}")
    for wanted, given in zip(indices, load.indices, strict=True):
        _unify(wanted, given, bindings)
    offsets = (_constant(0),) * len(indices)
    return Region(tensor=load.tensor, offsets=offsets, axes=tuple(range(len(indices))))


def _first(intrinsic: Intrinsic, outer: tuple[Loop, ...]) -> Expr | None:
    if intrinsic.reduce is None:
        return None
    if not intrinsic.overwrites:
        return Const(False, ScalarType.BOOL)
    reduce_loops = [loop for loop in outer if loop.reduces]
    return all_of(*(equal(loop.var, 0) for loop in reduce_loops))
