"""How split and fused loops relate to the axes they came from: extents and index values."""

from collections.abc import Mapping

from tilewright.compiler.tensor.expressions import Expr
from tilewright.compiler.tensor.intervals import Ranges
from tilewright.compiler.tensor.primitives import Fuse, Split
from tilewright.compiler.tensor.simplify import simplify
from tilewright.compiler.tensor.stages import Relation


def size_loops(relations: tuple[Relation, ...], sizes: dict[str, int]) -> None:
    """Add the extents of all loops that came from axes whose extents are known."""
    for relation in relations:
        match relation:
            case Split():
                extent = sizes[relation.axis]
                inner = min(relation.factor or -(-extent // (relation.parts or 1)), extent)
                sizes[relation.inner] = inner
                sizes[relation.outer] = -(-extent // inner)
            case Fuse():
                sizes[relation.fused] = sizes[relation.outer] * sizes[relation.inner]


def undo_relations(
    relations: tuple[Relation, ...],
    sizes: Mapping[str, int],
    values: dict[str, Expr],
    ranges: Ranges,
) -> list[tuple[str, Expr]]:
    """Add the values of split and fused loops to `values`; return the guards of uneven splits."""
    guards = []
    for relation in reversed(relations):
        match relation:
            case Split():
                step, extent = sizes[relation.inner], sizes[relation.axis]
                value = values[relation.outer] * step + values[relation.inner]
                values[relation.axis] = simplify(value, ranges)
                if sizes[relation.outer] * step > extent:
                    guards.append((relation.axis, values[relation.axis] < extent))
            case Fuse():
                fused, step = values[relation.fused], sizes[relation.inner]
                values[relation.outer] = simplify(fused // step, ranges)
                values[relation.inner] = simplify(fused % step, ranges)
    return guards
