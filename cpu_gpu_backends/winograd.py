"""Winograd's minimal filtering for convolutions of 3 x 3 (Lavin and Gray, arXiv 1509.09308).

A tile of ``m x m`` outputs needs ``(m + 2)**2`` products per pair of channels instead of
``9 * m**2``: tiles of the image are transformed, the products of each frequency are a matrix
product over the channels, and its results are transformed to outputs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tilewright.compiler.graph import Array
from tilewright.compiler.operators import FloatConv2d
from tilewright.compiler.tensor.build import call, constant, equal, select
from tilewright.compiler.tensor.declare import compute
from tilewright.compiler.tensor.expressions import Expr, Tensor
from tilewright.compiler.tensor.operations import Function
from tilewright.compiler.tensor.scalar_types import ScalarType

Matrix: TypeAlias = tuple[tuple[float, ...], ...]
#: From an index to an element.
Element: TypeAlias = Callable[[Expr], Expr]
#: From a row and a column of a tile, the tile's place and a channel, to an element.
TileElement: TypeAlias = Callable[[Expr, Expr, Expr, Expr, Expr], Expr]

_FLOAT = ScalarType.FLOAT32
#: Fewer channels do not fill lanes or threads, smaller images not the tiles.
_FEWEST_CHANNELS, _SMALLEST_IMAGE = 16, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Transforms:
    """The matrices of one tile size: of the image, of the weights, of the result."""

    outputs: int
    image: Matrix
    weights: Matrix
    result: Matrix

    @property
    def inputs(self) -> int:
        """Rows and columns of the image that a tile reads."""
        return self.outputs + 2


#: F(4 x 4, 3 x 3), interpolated at 0, 1, -1, 2, -2 and infinity, and F(2 x 2, 3 x 3), at 0, 1, -1
#: and infinity.
LARGE_TILES = Transforms(
    outputs=4,
    image=(
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
    weights=(
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
    result=((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
)
SMALL_TILES = Transforms(
    outputs=2,
    image=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1)),
    weights=((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    result=((1, 1, 1, 0), (0, 1, -1, 1)),
)


def suits_winograd(op: FloatConv2d, weights: tuple[int, ...], size: tuple[int, int]) -> bool:
    """Whether a convolution can be, and is large enough to be, computed in this way.

    `weights` is their shape ``[O, R, S, C]``, `size` the result's height and width.
    """
    outputs, rows, columns, channels = weights
    plain = op.groups == 1 and op.stride == op.dilation == (1, 1) and (rows, columns) == (3, 3)
    return plain and min(outputs, channels) >= _FEWEST_CHANNELS and min(size) >= _SMALLEST_IMAGE


def suitable_tiles(size: tuple[int, int]) -> Transforms:
    """Return the tiles for a result of `size`.

    Where half of each large tile would lie outside, small ones compute less.
    """
    return LARGE_TILES if min(size) > 8 else SMALL_TILES


def transform_weights(weights: Array, tiles: Transforms) -> Array:
    """Return ``[frequency, O, C]`` of ``[O, 3, 3, C]``, computed in float64."""
    matrix = np.array(tiles.weights)
    spread = np.einsum("ia,jb,oabc->ijoc", matrix, matrix, weights.astype(np.float64))
    frequencies: Array = spread.astype(np.float32).reshape(-1, *spread.shape[2:])
    return frequencies


def declare_frequencies(
    extents: tuple[int, int, int], read: TileElement, tiles: Transforms, name: str
) -> Tensor:
    """Declare ``[i, j, ty, tx, c]`` of tiles whose pixels are ``read(row, column, ty, tx, c)``.

    Extents are those of ``ty``, ``tx`` and ``c``; the rows alone are stage ``.half``.
    """
    return _transformed((tiles.inputs, tiles.inputs), extents, read, tiles.image, name)


def declare_results(
    extents: tuple[int, int, int], read: TileElement, tiles: Transforms, name: str
) -> Tensor:
    """Declare ``[a, b, ty, tx, c]`` of tiles whose products are ``read(i, j, ty, tx, c)``."""
    return _transformed((tiles.outputs, tiles.inputs), extents, read, tiles.result, name)


def _transformed(
    sizes: tuple[int, int],
    extents: tuple[int, int, int],
    read: TileElement,
    matrix: Matrix,
    name: str,
) -> Tensor:
    rows, columns = sizes

    def half_element(i: Expr, b: Expr, ty: Expr, tx: Expr, c: Expr) -> Expr:
        return _chosen(i, matrix, lambda a: read(a, b, ty, tx, c))

    half = compute((rows, columns, *extents), half_element, f"{name}.half")

    def element(i: Expr, j: Expr, ty: Expr, tx: Expr, c: Expr) -> Expr:
        return _chosen(j, matrix, lambda b: half[i, b, ty, tx, c])

    return compute((rows, rows, *extents), element, name)


def _chosen(row: Expr, matrix: Matrix, element: Element) -> Expr:
    """Return the product of a row of a matrix, by its number, with elements; loops are unrolled."""
    choice = _combined(matrix[-1], element)
    for number, coefficients in reversed(list(enumerate(matrix[:-1]))):
        choice = select(equal(row, number), _combined(coefficients, element), choice)
    return choice


def _combined(coefficients: tuple[float, ...], element: Element) -> Expr:
    total: Expr | None = None
    # Unit coefficients first: they need no product.
    for position, factor in sorted(enumerate(coefficients), key=lambda pair: abs(pair[1]) != 1):
        if not factor:
            continue
        value = element(constant(position, ScalarType.INDEX))
        if total is None:
            total = value if factor == 1 else value * float(factor)
        elif abs(factor) == 1:
            total = total + value if factor > 0 else total - value
        else:
            weight = constant(float(factor), _FLOAT)
            total = call(Function.FUSED_MULTIPLY_ADD, value, weight, total)
    assert total is not None, "no row of a transformation is zero"
    return total
