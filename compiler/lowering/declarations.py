"""What the tensor expressions of kernels have in common: blocked layouts, windows, scaling.

Activations are ``[group, block, row, column, part, image, lane]``: a pixel of a layout block has
`part` entries, whose lanes are channels.
"""

from dataclasses import dataclass

from tilewright.compiler.lowering.kernels import Requantisation, Window
from tilewright.compiler.lowering.tensors import BlockedTensor
from tilewright.compiler.tensor.accelerator import INT8, INT64
from tilewright.compiler.tensor.build import all_of, parameter, select
from tilewright.compiler.tensor.declare import compute, placeholder
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.operators.elementwise import requantized
from tilewright.compiler.tensor.schedule import Schedule
from tilewright.isa.config import AcceleratorConfig

#: Names of scalars: what positions outside an image hold; zero point and range of a result.
PAD = "pad"
LIMITS = ("zero_point", "low", "high")
#: In front of those of an addition.
SUM = "sum_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """Groups of images, layout blocks, rows and columns of an activation tensor."""

    groups: int
    blocks: int
    rows: int
    columns: int

    @staticmethod
    def of(tensor: BlockedTensor) -> "Plane":
        """Return the extents of a tensor."""
        return Plane(
            groups=tensor.groups,
            blocks=tensor.blocks,
            rows=tensor.shape.height,
            columns=tensor.shape.width,
        )

    def shape(self, config: AcceleratorConfig, lanes: int) -> tuple[int, ...]:
        """Return the shape of the blocked tensor with entries of `lanes` channels."""
        parts = config.layout_block // lanes
        return (self.groups, self.blocks, self.rows, self.columns, parts, config.batch, lanes)


def activations(name: str, plane: Plane, config: AcceleratorConfig, lanes: int) -> Tensor:
    """Declare an activation tensor in DRAM with entries of `lanes` channels."""
    return placeholder(plane.shape(config, lanes), INT8, name)


def bordered(source: Tensor, window: Window, size: tuple[int, int], name: str) -> Tensor:
    """Declare what `size` windows cover of a tensor: its pixels, the padding value around them."""
    groups, blocks, height, width, *entry = source.shape
    reach = tuple(
        (size[axis] - 1) * window.stride[axis]
        + (window.kernel[axis] - 1) * window.dilation[axis]
        + 1
        for axis in (0, 1)
    )
    top, left = window.before

    def element(
        group: Expr, block: Expr, row: Expr, column: Expr, part: Expr, image: Expr, lane: Expr
    ) -> Expr:
        y, x = row - top, column - left
        inside = all_of(0 <= y, y < height, 0 <= x, x < width)
        value = source[group, block, y, x, part, image, lane]
        return select(inside, value, parameter(PAD, INT8))

    return compute((groups, blocks, *reach, *entry), element, name)


def position(window: Window, at: tuple[Expr, Expr], tap: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
    """Return row and column that a tap of the window at an output position reads."""
    row, column = (
        at[axis] * window.stride[axis] + tap[axis] * window.dilation[axis] for axis in (0, 1)
    )
    return row, column


def scaled(value: Expr, prm: Tensor, at: tuple[Expr, ...], prefix: str = "") -> Expr:
    """Requantise an int32 with the parameters at indices `at` of `prm`, and scalars."""
    bias, multiplier, shift = (prm.at(*at, number) for number in range(3))
    zero_point, low, high = (parameter(prefix + name, INT64) for name in LIMITS)
    return requantized(value, bias, multiplier, shift, zero_point=zero_point, low=low, high=high)


def limits(scale: Requantisation, prefix: str = "") -> dict[str, int]:
    """Return the scalars of a requantisation."""
    values = (scale.zero_point, scale.low, scale.high)
    return {prefix + name: value for name, value in zip(LIMITS, values, strict=True)}


def tile_output(
    s: Schedule,
    sizes: tuple[int, int, int],
    outer: tuple[str, ...],
    phases: tuple[str, ...] = (),
) -> str:
    """Cut `y` to tiles of blocks, rows and columns; return the innermost loop over tiles.

    `phases` names the loops behind rows and behind columns where there are any.
    """
    for axis, size in zip(("block", "row", "column"), sizes, strict=True):
        s.split("y", axis, size)
    behind_rows, behind_columns = phases[:1], phases[1:]
    inner = ("block.inner", "row.inner", *behind_rows, "column.inner", *behind_columns)
    s.reorder("y", "group", *outer, *inner, "part", "image", "lane")
    return outer[-1]
