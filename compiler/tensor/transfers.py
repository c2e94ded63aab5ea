"""Copies between memories as intrinsics, with or without a border of one value."""

from tilewright.compiler.tensor.build import all_of, parameter, select
from tilewright.compiler.tensor.declare import compute, placeholder
from tilewright.compiler.tensor.expressions import Expr
from tilewright.compiler.tensor.intrinsics import Intrinsic
from tilewright.compiler.tensor.scalar_types import ScalarType

#: Parameters that say where the source is, in rows and columns of the target.
BORDER = ("top", "bottom", "left", "right")


def transfer(
    name: str, dtype: ScalarType, source: str, target: str, rows: int, columns: int
) -> Intrinsic:
    """Declare a copy of up to `rows` times `columns` elements from one memory to another."""
    origin = placeholder((rows, columns), dtype, "source", scope=source)
    copy = compute((rows, columns), lambda row, column: origin[row, column], "target", scope=target)
    return Intrinsic(name=name, pattern=copy, emitter=name, flexible=("row", "column"))


def padded_transfer(
    name: str, dtype: ScalarType, source: str, target: str, shape: tuple[int, int, int]
) -> Intrinsic:
    """Declare a copy of up to `shape` rows, columns and lanes, with a border of one value.

    Row `row` and column `column` of the target are those of the source where ``top <= row <
    bottom`` and ``left <= column < right``, and `fill` elsewhere; the source's region may begin
    outside of its tensor.
    """
    origin = placeholder(shape, dtype, "source", scope=source)

    def element(row: Expr, column: Expr, lane: Expr) -> Expr:
        return bordered(row, column, origin[row, column, lane], dtype)

    copy = compute(shape, element, "target", scope=target, parameters=BORDER)
    return Intrinsic(name=name, pattern=copy, emitter=name, flexible=("row", "column", "lane"))


def bordered(row: Expr, column: Expr, inside: Expr, dtype: ScalarType) -> Expr:
    """Return `inside` where the source is, as `BORDER` says, and parameter ``fill`` elsewhere."""
    top, bottom, left, right = (parameter(end, ScalarType.INDEX) for end in BORDER)
    condition = all_of(top <= row, row < bottom, left <= column, column < right)
    return select(condition, inside, parameter("fill", dtype))
